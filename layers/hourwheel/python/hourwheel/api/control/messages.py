"""Shows the messages of a queue, and what became of a message."""

from hourwheel.api.control.queries import PeekQuery, TraceQuery
from hourwheel.api.events import Event, Response, ok
from hourwheel.api.requests import decode_query, path_name, path_text, time_of
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Rejected
from hourwheel.groups.peek import PeekStart
from hourwheel.model.fields import MAX_QUEUES, check_name
from hourwheel.trace.messages import MessagePosition, SearchSpan
from hourwheel.trace.scheduled import BucketRow

_LONGEST_NUMBER = 5  # a queue has at most two digits, and ``int`` raises for thousands of them


def peek(deployment: Deployment, event: Event) -> Response:
    subject, queue = path_name(event, "subject"), queue_number(path_text(event, "queue"))
    query = decode_query(PeekQuery, event)
    at_ms = time_of(query.time, "time")
    return ok(deployment.messages.peek(subject, queue, PeekStart(query.offset, at_ms, query.newest), query.limit))


def trace(deployment: Deployment, event: Event) -> Response:
    subject, message = path_name(event, "subject"), path_text(event, "id")
    query = decode_query(TraceQuery, event)
    if query.group is not None:
        check_name(query.group, "group")
    after = None if query.after is None else _search_start(query.after)
    since_ms = time_of(query.since, "from")
    until_ms = time_of(query.until, "to")
    return ok(deployment.messages.trace(subject, message, SearchSpan(since_ms, until_ms, after), query.group))


def _search_start(text: str) -> MessagePosition | BucketRow:
    """Returns the position at which a search continues. Raises ``Rejected`` for a text that names no position."""
    start = MessagePosition.parse(text) or BucketRow.parse(text)
    if start is None:
        raise Rejected(
            "field-invalid", f"after must be the value of next in an earlier answer, got {text!r}", field="after"
        )
    return start


def queue_number(text: str) -> int:
    """Returns the number of the queue that a path names. Raises ``Rejected`` for a text that is no such number."""
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        raise Rejected(
            "field-invalid",
            f"queue must be a whole number from 0 to {MAX_QUEUES - 1}, got {text[:40]!r}",
            field="queue",
        )
    return int(text)
