"""Moves queues between logs: carries out the changes of routes, and finishes those that another process began.

    1  write the requested change into the subject's record, conditionally
    2  seal the old log: its end is exact
    3  begin the counter of the new log at that end, if the counter is new
    4  close the old mapping, add the new one and raise the epoch: one conditional write

Every process that finds a change after step 1 repeats the steps 2 to 4: an operator, a producer that meets the seal, a
pull, the dispatcher, the sweeper. A target that cannot take over is given up: the change is withdrawn, and a log that
was sealed already is continued by a new part in its own cell. So no seal stays without a log that follows it.
"""

from collections.abc import Callable

import msgspec

from hourwheel.context import Context
from hourwheel.errors import CellUnavailable, Conflict, Rejected, Unavailable
from hourwheel.model.subjects import Subject
from hourwheel.registry.cells import check_takes_queues, shown
from hourwheel.registry.registry import Registry, subject_record, unknown_subject
from hourwheel.routes import MAX_MAPPINGS, Mapping, MoveTarget, RouteChange, continued

_TRIES = 10  # each needs another change of the subject between the read and the write


def request_change(
    registry: Registry, name: str, plan: Callable[[Subject], RouteChange | None], *, once: bool = False
) -> tuple[Subject, Subject]:
    """Requests what ``plan`` returns for the subject, carries it out, and returns the subject before and after; nothing
    happens where ``plan`` returns None. Finishes an open change first, and nothing else if it does what the plan says.
    Raises ``NotFound``, and ``Conflict`` while an open change moves one of these queues to another cell; with ``once``
    also if a change of one of them was faster."""
    context = registry.context
    record = subject_record(context, name)
    first: Subject | None = None
    for _ in range(_TRIES):
        current = record.load()
        if current is None or current.value.deleted:
            raise unknown_subject(name)
        change = plan(current.value)
        if change is None:
            return current.value, current.value
        # Other changes of the subject that come in between are compared with this state (``once``).
        first = first or current.value
        if once:
            _check_unmoved(first, current.value, change)
        # One change at a time: a second one would compute its targets from a route that is about to change.
        if current.value.change is not None:
            _check_apart(current.value, current.value.change, change)
            if _includes(current.value.change, change):
                # Requested before, by an operator who was cut off: repeating the request has the same result.
                return current.value, _finished(registry, current.value, change)
            finish_change(registry, name)
            continue
        _check_room(current.value, change)
        outcome = record.swap(current.token, msgspec.structs.replace(current.value, change=change))
        if outcome.stored:
            return current.value, _finished(registry, current.value, change)
    raise Unavailable(f"many requests change subject {name!r} at once: send the request again")


def _finished(registry: Registry, before: Subject, change: RouteChange) -> Subject:
    """Carries out the change that was requested, and returns the subject; raises ``Unavailable`` if the change was
    withdrawn."""
    after = finish_change(registry, before.name)
    if after is None or after.deleted or after.generation != before.generation:
        raise unknown_subject(before.name)
    for target in change.targets:
        logs = [after.log_of(target.queue, mapping) for mapping in after.route(target.queue).mappings]
        if after.log_of(target.queue, target) not in logs:
            raise CellUnavailable(
                f"cell {shown(target.cell)!r} does not answer, or is no longer normal: queue {target.queue} stays where"
                " it is"
            )
    return after


def finish_change(registry: Registry, name: str) -> Subject | None:
    """Carries the open change of a subject to its end, if there is one; returns the subject then (None: there is
    none). Raises ``Unavailable`` when a log that has to be sealed cannot be reached."""
    context = registry.context
    record = subject_record(context, name)
    current = record.load()
    while current is not None and current.value.change is not None and not current.value.deleted:
        change = current.value.change
        # Each step may have been done before, by a caller that was cut off: sealing and beginning change nothing then.
        after = _carried_out(context, current.value, change) or _withdrawn(context, current.value, change)
        current = record.swap(current.token, after).current
    registry.forget(name)
    return None if current is None else current.value


def _carried_out(context: Context, subject: Subject, change: RouteChange) -> Subject | None:
    """Seals the old logs and begins the new ones; returns the subject as it is then, or None if a target cannot take
    over."""
    ends: dict[int, tuple[int, int]] = {}
    try:
        for target in change.targets:
            _check_target(context, subject, target)
    except (Rejected, Unavailable):
        return None
    for target in change.targets:
        # Until here the change can be withdrawn without a trace. From here on the old log takes no message.
        ended = context.log(subject.log(target.queue)).seal()
        try:
            context.log(subject.log_of(target.queue, target)).begin(ended.numbers)
        except Unavailable:
            # In its own cell no other target would do better: the change stays open, and is tried again.
            if target.cell == subject.route(target.queue).last.cell:
                raise
            return None
        ends[target.queue] = ended.numbers, ended.rows
    # All queues change by the one write of the caller: no reader sees a route in which some have moved.
    epoch = subject.epoch + 1
    routes = continued(subject.all_routes(), change, ends, epoch=epoch)
    return msgspec.structs.replace(subject, routes=routes, epoch=epoch, queues=change.queues, change=None)


