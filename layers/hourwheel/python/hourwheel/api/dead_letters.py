"""Lists, shows, redrives and drops dead letters."""

from collections.abc import Callable

from hourwheel.api.bodies import DeadQuery, SelectionBody
from hourwheel.api.events import Event, Response, ok
from hourwheel.api.requests import body_of, decode_control, decode_query, path_name, path_text
from hourwheel.cell import Cell
from hourwheel.dead_letters.dead import DeadFilter, NamedLetters
from hourwheel.groups.broadcast import parse_any_dead_id
from hourwheel.pull_log.records import Position
from hourwheel.times import parse_rfc3339


def list_dead(cell: Cell, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    query = decode_query(DeadQuery, event)
    which = DeadFilter(query.reason, query.detail)
    return ok(cell.dead(subject, group, after=query.after, limit=query.limit, which=which, newest=query.newest))


def reasons(cell: Cell, event: Event) -> Response:
    from hourwheel.groups.state import dead_reasons  # only operators look at the reasons

    return ok(dead_reasons(cell.dead_letters(path_name(event, "subject"), path_name(event, "group"))))


def get_dead(cell: Cell, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    return ok(cell.dead_letter(subject, group, path_text(event, "dead_id")))


def redrive(cell: Cell, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    return ok({"redriven": cell.redrive(subject, group, _selection(cell, event))})


def drop(cell: Cell, event: Event) -> Response:
    subject, group = path_name(event, "subject"), path_name(event, "group")
    return ok({"dropped": cell.drop_dead(subject, group, _selection(cell, event))})


def _selection(cell: Cell, event: Event) -> Callable[[Position, int], bool]:
    """Returns the predicate, over position and time of death, that the body of the request describes."""
    body = decode_control(SelectionBody, body_of(event))
    if body.all:
        return lambda position, died_ms: True
    if body.ids is not None:
        return NamedLetters(frozenset(parse_any_dead_id(text, f"ids[{index}]") for index, text in enumerate(body.ids)))
    if body.reason is not None:
        which = DeadFilter(body.reason, body.detail)
        return NamedLetters(cell.dead_positions(path_name(event, "subject"), path_name(event, "group"), which))
    since_ms = None if body.since is None else parse_rfc3339(body.since, "from")
    until_ms = None if body.until is None else parse_rfc3339(body.until, "to")
    return lambda position, died_ms: (
        (since_ms is None or died_ms >= since_ms) and (until_ms is None or died_ms < until_ms)
    )
