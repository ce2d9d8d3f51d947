"""Carries out the steps of a change of routes: seals old logs, begins new ones, and returns the subject as it is then.

Nothing here writes the subject's record: ``moves.py`` does, conditionally, and repeats the steps for the record of a
caller that was faster. Each step may have been done before, by a caller that was cut off: it changes nothing then.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from hourwheel.cells.cells import check_takes_queues, prove_writable
from hourwheel.context import Context
from hourwheel.errors import CellFull, CellUnavailable, Rejected, Unavailable
from hourwheel.model.log_names import HOME, cell_of
from hourwheel.model.routes import MoveTarget, RouteChange, change_of, continued, joined
from hourwheel.model.subjects import Subject
from hourwheel.reach.outages import outage, reached


class _Progress(NamedTuple):
    """What became of the targets of a change. ``done``: those that have taken over their queues. ``ends``: the sequence
    and the rows at which the old log of each such queue ended. ``held_up``: the error for which the ``waiting`` targets
    wait."""

    ends: dict[int, tuple[int, int]]
    done: list[MoveTarget]
    given_up: list[MoveTarget]
    waiting: list[MoveTarget]
    held_up: Unavailable | None

    @property
    def stands(self) -> bool:
        """Whether nothing has changed."""
        return not (self.done or self.given_up)


def carried_out(context: Context, subject: Subject, change: RouteChange) -> tuple[Subject | None, Unavailable | None]:
    """Seals the old logs and begins the new ones. Returns the subject as it is then (None: nothing can be done now),
    and the error of a cell for which targets wait. An addition of queues is carried out as a whole, a move for
    itself."""
    if subject.adds_queues(change):
        return _queues_added(context, subject, change)
    progress = _take_over(context, subject, change.targets)
    if progress.stands:
        return None, progress.held_up
    after = _taken_up(subject, progress, change.queues)
    after = msgspec.structs.replace(after, change=change_of(progress.waiting, change.queues))
    return _without(context, after, progress.given_up), progress.held_up


def _queues_added(context: Context, subject: Subject, change: RouteChange) -> tuple[Subject | None, Unavailable | None]:
    """Carries out an addition of queues as ``carried_out`` does. Where a cell cannot be reached, the logs that an
    interrupted caller has sealed go on all the same, and the addition waits."""
    unreached = _needs_unreachable_cell(context, subject, change)
    ready = [target for target in change.targets if unreached is None or sealed(context, subject.log(target.queue))]
    progress = _take_over(context, subject, ready)
    held_up = unreached or progress.held_up
    if progress.stands:
        return None, held_up
    whole = len(progress.ends) == len(change.targets)
    queues = change.queues if whole else subject.queues
    after = _taken_up(subject, progress, queues)
    if not whole:
        # The queues that went on alone need other logs once the addition is carried out.
        after = msgspec.structs.replace(after, change=stay(after, list(range(queues)), change.queues))
    return _without(context, after, progress.given_up), held_up


def _taken_up(subject: Subject, progress: _Progress, queues: int) -> Subject:
    """Returns the subject with ``queues`` queues and without an open change, after targets have taken over."""
    after = msgspec.structs.replace(subject, queues=queues, change=None)
    if not progress.ends:
        return after
    # One write for all queues that move now: no reader sees a route with only some of the queues that were added.
    epoch = subject.epoch + 1
    done = RouteChange(tuple(progress.done), queues)
    routes = continued(subject.all_routes(), done, progress.ends, epoch=epoch)
    return msgspec.structs.replace(after, routes=routes, epoch=epoch)


def _needs_unreachable_cell(context: Context, subject: Subject, change: RouteChange) -> CellUnavailable | None:
    """Returns the error of a cell in which the change has to write, and cannot. No queue shall stand still because
    another one waits for its cell, so all cells must be proven before one log is sealed."""
    logs = [subject.log(target.queue) for target in change.targets]
    cells = {target.cell for target in change.targets}
    cells.update(cell_of(log) for log in logs if not sealed(context, log))
    outages = (outage(partial(prove_writable, context, cell)) for cell in sorted(cells - {HOME}))
    return next((error for error in outages if error is not None), None)


def _take_over(context: Context, subject: Subject, targets: Sequence[MoveTarget]) -> _Progress:
    progress = _Progress({}, [], [], [], None)
    for target in targets:
        try:
            end = _taken_over(context, subject, target)
        except Unavailable as error:
            progress.waiting.append(target)
            progress = progress._replace(held_up=error)
            continue
        if end is None:
            progress.given_up.append(target)
        else:
            progress.done.append(target)
            progress.ends[target.queue] = end
    return progress


def _taken_over(context: Context, subject: Subject, target: MoveTarget) -> tuple[int, int] | None:
    """Seals the old log of a queue and begins the new one. Returns the sequence and the rows at which the old one ends,
    or None if the target cannot take over. Raises ``Unavailable`` if the old log's cell does not answer."""
    try:
        check_target(context, subject, target)
    except (Rejected, CellUnavailable):
        return None
    # Until here the move can be withdrawn without a trace. From here on the old log takes no message.
    end = _ended(context, subject, target)
    try:
        context.log(subject.log_of(target.queue, target)).begin(end[0])
    except CellUnavailable as error:
        # A cell that does not answer has the old log as well, and no other target would do better: the change stays
        # open, and is tried again. A full one can be read.
        if not (subject.leaves_cell(target) or isinstance(error, CellFull)):
            raise
        return None
    return end


