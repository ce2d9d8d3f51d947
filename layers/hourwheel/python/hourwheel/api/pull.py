"""Function ``pull``: hands messages to a consumer."""

import msgspec

from hourwheel.api.ack import check_settlements
from hourwheel.api.events import Event, Invocation, Response, ok
from hourwheel.api.requests import body_of, decode, path_name
from hourwheel.cell import Cell
from hourwheel.model import PullRequest, check_name

_decoder = msgspec.json.Decoder(PullRequest)

_ANSWER_SECONDS = 1.0
"""Left over from the time of an invocation for the last try and the answer."""


def pull(cell: Cell, event: Event, context: Invocation | None) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    request = decode(_decoder, body_of(event))
    check_name(request.consumer, "consumer")
    check_settlements(request.settle or ())
    request.wait_seconds = min(request.wait_seconds, cell.context.settings.max_wait_seconds)
    if context is not None:
        left_seconds = context.get_remaining_time_in_millis() / 1_000 - _ANSWER_SECONDS
        request.wait_seconds = max(0.0, min(request.wait_seconds, left_seconds))
    return ok(cell.pull(subject, group, request))
