"""Withdraws changes of routes that are pending because a cell does not answer.

The caller who withdraws a change and the one who finishes it write the same record conditionally: one wins, and the
other finds the route of the winner. A log that is sealed when its move is withdrawn goes on in a new part in its own
cell, as if the target had been given up. The process that meets the seal next adds this part.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hourwheel.cells.cells import shown
from hourwheel.cells.move_steps import sealed, without
from hourwheel.cells.moves import finish_change, load_alive, took_over
from hourwheel.cells.plans import check_queue
from hourwheel.context import Context
from hourwheel.errors import Conflict, Unavailable
from hourwheel.model.routes import MoveTarget, RouteChange, change_of
from hourwheel.model.subjects import Subject
from hourwheel.registry.records import subject_record
from hourwheel.registry.registry import Registry

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
        withdrawal = _withdrawal(registry.context, subject, queue, dry_run)
        if withdrawal is None:
            _check_not_carried_out(first, subject, queue)
            return subject, subject
        if dry_run:
            return subject, withdrawal.after
        if record.swap(current, withdrawal.after).stored:
            registry.forget(name)
            return subject, withdrawal.finished(registry, subject)
    raise Unavailable(f"many requests change subject {name!r} at once: send the request again")


class _WithdrawChange(NamedTuple):
    """The subject without the changes that are withdrawn, and the moves that have begun: they are not."""

    after: Subject
    free: Sequence[MoveTarget]
    begun: Mapping[int, str]

    def finished(self, registry: Registry, before: Subject) -> Subject:
        """Returns the subject after the withdrawal was stored. Raises ``Conflict`` for moves that have begun."""
        if self.begun:
            raise _some_begun(self.begun, self.free, dry_run=False)
        if not before.adds_queues(before.change):
            return self.after
        # Where the addition had sealed logs already, these go on now.
        return finish_change(registry, before.name) or self.after


def _withdrawal(context: Context, subject: Subject, queue: int | None, dry_run: bool) -> _WithdrawChange | None:
    """Returns what is left of the subject's open change; None if nothing is pending. Raises ``Conflict`` if nothing can
    be withdrawn, and with ``dry_run`` if only some of it can."""
    withdrawn = _pending(subject, queue)
    if withdrawn is None:
        return None
    begun = {} if subject.adds_queues(withdrawn) else _begun(context, subject, withdrawn)
    free = tuple(target for target in withdrawn.targets if target.queue not in begun)
    if begun and (dry_run or not free):
        raise _some_begun(begun, free, dry_run=dry_run)
    after = without(context, subject.without_targets(free), free)
    return _WithdrawChange(after, free, begun)


def _pending(subject: Subject, queue: int | None) -> RouteChange | None:
    """Returns the part of the open change that is to be withdrawn. A queue that only goes on in its own cell moves
    nowhere."""
    change = subject.change
    if change is None or subject.adds_queues(change):
        return change
    named = (target for target in change.targets if queue in (None, target.queue))
    return change_of((target for target in named if subject.leaves_cell(target)), change.queues)


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
        numbers = ", ".join(str(target.queue) for target in free)
        single = len(free) == 1
        what = f"move of queue {numbers}" if single else f"moves of queues {numbers}"
        verb = "would be" if dry_run else "was" if single else "were"
        reasons += f". The pending {what} {verb} withdrawn"
    return Conflict("move-begun", reasons, field="queue")


def _check_not_carried_out(before: Subject, subject: Subject, queue: int | None) -> None:
    """Raises ``Conflict`` if a change that was pending at the first look was carried out since."""
    pending = _pending(before, queue)
    carried_out = [target for target in (pending.targets if pending else ()) if took_over(before, subject, target)]
    if carried_out:
        target = carried_out[0]
        raise Conflict(
            "route-changed",
            f"queue {target.queue} of {subject.name!r} has gone on in cell {shown(target.cell)!r} meanwhile: the"
            " change was carried out. To take a queue back, move it to cell"
            f" {shown(before.route(target.queue).last.cell)!r}",
            field="queue",
        )
