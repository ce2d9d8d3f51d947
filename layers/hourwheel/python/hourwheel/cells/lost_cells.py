"""Gives up the parts of queues that are in a lost cell: their queues go on elsewhere, above every offset given out.

    1  mark the closed parts in the cell as lost, and write the requested moves into the subject's record: one write
    2  begin the counter of each new log ``LOST_GAP`` above the start of the lost one
    3  mark the open parts as lost, add the new mappings and raise the epoch: one conditional write

These are the steps of a move (``cells/moves.py``) without the seal, which the lost log cannot take. The cell is off
line, and a producer that does not know this yet does not acknowledge what it has stored there (docs/decisions/0058).
"""

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from hourwheel.cells.move_steps import without
from hourwheel.cells.moves import finish_change
from hourwheel.cells.plans import plan_drain
from hourwheel.context import Context
from hourwheel.errors import Conflict, Unavailable
from hourwheel.model.routes import MOST_OFFSETS, MoveTarget, RouteChange, continued, joined
from hourwheel.model.subjects import Subject
from hourwheel.registry.records import subject_record
from hourwheel.registry.registry import Registry

_TRIES = 20  # each needs another change of the subject meanwhile, or a target that stops answering


def give_up_parts(registry: Registry, name: str, cell: str, cells: Sequence[str]) -> None:
    """Marks the subject's parts in the cell as lost, and continues its queues there in those of ``cells`` that have the
    fewest of them. The cell must be off line for good: nobody may set its state. Finishes what another caller began,
    and changes nothing for a subject without parts in the cell. Raises ``Unavailable`` if it cannot finish now."""
    record = subject_record(registry.context, name)
    for _ in range(_TRIES):
        current = record.load()
        if current is None or not holds_parts(current.value, cell):
            registry.forget(name)
            return
        if not _is_requested(current.value, cell):
            record.swap(current, _requested(registry.context, current.value, cell, cells))
        # Moves of other queues may wait for other cells.
        with suppress(Unavailable):
            finish_change(registry, name)
    raise Unavailable(f"the route of subject {name!r} keeps changing: send the request again")


def holds_parts(subject: Subject, cell: str) -> bool:
    """Returns whether the subject has parts in the cell, or an open move leads there."""
    coming = [] if subject.deleted else subject.targets_in(cell)
    return bool(coming or subject.parts_in(cell))


def without_parts(subject: Subject, cell: str, *, closed: bool = False) -> Subject:
    """Returns the subject with its parts in the cell marked as lost; with ``closed`` only those that take no messages.
    Nothing else changes."""
    routes = tuple(route.without_cell(cell, closed=closed) for route in subject.all_routes())
    return subject if routes == subject.all_routes() else msgspec.structs.replace(subject, routes=routes)


def foreseen_subject(context: Context, subject: Subject, cell: str, cells: Sequence[str]) -> Subject:
    """Returns the subject as ``give_up_parts`` would leave it, without the moves of queues that are not in the cell.
    Writes nothing. Raises ``Conflict`` for a queue that has no offsets left."""
    after = subject if _is_requested(subject, cell) else _requested(context, subject, cell, cells)
    lost = tuple(target for target in after.open_targets if target.lost)
    if not lost:
        return after
    ends = {target.queue: (after.route(target.queue).lost_end, 0) for target in lost}
    routes = continued(after.all_routes(), RouteChange(lost, after.queues), ends, epoch=after.epoch + 1)
    return msgspec.structs.replace(after, routes=routes, epoch=after.epoch + 1)


def _needs(subject: Subject, target: MoveTarget, cell: str) -> bool:
    """Returns whether the move leads to the cell, or has to seal a log there."""
    seals = None if target.lost else subject.route(target.queue).last.cell
    return cell in (target.cell, seals)


def _is_requested(subject: Subject, cell: str) -> bool:
    """Returns whether nothing is left but to carry out the open change."""
    if subject.deleted or without_parts(subject, cell, closed=True) != subject:
        return False
    moving = {target.queue for target in subject.open_targets if not _needs(subject, target, cell)}
    return moving.issuperset(subject.queues_in(cell))


def _requested(context: Context, subject: Subject, cell: str, cells: Sequence[str]) -> Subject:
    """Returns the subject with the request to give up its parts in the cell. Those of a deleted subject are lost at
    once: its queues do not go on."""
    if subject.deleted:
        return msgspec.structs.replace(without_parts(subject, cell), change=None)
    after = _withdrawn(context, subject, cell)
    closed = without_parts(after, cell, closed=True)
    if closed is not after:
        after = msgspec.structs.replace(closed, epoch=closed.epoch + 1)
    moved = plan_drain(cell, cells)(after)
    return after if moved is None else _joined(after, moved.targets)


def _withdrawn(context: Context, subject: Subject, cell: str) -> Subject:
    """Returns the subject without the moves that need the cell: a log that they have sealed goes on where it is."""
    needing = [target for target in subject.open_targets if _needs(subject, target, cell)]
    if needing and subject.adds_queues(subject.change):
        needing = list(subject.open_targets)  # an addition of queues is carried out as a whole, or not at all
    after = subject.without_targets(needing)
    return without(context, after, needing) if needing else after


def _joined(subject: Subject, targets: Sequence[MoveTarget]) -> Subject:
    if any(subject.route(target.queue).lost_end >= MOST_OFFSETS for target in targets):
        why = "because many cells of it were given up: delete the subject"
        detail = f"a queue of {subject.name!r} has no offsets left, {why}"
        raise Conflict("route-full", detail, field="cell")
    lost = RouteChange(tuple(msgspec.structs.replace(target, lost=True) for target in targets), subject.queues)
    return msgspec.structs.replace(subject, change=joined(subject.change, lost))
