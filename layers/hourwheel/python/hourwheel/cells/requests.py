"""Moves queues, and shows routes.

Every operation may be cut off and repeated: the next process that finds it unfinished finishes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hourwheel.cells.cells import all_cells, check_cell_name, check_takes_queues, shown
from hourwheel.cells.moves import Unmoved, check_moves_only, movable, pending_error, refused_by_target, request_moves
from hourwheel.cells.plans import Plan, plan_move, plan_queues, plan_spread
from hourwheel.context import Context
from hourwheel.errors import Unavailable
from hourwheel.model.log_names import LogName
from hourwheel.model.route_records import QueueRoute, RouteMapping, RouteStep, SubjectRoute
from hourwheel.model.routes import Mapping, MoveTarget, RouteChange, change_of, continued
from hourwheel.model.subjects import Subject
from hourwheel.registry.registry import Registry


def shown_route(subject: Subject) -> SubjectRoute:
    """Returns the route of the subject as operators see it."""
    change = subject.change
    # A queue that goes on in its own cell moves nowhere.
    moving = {target.queue: shown(target.cell) for target in subject.open_targets if subject.leaves_cell(target)}
    queues = [
        QueueRoute(
            queue=queue,
            mappings=[_shown(subject, queue, mapping) for mapping in route.mappings],
            moving_to=moving.get(queue),
        )
        for queue, route in enumerate(subject.all_routes())
    ]
    return SubjectRoute(
        subject=subject.name,
        epoch=subject.epoch,
        queues=queues,
        pending_queues=change.queues if change is not None and subject.adds_queues(change) else None,
    )


def _shown(subject: Subject, queue: int, mapping: Mapping) -> RouteMapping:
    log = LogName.parse(subject.log_of(queue, mapping))._replace(cell="")  # the record has a field for the cell
    return RouteMapping(
        start=mapping.start,
        end=mapping.known_end,
        cell=shown(mapping.cell),
        log=str(log),
        state=mapping.state,
        generation=mapping.part_generation,
    )


@dataclass(frozen=True)
class Routes:
    """Changes the routes of subjects."""

    registry: Registry

    @property
    def context(self) -> Context:
        return self.registry.context

    def show(self, subject: str) -> SubjectRoute:
        """Returns the route of a subject as it is stored now: a cached one might lack a pending move. Raises
        ``NotFound``."""
        self.registry.forget_subject(subject)
        return shown_route(self.registry.subject(subject))

    def move(self, subject: str, queue: int, cell: str, *, dry_run: bool = False) -> RouteStep:
        """Moves a queue to a cell. Raises ``NotFound`` for an unknown subject, queue or cell, ``Conflict`` for a cell
        that takes no queues, for the cell in which the queue is, and if another process moves the queue meanwhile."""
        name = check_cell_name(cell)
        check_takes_queues(self.context, name)
        return self.change(subject, plan_move(queue, name), dry_run=dry_run)

    def spread(self, subject: str, cells: Sequence[str] | None = None, *, dry_run: bool = False) -> RouteStep:
        """Spreads the queues of a subject evenly over cells: over these, or over all that take queues."""
        if cells:
            names = list(dict.fromkeys(map(check_cell_name, cells)))
        else:
            names = [cell.name for cell in all_cells(self.context) if cell.takes_queues]
        for name in names:
            check_takes_queues(self.context, name)
        return self.change(subject, plan_spread(names), dry_run=dry_run)

    def add_queues(self, subject: str, queues: int, *, dry_run: bool = False) -> RouteStep:
        """Gives the subject more queues. Does nothing if the subject has this many queues. Raises ``Conflict`` if the
        subject has more."""
        return self.change(subject, plan_queues(queues), dry_run=dry_run)

    def change(self, subject: str, plan: Plan, *, dry_run: bool) -> RouteStep:
        """Changes the route of the subject as ``plan`` says, or with ``dry_run`` only computes the change. Returns the
        route before and after. Raises what ``request_change`` and the plan raise."""
        step, unmoved = self._changed(subject, plan, dry_run=dry_run)
        if unmoved:
            raise unmoved[0].error
        return step

    def change_partly(self, subject: str, plan: Plan, *, dry_run: bool) -> tuple[RouteStep, list[Unmoved]]:
        """Changes the route of the subject as ``change`` does, as far as that is possible. Returns the route before and
        after, and the queues that did not move."""
        return self._changed(subject, plan, dry_run=dry_run, partial=True)

    def withdraw(self, subject: str, queue: int | None = None, *, dry_run: bool = False) -> RouteStep:
        """Withdraws the pending move of a queue, or all pending changes of the route. Changes nothing if nothing is
        pending. Raises ``NotFound``, and ``Conflict`` for a move that has begun or was carried out meanwhile."""
        from hourwheel.cells.withdrawals import withdraw_change  # rare: no process that starts shall read the file

        before, after = withdraw_change(self.registry, subject, queue, dry_run=dry_run)
        return RouteStep(before=shown_route(before), after=shown_route(after), dry_run=dry_run)

    def _changed(
        self, subject: str, plan: Plan, *, dry_run: bool, partial: bool = False
    ) -> tuple[RouteStep, list[Unmoved]]:
        if not dry_run:
            # Once: an operator decided by the route that he saw, and not by one that somebody else has changed since.
            before, after, unmoved = request_moves(self.registry, subject, plan, once=True, partial=partial)
        else:
            before = self.registry.current_subject(subject)
            change = plan(before)
            after, unmoved = (before, []) if change is None else self._foreseen(before, change)
        return RouteStep(before=shown_route(before), after=shown_route(after), dry_run=dry_run), unmoved

    def _foreseen(self, subject: Subject, change: RouteChange) -> tuple[Subject, list[Unmoved]]:
        """Returns the subject as it would be if the change were carried out now, and the queues that could not
        move."""
        allowed, unmoved = movable(subject, change)
        if subject.change is not None and change.queues != subject.change.queues:
            self._check_comes_next(subject, subject.change, change)
        targets: list[MoveTarget] = []
        ends: dict[int, tuple[int, int]] = {}
        for target in allowed.targets:
            end = self._foreseen_end(subject, change, target)
            if isinstance(end, Unmoved):
                unmoved.append(end)
            else:
                targets.append(target)
                ends[target.queue] = end
        if not targets or (unmoved and subject.adds_queues(change)):
            return subject, unmoved
        epoch = subject.epoch + 1
        routes = continued(subject.all_routes(), RouteChange(tuple(targets), change.queues), ends, epoch=epoch)
        rest = change_of((waiting for waiting in subject.open_targets if waiting.queue not in ends), change.queues)
        after = msgspec.structs.replace(subject, routes=routes, epoch=epoch, queues=change.queues, change=rest)
        return after, unmoved

    def _foreseen_end(self, subject: Subject, change: RouteChange, target: MoveTarget) -> tuple[int, int] | Unmoved:
        """Returns the sequence and the rows at which the target would take over its queue now, or why it could not."""
        refused = refused_by_target(self.context, subject, target)
        if refused is not None:
            return Unmoved(target.queue, refused)
        try:
            totals = self.context.log(subject.log(target.queue)).totals()
        except Unavailable as error:
            # A request that is no dry run records the move, if it is not pending by now.
            foreseen = target not in subject.open_targets
            return Unmoved(target.queue, pending_error(subject, change, target, error, foreseen=foreseen), pending=True)
        return totals.numbers, totals.rows

    def _check_comes_next(self, subject: Subject, open_change: RouteChange, change: RouteChange) -> None:
        """Raises ``CellUnavailable`` if the open change is held up, and has to be carried out before this change."""
        for target in open_change.targets:
            try:
                self.context.log(subject.log(target.queue)).totals()
            except Unavailable as error:
                check_moves_only(subject, open_change, change, error)
