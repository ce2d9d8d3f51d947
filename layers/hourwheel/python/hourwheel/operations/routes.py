"""Moves queues, and shows routes.

Every operation may be cut off and repeated: the next process that finds it unfinished finishes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hourwheel.context import Context
from hourwheel.log_names import LogName
from hourwheel.model.subjects import Subject
from hourwheel.registry.cells import all_cells, check_cell_name, check_takes_queues, shown
from hourwheel.registry.moves import request_change
from hourwheel.registry.plans import Plan, plan_move, plan_queues, plan_spread
from hourwheel.registry.registry import Registry
from hourwheel.route_records import QueueRoute, RouteMapping, RouteStep, SubjectRoute
from hourwheel.routes import Mapping, RouteChange, continued


def shown_route(subject: Subject) -> SubjectRoute:
    """Returns the route of the subject as operators see it."""
    moving = {target.queue: shown(target.cell) for target in subject.change.targets} if subject.change else {}
    queues = [
        QueueRoute(
            queue=queue,
            mappings=[_shown(subject, queue, mapping) for mapping in route.mappings],
            moving_to=moving.get(queue),
        )
        for queue, route in enumerate(subject.all_routes())
    ]
    return SubjectRoute(subject=subject.name, epoch=subject.epoch, queues=queues)


def _shown(subject: Subject, queue: int, mapping: Mapping) -> RouteMapping:
    log = LogName.parse(subject.log_of(queue, mapping))._replace(cell="")  # the record has a field for the cell
    return RouteMapping(
        start=mapping.start,
        end=mapping.end,
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
        if not dry_run:
            # Once: an operator decided by the route that he saw, and not by one that somebody else has changed since.
            before, after = request_change(self.registry, subject, plan, once=True)
        else:
            self.registry.forget(subject)
            before = self.registry.subject(subject)
            change = plan(before)
            after = before if change is None else self._foreseen(before, change)
        return RouteStep(before=shown_route(before), after=shown_route(after), dry_run=dry_run)

    def _foreseen(self, subject: Subject, change: RouteChange) -> Subject:
        """Returns the subject as it would be if the change were carried out now."""
        ends = {}
        for target in change.targets:
            totals = self.context.log(subject.log(target.queue)).totals()
            ends[target.queue] = totals.numbers, totals.rows
        routes = continued(subject.all_routes(), change, ends, epoch=subject.epoch + 1)
        return msgspec.structs.replace(
            subject, routes=routes, epoch=subject.epoch + 1, queues=change.queues, change=None
        )
