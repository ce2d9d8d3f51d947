"""Shows, lists, cancels and reschedules delayed messages, counts the pending ones, and lists orphans."""

from hourwheel.api.control.bodies import ChoiceBody, ChoiceMoveBody, RescheduleBody
from hourwheel.api.control.queries import DelayedQuery, PageQuery, PendingQuery
from hourwheel.api.events import Event, Response, ok
from hourwheel.api.requests import body_of, decode_control, decode_query, path_name, path_text, time_of
from hourwheel.delay.lists.delayed_request import DelayedFilter, DelayedRequest
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.pages import ChosenPage
from hourwheel.times import rfc3339

_HOURS = 72  # three days


def get_scheduled(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.delayed.get(path_text(event, "id")))


def cancel(deployment: Deployment, event: Event) -> Response:
    return ok(deployment.delayed.cancel(path_text(event, "id")))


def reschedule(deployment: Deployment, event: Event) -> Response:
    body = decode_control(RescheduleBody, body_of(event))
    return ok(deployment.delayed.reschedule(path_text(event, "id"), deliver_at=body.deliver_at, delay=body.delay))


def pending(deployment: Deployment, event: Event) -> Response:
    """Answers with the number of messages that are due in each of the next hours. Where the caller names no number of
    hours, with the total of all times and the next due time too."""
    subject = path_name(event, "subject")
    asked = decode_query(PendingQuery, event).hours
    hours = deployment.delayed.pending(subject, hours=asked or _HOURS)
    counts = {
        "subject": subject,
        "messages": sum(messages for _, messages in hours),
        "hours": [{"hour": rfc3339(hour_ms), "messages": messages} for hour_ms, messages in hours],
    }
    if asked is not None:
        return ok(counts)
    owner = deployment.subjects.get(subject)
    total = deployment.background.total((owner.name, owner.generation))
    next_at = {} if total.next_at is None else {"next_at": total.next_at}
    return ok({**counts, "total": total.messages, **next_at, "complete": total.complete})


def list_delayed(deployment: Deployment, event: Event) -> Response:
    """Answers with a page of the delayed messages of all subjects."""
    return ok(deployment.delayed.page(None, _delayed_request(event)))


def list_delayed_of(deployment: Deployment, event: Event) -> Response:
    """Answers with a page of the delayed messages of one subject. The path names the subject, because IAM and tokens
    allow paths."""
    return ok(deployment.delayed.page(path_name(event, "subject"), _delayed_request(event)))


def cancel_chosen(deployment: Deployment, event: Event) -> Response:
    body = decode_control(ChoiceBody, body_of(event))
    return ok(_changed(deployment, event, body, None))


def move_chosen(deployment: Deployment, event: Event) -> Response:
    body = decode_control(ChoiceMoveBody, body_of(event))
    return ok(_changed(deployment, event, body, body.deliver_at))


def _changed(deployment: Deployment, event: Event, body: ChoiceBody, deliver_at: str | None) -> ChosenPage:
    span = (time_of(body.since, "from"), time_of(body.until, "to"))
    request = DelayedRequest(*span, body.after, which=DelayedFilter(body.key, body.tag, body.id))
    act = deployment.delayed.look if body.dry_run else deployment.delayed.change
    return act(path_name(event, "subject"), request, deliver_at)


def _delayed_request(event: Event) -> DelayedRequest:
    query = decode_query(DelayedQuery, event)
    since_ms = time_of(query.since, "from")
    until_ms = time_of(query.until, "to")
    which = DelayedFilter(query.key, query.tag, query.id)
    return DelayedRequest(since_ms, until_ms, query.after, query.limit, query.bodies, which)


def list_orphans(deployment: Deployment, event: Event) -> Response:
    """Answers with a page of the delayed messages whose subject was deleted before they were due."""
    subject = path_name(event, "subject")
    query = decode_query(PageQuery, event)
    return ok(deployment.delayed.orphans(subject, after=query.after, limit=query.limit))
