"""Moves queues between logs: carries out the changes of routes, and finishes those that another process began.

    1  write the requested change into the subject's record, conditionally
    2  seal the old log: its end is exact
    3  begin the counter of the new log at that end, if the counter is new
    4  close the old mapping, add the new one and raise the epoch: one conditional write

Every process that finds a change after step 1 repeats the steps 2 to 4: an operator, a producer that meets the seal, a
pull, the dispatcher, the sweeper. A target whose cell is out of reach, full or failing included, is given up. Its move
is withdrawn, and a log that was sealed already is continued by a new part in its own cell, or in the home cell if its
own is full (``move_steps.py``). So no seal stays without a log that follows it. A move whose old log does not answer
stays pending, and the moves of other queues go on (``withdrawals.py`` withdraws one).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hourwheel.cells.cells import shown
from hourwheel.cells.move_steps import carried_out, check_target, continuation
from hourwheel.context import Context
from hourwheel.errors import CellUnavailable, Conflict, HourwheelError, MovePending, Rejected, Unavailable
from hourwheel.logs.cas import CasRecord, Versioned, value_of
from hourwheel.model.routes import MAX_MAPPINGS, Mapping, MoveTarget, RouteChange, joined
from hourwheel.model.subjects import Subject
from hourwheel.reach.outages import is_logged
from hourwheel.registry.records import subject_record, unknown_subject
from hourwheel.registry.registry import Registry

_TRIES = 10  # each needs another change of the subject between the read and the write


class Unmoved(NamedTuple):
    """A queue that did not move, and the reason. A ``pending`` move is carried out once the cell answers."""

    queue: int
    error: HourwheelError
    pending: bool = False


class MoveOutcome(NamedTuple):
    """The subject before and after a request, and the queues for which the request was not carried out."""

    before: Subject
    after: Subject
    unmoved: list[Unmoved]


def request_change(
    registry: Registry, name: str, plan: Callable[[Subject], RouteChange | None], *, once: bool = False
) -> tuple[Subject, Subject]:
    """Requests what ``plan`` returns for the subject as ``request_moves`` does, and returns the subject before and
    after. Raises the reason if a queue does not move; the moves of other queues are carried out."""
    requested = request_moves(registry, name, plan, once=once)
    if requested.unmoved:
        raise requested.unmoved[0].error
    return requested.before, requested.after


def request_moves(
    registry: Registry,
    name: str,
    plan: Callable[[Subject], RouteChange | None],
    *,
    once: bool = False,
    partial: bool = False,
) -> MoveOutcome:
    """Requests what ``plan`` returns for the subject, and carries out what can be carried out now; nothing happens
    where ``plan`` returns None. Finishes an open change first, and nothing else if it does what the plan says. Raises
    ``NotFound``, and ``Conflict`` while an open change moves one of these queues to another cell and for a queue with
    too many parts, unless such queues are to be left out (``partial``). With ``once`` raises ``Conflict`` also if a
    change of one of the queues was faster."""
    request = _Request(registry, name, plan, once, partial)
    for _ in range(_TRIES):
        outcome = request.carried_out()
        if outcome is not None:
            return outcome
    raise Unavailable(f"many requests change subject {name!r} at once: send the request again")


@dataclass
class _Request:
    """A request for a change, as ``request_moves`` describes it."""

    registry: Registry
    name: str
    plan: Callable[[Subject], RouteChange | None]
    once: bool
    partial: bool
    _first: Subject | None = None
    """The subject at the first try: other changes that come in between are compared with it."""
    _held_up: Unavailable | None = None

    def carried_out(self) -> MoveOutcome | None:
        """Carries out what can be carried out now; returns None if another change of the subject came first."""
        record = subject_record(self.registry.context, self.name)
        current = load_alive(record, self.name)
        before = current.value
        change, refused = self._planned(before)
        if change is None or not change.targets:
            return MoveOutcome(before, before, refused)
        if not self._requested(record, current, change):
            return None
        after, self._held_up = _finish(self.registry, self.name)
        return MoveOutcome(before, *_outcome(self.registry.context, before, after, change, refused, self._held_up))

    def _planned(self, subject: Subject) -> tuple[RouteChange | None, list[Unmoved]]:
        """Returns the change that is to be requested, and the queues that cannot move."""
        planned = self.plan(subject)
        if planned is None:
            return None, []
        self._first = self._first or subject
        if self.once:
            _check_unmoved(self._first, subject, planned)
        change, refused = movable(subject, planned)
        if refused and not self.partial:
            raise refused[0].error
        return change, refused

    def _requested(self, record: CasRecord[Subject], current: Versioned[Subject], change: RouteChange) -> bool:
        """Writes the change into the subject's record, unless it is there: repeating a request, as an operator does who
        was cut off, has the same result. Returns whether it is there."""
        open_change = current.value.change
        if open_change is not None:
            if _includes(open_change, change):
                return True
            if self._held_up is None:
                # First of all the open change, if its cells answer: the targets follow from the route it leads to.
                self._held_up = _finish(self.registry, self.name)[1]
                return False
            check_moves_only(current.value, open_change, change, self._held_up)
        both = msgspec.structs.replace(current.value, change=joined(open_change, change))
        return record.swap(current, both).stored


def load_alive(record: CasRecord[Subject], name: str) -> Versioned[Subject]:
    """Returns the record of a subject. Raises ``NotFound`` if there is no such subject."""
    current = record.load()
    if current is None or current.value.deleted:
        raise unknown_subject(name)
    return current


def _outcome(
    context: Context,
    before: Subject,
    after: Subject | None,
    change: RouteChange,
    refused: Sequence[Unmoved],
    held_up: Unavailable | None,
) -> tuple[Subject, list[Unmoved]]:
    """Returns the subject after the change was requested, and the queues that did not move: ``refused`` ones, those
    whose moves were given up or withdrawn, and those that wait for a cell (``held_up``)."""
    if after is None or after.deleted or after.generation != before.generation:
        raise unknown_subject(before.name)
    unmoved = list(refused)
    if before.queues < change.queues <= after.queues:
        return after, unmoved  # an addition may have taken another target than it began with
    for target in (target for target in change.targets if not took_over(before, after, target)):
        pending = target in after.open_targets
        error = pending_error(after, change, target, held_up) if pending else _given_up(context, after, target)
        unmoved.append(Unmoved(target.queue, error, pending))
    return after, unmoved


def took_over(before: Subject, after: Subject, target: MoveTarget) -> bool:
    """Returns whether the target has taken over its queue between the two states. An expired part whose name a
    withdrawn move has used up has the log of the target too, but no later epoch."""
    log = after.log_of(target.queue, target)
    return any(
        mapping.epoch > before.epoch and after.log_of(target.queue, mapping) == log
        for mapping in after.route(target.queue).mappings
    )


def pending_error(
    subject: Subject, change: RouteChange, target: MoveTarget, held_up: Unavailable | None, *, foreseen: bool = False
) -> MovePending:
    """Returns the error for a move that waits until a cell answers: the request was not refused, and needs no
    repetition. ``foreseen``: the request was a dry run, and the move is not pending yet."""
    if subject.adds_queues(change):
        what, field = f"the addition of queues to {subject.name!r}", "pending_queues"
        command = f"hourwheel queue withdraw {subject.name}"
    else:
        what = f"the move of queue {target.queue} of {subject.name!r} to cell {shown(target.cell)!r}"
        field, command = "moving_to", f"hourwheel queue withdraw {subject.name} {target.queue}"
    detail = (
        f"{what} would be pending until the cell answers"
        if foreseen
        else f"{what} is pending, and is carried out soon after the cell answers. The route shows it in {field}"
        f" (hourwheel queue list {subject.name}); {command} withdraws it"
    )
    return MovePending(f"{held_up}: {detail}", is_logged=is_logged(held_up))


def _given_up(context: Context, subject: Subject, target: MoveTarget) -> HourwheelError:
    refused = refused_by_target(context, subject, target)
    if refused is not None:
        return refused
    detail = (
        f"the move of queue {target.queue} of {subject.name!r} to cell {shown(target.cell)!r} was withdrawn: queue"
        f" {target.queue} stays where it is"
    )
    return Conflict("route-changed", detail, field="queue")


def refused_by_target(context: Context, subject: Subject, target: MoveTarget) -> HourwheelError | None:
    """Returns the error, with the reason, if the cell of the target cannot take over the queue now."""
    stays = f"queue {target.queue} stays where it is"
    try:
        check_target(context, subject, target)
    except Rejected as error:
        return Conflict("cell-state", f"{error}; {stays}", field="cell")
    except CellUnavailable as error:
        return error.reworded(f"{error}; {stays}")
    except Unavailable as error:
        return error
    return None


def finish_change(registry: Registry, name: str) -> Subject | None:
    """Carries the open change of a subject to its end, if there is one; returns the subject then (None: there is
    none). Raises ``Unavailable`` when a log that has to be sealed cannot be reached; the moves of other queues are
    carried out."""
    subject, held_up = _finish(registry, name)
    if held_up is not None:
        raise held_up
    return subject


def _finish(registry: Registry, name: str) -> tuple[Subject | None, Unavailable | None]:
    """Carries out what can be carried out of the open change. Returns the subject then, and the error of a cell for
    which the rest of the change waits."""
    context = registry.context
    record = subject_record(context, name)
    current = record.load()
    held_up: Unavailable | None = None
    while current is not None and current.value.change is not None and not current.value.deleted:
        # Each step may have been done before, by a caller that was cut off: sealing and beginning change nothing then.
        after, held_up = carried_out(context, current.value, current.value.change)
        if after is None:
            break
        current, held_up = record.swap(current, after).current, None
    registry.forget(name)
    return value_of(current), held_up


def refresh_route(registry: Registry, seen: Subject) -> None:
    """Brings the route up to date after a log of ``seen`` was sealed: forgets the cached subject, finishes an open
    change, and continues logs that were sealed without a change. Changes nothing for a subject that was deleted. Raises
    ``Unavailable`` if the route is as it was, because a cell does not answer."""
    subject, held_up = _finish(registry, seen.name)
    if not _as_seen(subject, seen):
        return
    record = subject_record(registry.context, seen.name)
    current = record.load()
    if current is None or not _as_seen(current.value, seen):
        return
    more = continuation(registry.context, current.value)
    if more is not None:
        changed = msgspec.structs.replace(current.value, change=joined(current.value.change, more))
        record.swap(current, changed)
        subject, held_up = _finish(registry, seen.name)
    if held_up is not None and _as_seen(subject, seen):
        raise held_up


def _as_seen(subject: Subject | None, seen: Subject) -> bool:
    """Returns whether the route is the one that the caller saw."""
    return subject is not None and subject.route_state == seen.route_state


def expire(registry: Registry, seen: Subject, queue: int, mapping: Mapping) -> None:
    """Marks a closed mapping as expired. The caller has seen that its log is empty for ever."""
    record = subject_record(registry.context, seen.name)
    current = record.load()
    if (
        current is None
        or current.value.generation != seen.generation
        or mapping not in current.value.route(queue).mappings
    ):
        return
    routes = list(current.value.all_routes())
    routes[queue] = routes[queue].expired(mapping)
    after = msgspec.structs.replace(current.value, routes=tuple(routes), epoch=current.value.epoch + 1)
    record.swap(current, after)  # refused: another process changed the subject, and the next sweep tries again
    registry.forget(seen.name)


def _check_unmoved(before: Subject, current: Subject, change: RouteChange) -> None:
    queues = [target.queue for target in change.targets]
    moved = [queue for queue in queues if before.route(queue).last != current.route(queue).last]
    if moved:
        raise Conflict(
            "route-changed",
            f"queue {moved[0]} of {current.name!r} was moved by somebody else meanwhile: look at its route,"
            " then try again",
            field="queue",
        )


def _includes(open_change: RouteChange, change: RouteChange) -> bool:
    """Returns whether the open change does what ``change`` requests."""
    return change.queues == open_change.queues and set(change.targets) <= set(open_change.targets)


def movable(subject: Subject, change: RouteChange) -> tuple[RouteChange, list[Unmoved]]:
    """Returns the change without the queues that cannot move, and these with the reason."""
    errors = {target: _moves_elsewhere(subject, change, target) or _full(subject, target) for target in change.targets}
    targets = tuple(target for target, error in errors.items() if error is None)
    refused = [Unmoved(target.queue, error) for target, error in errors.items() if error is not None]
    return RouteChange(targets, change.queues), refused


def _moves_elsewhere(subject: Subject, change: RouteChange, target: MoveTarget) -> Conflict | None:
    """Returns the error if the open change moves the queue to another cell. Moves and an addition of queues do not
    contradict each other: one of them comes first."""
    if subject.change is None or subject.change.queues != change.queues:
        return None
    elsewhere = (pending for pending in subject.open_targets if pending.queue == target.queue)
    pending = next((pending for pending in elsewhere if pending.cell != target.cell), None)
    if pending is None:
        return None
    queue, cell = f"queue {target.queue} of {subject.name!r}", shown(pending.cell)
    detail = (
        f"{queue} is about to go on in cell {cell!r}: look at its route, then try again"
        if pending.lost or not subject.leaves_cell(pending)
        else f"{queue} has a pending move to cell {cell!r}: wait until the move is carried out, or withdraw it"
        f" (hourwheel queue withdraw {subject.name} {target.queue}), then try again"
    )
    return Conflict("route-changed", detail, field="cell")


def _full(subject: Subject, target: MoveTarget) -> Conflict | None:
    if target in subject.open_targets:
        return None  # requested before: there was room
    if len(subject.route(target.queue).readable) < MAX_MAPPINGS:
        return None
    detail = (
        f"queue {target.queue} of {subject.name!r} has {MAX_MAPPINGS} parts with messages: wait until the retention has"
        " emptied some"
    )
    return Conflict("route-full", detail, field="queue")


def check_moves_only(subject: Subject, open_change: RouteChange, change: RouteChange, held_up: Unavailable) -> None:
    """Raises ``CellUnavailable`` if one of the two changes adds queues: such a change takes all queues as they are.
    Moves of different queues do not wait for one another."""
    if subject.adds_queues(open_change):
        pending, field = "an addition of queues", "pending_queues"
    elif subject.adds_queues(change):
        pending, field = "a move of a queue", "moving_to"
    else:
        return
    raise CellUnavailable(
        f"{held_up}: {pending} of {subject.name!r} is pending and comes first. The route shows it in {field} (hourwheel"
        f" queue list {subject.name}); hourwheel queue withdraw {subject.name} withdraws it"
    )
