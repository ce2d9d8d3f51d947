"""Plans changes of routes: which queue goes to which cell. Reads and writes nothing."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from hourwheel.cells.cells import shown
from hourwheel.cells.move_steps import stay
from hourwheel.errors import Conflict, NotFound
from hourwheel.model.routes import RouteChange, change_of
from hourwheel.model.subjects import Subject
from hourwheel.wire.words import counted, no_queue

Plan: TypeAlias = Callable[[Subject], RouteChange | None]
"""Returns the change of a subject; None if the subject is as it should be."""


def plan_move(queue: int, cell: str) -> Plan:
    """Plans the move of one queue. The plan raises ``NotFound`` for a queue that the subject does not have, and
    ``Conflict`` for one that is in the cell."""

    def plan(subject: Subject) -> RouteChange:
        check_queue(subject, queue)
        route = subject.route(queue)
        if route.last.cell == cell:
            detail = f"queue {queue} of {subject.name!r} is in cell {shown(cell)!r} already"
            raise Conflict("queue-there", detail, field="cell")
        return RouteChange((route.target(queue, cell),), subject.queues)

    return plan


def check_queue(subject: Subject, queue: int) -> None:
    """Raises ``NotFound`` for a queue that the subject does not have."""
    if not 0 <= queue < subject.queues:
        raise NotFound("queue-unknown", no_queue(subject.name, queue, subject.queues), field="queue")


def queues_to_be(subject: Subject) -> int:
    """Returns the number of queues that the subject has, or has after the change that is under way."""
    return subject.queues if subject.change is None else subject.change.queues


def plan_queues(queues: int) -> Plan:
    """Plans that the subject gets more queues. Each old queue goes on in a new log, so that consumers can tell the
    messages that were routed by the old number of queues from those routed by the new one. The plan raises ``Conflict``
    for fewer queues than the subject has."""

    def plan(subject: Subject) -> RouteChange | None:
        if queues < subject.queues:
            raise fewer_queues(subject)
        return None if subject.queues == queues else stay(subject, list(range(subject.queues)), queues)

    return plan


def fewer_queues(subject: Subject) -> Conflict:
    """Returns the error for a request that would take queues, and so messages, from the subject."""
    has = counted(subject.queues, "queue")
    return Conflict("setting-fixed", f"subject {subject.name!r} has {has} and cannot have fewer", field="queues")


def plan_spread(cells: Sequence[str]) -> Plan:
    """Plans that each of these cells gets as many of the subject's queues as the others, give or take one, with as few
    moves as possible."""

    def plan(subject: Subject) -> RouteChange | None:
        return _moved(subject, _spread(subject.cells, cells))

    return plan


def plan_drain(cell: str, cells: Sequence[str]) -> Plan:
    """Plans that each of the subject's queues in the cell moves to that one of ``cells`` which has the fewest of its
    queues then. A queue that is about to leave the cell anyway goes where it is about to go."""

    def plan(subject: Subject) -> RouteChange | None:
        after = subject.cells
        leaving = {target.queue: target.cell for target in subject.open_targets if target.cell != cell}
        counts = Counter(after)
        for queue in subject.queues_in(cell):
            after[queue] = leaving[queue] if queue in leaving else min(cells, key=lambda cell: counts[cell])
            counts[after[queue]] += queue not in leaving
        return _moved(subject, after)

    return plan


def _spread(before: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Returns the cell of each queue after the spread."""
    least, more = divmod(len(before), len(cells))
    counts = Counter(before)
    # The cells that have the most queues get the ones that are left over: that takes the fewest moves.
    order = sorted(cells, key=lambda cell: -counts[cell])
    room = {cell: least + (i < more) for i, cell in enumerate(order)}
    after: list[str | None] = []
    for cell in before:
        stays = room.get(cell, 0) > 0
        room[cell] = room.get(cell, 0) - stays
        after.append(cell if stays else None)
    free = [cell for cell in cells for _ in range(room[cell])]
    return [cell if cell is not None else free.pop(0) for cell in after]


def _moved(subject: Subject, after: Sequence[str]) -> RouteChange | None:
    routes = zip(subject.all_routes(), after, strict=True)
    targets = [route.target(queue, cell) for queue, (route, cell) in enumerate(routes) if route.last.cell != cell]
    return change_of(targets, subject.queues)