def _ended(context: Context, subject: Subject, target: MoveTarget) -> tuple[int, int]:
    """Ends the log that takes the queue's messages, and returns the sequence and the rows at which it ends. A log in a
    cell that was given up cannot be sealed, and nobody writes to it any more (``lost_cells.py``)."""
    if target.lost:
        return subject.route(target.queue).lost_end, 0
    log = context.log(subject.log(target.queue))
    ended = log.totals()
    if not ended.sealed:  # a full cell can be read, and takes no second seal
        ended = log.seal()
    return ended.numbers, ended.rows


def check_target(context: Context, subject: Subject, target: MoveTarget) -> None:
    """Raises ``Rejected`` or ``Unavailable`` for a target that cannot take over. Read after the change was written: a
    cell that is being removed has left its normal state before anybody looks for changes that lead to it. Writes to the
    target's cell, because a full one can be read."""
    if subject.leaves_cell(target):
        check_takes_queues(context, target.cell)
        prove_writable(context, target.cell)


def without(context: Context, subject: Subject, given_up: Sequence[MoveTarget]) -> Subject:
    """Returns the subject without these targets, which its open change has no more. A log that is sealed already goes
    on in its own cell."""
    after = _spent(subject, given_up)
    return msgspec.structs.replace(after, change=joined(after.change, continuation(context, after)))


def _without(context: Context, subject: Subject, given_up: Sequence[MoveTarget]) -> Subject:
    """Returns the subject without these targets, which could not take over: a log that is sealed already goes on in its
    own cell, and in the home cell if its own is full."""
    if not given_up:
        return subject
    after = _spent(subject, given_up)
    full = [target.queue for target in given_up if not after.leaves_cell(target)]
    homewards = [after.route(queue).target(queue, HOME) for queue in full]
    kept = [target for target in after.open_targets if target.queue not in full]
    queues = after.change.queues if after.change else after.queues
    after = msgspec.structs.replace(after, change=change_of((*kept, *homewards), queues))
    return msgspec.structs.replace(after, change=joined(after.change, continuation(context, after)))


def _spent(subject: Subject, given_up: Sequence[MoveTarget]) -> Subject:
    routes = list(subject.all_routes())
    for target in given_up:
        # A slow process may still begin the counter of the target. Its name is used up, so no later move meets that
        # counter.
        routes[target.queue] = routes[target.queue].spent(target)
    return msgspec.structs.replace(subject, routes=tuple(routes))


def continuation(context: Context, subject: Subject) -> RouteChange | None:
    """Returns the change by which each sealed log that should take messages, and that no open change moves, is followed
    by a new part in its own cell."""
    moving = {target.queue for target in subject.open_targets}
    stuck = [queue for queue in range(subject.queues) if queue not in moving and sealed(context, subject.log(queue))]
    return stay(subject, stuck, subject.queues) if stuck else None


def sealed(context: Context, log: str) -> bool:
    """Returns whether the log is known to be sealed. A log in a cell that is out of reach is not."""
    return reached(lambda: context.log(log).totals().sealed, False)


def stay(subject: Subject, queues: list[int], count: int) -> RouteChange:
    """Returns the change by which each of these queues goes on in a new log of the cell in which it is, and the subject
    has ``count`` queues."""
    routes = subject.all_routes()
    return RouteChange(tuple(routes[queue].target(queue, routes[queue].last.cell) for queue in queues), count)