def _check_target(context: Context, subject: Subject, target: MoveTarget) -> None:
    """Raises ``Rejected`` or ``Unavailable`` for a target that cannot take over. Read after the change was written: a
    cell that is being removed has left its normal state before anybody looks for changes that lead to it."""
    if target.cell != subject.route(target.queue).last.cell:
        check_takes_queues(context, target.cell)
        context.log(subject.log_of(target.queue, target)).totals()


def _withdrawn(context: Context, subject: Subject, change: RouteChange) -> Subject:
    """Returns the subject without the change. A log that the change has sealed goes on in its own cell."""
    routes = list(subject.all_routes())
    for target in change.targets:
        # A slow process may still begin the counter of the target. Its name is used up, so no later move meets that
        # counter.
        routes[target.queue] = routes[target.queue].spent(target)
    after = msgspec.structs.replace(subject, routes=tuple(routes), change=None)
    return msgspec.structs.replace(after, change=_continuation(context, after))


def refresh_route(registry: Registry, seen: Subject) -> None:
    """Brings the route up to date after a log of ``seen`` was sealed: forgets the cached subject, finishes an open
    change, and continues logs that were sealed without a change. Changes nothing for a subject that was deleted."""
    registry.forget(seen.name)
    record = subject_record(registry.context, seen.name)
    current = record.load()
    if current is None or current.value.deleted or current.value.generation != seen.generation:
        return
    if current.value.change is None and current.value.epoch == seen.epoch:
        change = _continuation(registry.context, current.value)
        if change is None:
            return
        record.swap(current.token, msgspec.structs.replace(current.value, change=change))
    finish_change(registry, seen.name)


def _continuation(context: Context, subject: Subject) -> RouteChange | None:
    """Returns the change by which each sealed log that should take messages is followed by a new part in its own
    cell."""
    stuck = [queue for queue in range(subject.queues) if _sealed(context, subject.log(queue))]
    return stay(subject, stuck, subject.queues) if stuck else None


def _sealed(context: Context, log: str) -> bool:
    """Returns whether the log is known to be sealed. A log in a cell that is out of reach is not."""
    try:
        return context.log(log).totals().sealed
    except CellUnavailable:
        return False


def stay(subject: Subject, queues: list[int], count: int) -> RouteChange:
    """Returns the change by which each of these queues goes on in a new log of the cell in which it is, and the subject
    has ``count`` queues."""
    routes = subject.all_routes()
    return RouteChange(tuple(routes[queue].target(queue, routes[queue].last.cell) for queue in queues), count)


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
    record.swap(current.token, after)  # refused: another process changed the subject, and the next sweep tries again
    registry.forget(seen.name)


def _check_unmoved(before: Subject, current: Subject, change: RouteChange) -> None:
    for target in change.targets:
        if before.route(target.queue).last != current.route(target.queue).last:
            raise Conflict(
                "route-changed",
                f"queue {target.queue} of {current.name!r} was moved by somebody else meanwhile: look at its route,"
                " then try again",
                field="queue",
            )


def _includes(open_change: RouteChange, change: RouteChange) -> bool:
    """Returns whether the open change does what ``change`` requests."""
    return change.queues == open_change.queues and set(change.targets) <= set(open_change.targets)


def _check_apart(subject: Subject, open_change: RouteChange, change: RouteChange) -> None:
    """Raises ``Conflict`` if the open change moves a queue of this change to another cell."""
    moving = {target.queue: target for target in open_change.targets}
    for target in change.targets:
        open_target = moving.get(target.queue)
        if open_target is not None and open_target.cell != target.cell:
            raise Conflict(
                "route-changed",
                f"queue {target.queue} of {subject.name!r} is being moved to cell {shown(open_target.cell)!r}: look at"
                " its route, then try again",
                field="cell",
            )


def _check_room(subject: Subject, change: RouteChange) -> None:
    for target in change.targets:
        if len(subject.route(target.queue).readable) >= MAX_MAPPINGS:
            raise Conflict(
                "route-full",
                f"queue {target.queue} of {subject.name!r} has {MAX_MAPPINGS} parts with messages: wait until the"
                " retention has emptied some",
                field="queue",
            )
