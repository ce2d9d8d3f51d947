"""Lists, shows, redrives and drops dead letters."""

from collections.abc import Callable

from hourwheel.api.control.bodies import SelectionBody
from hourwheel.api.control.queries import DeadQuery
from hourwheel.api.events import Event, Response, ok
from hourwheel.api.requests import body_of, decode_control, decode_query, path_name, path_text
from hourwheel.dead_letters.dead import DeadFilter, NamedLetters
from hourwheel.deployment.deployment import Deployment
from hourwheel.groups.broadcast import parse_any_dead_id
from hourwheel.pull_log.records import Position
from hourwheel.times import parse_rfc3339


def list_dead(deployment: Deployment, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    query = decode_query(DeadQuery, event)
    which = DeadFilter(query.reason, query.detail)
    return ok(
        deployment.dead_letters(subject, group).page(
            after=query.after, limit=query.limit, which=which, newest=query.newest
        )
    )


def reasons(deployment: Deployment, event: Event) -> Response:
    from hourwheel.groups.state import dead_reasons  # only operators look at the reasons

    return ok(dead_reasons(deployment.dead_letters(path_name(event, "subject"), path_name(event, "group")).alive()))


def get_dead(deployment: Deployment, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    dead_id = path_text(event, "dead_id")
    parse_any_dead_id(dead_id, "dead_id")  # an id that is refused is refused before anything is read
    return ok(deployment.dead_letters(subject, group).get(dead_id))


def redrive(deployment: Deployment, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    choose = _selection(deployment, event)  # a body that is refused is refused before anything is read
    return ok({"redriven": deployment.dead_letters(subject, group).redrive(choose)})


def drop(deployment: Deployment, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    choose = _selection(deployment, event)  # a body that is refused is refused before anything is read
    return ok({"dropped": deployment.dead_letters(subject, group).drop(choose)})


def _selection(deployment: Deployment, event: Event) -> Callable[[Position, int], bool]:
    """Returns the predicate, over position and time of death, that the body of the request describes."""
    body = decode_control(SelectionBody, body_of(event))
    if body.all:
        return lambda position, died_ms: True
    if body.ids is not None:
        return NamedLetters(frozenset(parse_any_dead_id(text, f"ids[{index}]") for index, text in enumerate(body.ids)))
    if body.reason is not None:
        which = DeadFilter(body.reason, body.detail)
        return NamedLetters(
            deployment.dead_letters(path_name(event, "subject"), path_name(event, "group")).positions(which)
        )
    since_ms = None if body.since is None else parse_rfc3339(body.since, "from")
    until_ms = None if body.until is None else parse_rfc3339(body.until, "to")
    return lambda position, died_ms: (
        (since_ms is None or died_ms >= since_ms) and (until_ms is None or died_ms < until_ms)
    )
