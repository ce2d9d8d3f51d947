"""Withdraws changes of routes that are pending because a cell does not answer.

The caller who withdraws a change and the one who finishes it write the same record conditionally: one wins, and the
other finds the route of the winner. A log that is sealed when its move is withdrawn goes on in a new part in its own
cell, as if the target had been given up. The process that meets the seal next adds this part.
"""

from collections.abc import Mapping, Sequence

import msgspec

from hourwheel.cells.cells import shown
from hourwheel.cells.move_steps import sealed, without
from hourwheel.cells.moves import finish_change, load_alive, took_over
from hourwheel.cells.plans import check_queue
from hourwheel.context import Context
from hourwheel.errors import Conflict, Unavailable
from hourwheel.model.routes import MoveTarget, RouteChange
from hourwheel.model.subjects import Subject
from hourwheel.registry.registry import Registry, subject_record

_TRIES = 10  # each needs another change of the subject between the read and the write


def withdraw_change(
    registry: Registry, name: str, queue: int | None, *, dry_run: bool = False
) -> tuple[Subject, Subject]:
    """Withdraws the pending move of a queue, or with None every pending move and the pending addition of queues.
    Returns the subject before and after, which are equal if nothing is pending. An addition is withdrawn as a whole,
    whichever queue is named. Raises ``NotFound``, and ``Conflict`` for moves that have begun, after the other ones
    were withdrawn, and for a move that was carried out meanwhile."""
    record = subject_record(registry.context, name)
    first: Subject | None = None
    for _ in range(_TRIES):
        current = load_alive(record, name)
        subject = current.value
        if queue is not None:
            check_queue(subject, queue)
        first = first or subject
        withdrawn = _pending(subject, queue)
        if withdrawn is None:
            _check_not_carried_out(first, subject, queue)
            return subject, subject
        adds = withdrawn.queues > subject.queues
        begun = {} if adds else _begun(registry.context, subject, withdrawn)
        free = tuple(target for target in withdrawn.targets if target.queue not in begun)
        if begun and (dry_run or not free):
            raise _some_begun(begun, free, dry_run=dry_run)
        after = _withdrawn(registry.context, subject, RouteChange(free, withdrawn.queues))
        if dry_run:
            return subject, after
        if record.swap(current.token, after).stored:
            registry.forget(name)
            if begun:
                raise _some_begun(begun, free, dry_run=False)
            # Where an addition had sealed logs already, these go on now.
            return subject, (finish_change(registry, name) or after) if adds else after
    raise Unavailable(f"many requests change subject {name!r} at once: send the request again")


def _pending(subject: Subject, queue: int | None) -> RouteChange | None:
    """Returns the part of the open change that is to be withdrawn. A queue that only goes on in its own cell moves
    nowhere."""
    change = subject.change
    if change is None or change.queues > subject.queues:
        return change
    targets = tuple(
        target
        for target in change.targets
        if queue in (None, target.queue) and target.cell != subject.route(target.queue).last.cell
    )
    return RouteChange(targets, change.queues) if targets else None


def _withdrawn(context: Context, subject: Subject, withdrawn: RouteChange) -> Subject:
    assert subject.change is not None
    left = tuple(target for target in subject.change.targets if target not in withdrawn.targets)
    rest = RouteChange(left, subject.queues) if left else None
    return without(context, msgspec.structs.replace(subject, change=rest), withdrawn.targets)


def _begun(context: Context, subject: Subject, withdrawn: RouteChange) -> dict[int, str]:
    """Returns why moves of these queues cannot be withdrawn: the log is sealed, so that the move needs no cell that is
    out of reach any more. A log that does not answer may be sealed too, and then goes on in its own cell."""
    begun: dict[int, str] = {}
    for target in withdrawn.targets:
        cell = shown(target.cell)
        if target.lost:
            begun[target.queue] = (
                f"queue {target.queue} of {subject.name!r} goes on in cell {cell!r} because the cell in which it is was"
                " given up: this move cannot be withdrawn"
            )
        elif sealed(context, subject.log(target.queue)):
            begun[target.queue] = (
                f"the move of queue {target.queue} of {subject.name!r} to cell {cell!r} has begun, and cannot be"
                f" withdrawn: repeat it, which finishes it (hourwheel queue move {subject.name} {target.queue} --to"
                f" {cell})"
            )
    return begun


def _some_begun(begun: Mapping[int, str], free: Sequence[MoveTarget], *, dry_run: bool) -> Conflict:
    """Returns the error that names the moves that have begun, and says what happens to the ``free`` ones."""
    reasons = "; ".join(begun.values())
    if free:
        queues = f"{'queue' if len(free) == 1 else 'queues'} {', '.join(str(target.queue) for target in free)}"
        moves = "move" if len(free) == 1 else "moves"
        if dry_run:
            reasons += f". The pending {moves} of {queues} would be withdrawn"
        else:
            reasons += f". The pending {moves} of {queues} {'was' if len(free) == 1 else 'were'} withdrawn"
    return Conflict("move-begun", reasons, field="queue")


def _check_not_carried_out(before: Subject, subject: Subject, queue: int | None) -> None:
    """Raises ``Conflict`` if a change that was pending at the first look was carried out since."""
    pending = _pending(before, queue)
    for target in pending.targets if pending else ():
        came_from = before.route(target.queue).last
        if took_over(before, subject, target):
            raise Conflict(
                "route-changed",
                f"queue {target.queue} of {subject.name!r} has gone on in cell {shown(target.cell)!r} meanwhile: the"
                " change was carried out. To take a queue back, move it to cell"
                f" {shown(came_from.cell)!r}",
                field="queue",
            )
