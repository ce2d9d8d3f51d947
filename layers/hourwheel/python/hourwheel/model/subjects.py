"""Defines the record of a subject."""

from collections.abc import Collection, Iterator
from typing import ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace

from hourwheel.model.log_names import queue_log
from hourwheel.model.routes import Mapping, MoveTarget, Route, RouteChange, change_of
from hourwheel.model.subject_settings import SubjectSettings


class DozingGroup(Struct, frozen=True, array_like=True):
    """A group that was marked at ``since_ms``: its consumers wait at its wake-up queue ``queue``, or are about to. A
    process found at ``busy_ms`` that its consumers get messages without wake-ups (0: none has found that)."""

    NAMED_BY: ClassVar[int] = 1  # its queue

    queue: str
    since_ms: int
    busy_ms: int = 0

    def counts(self, after_ms: int, now_ms: int) -> bool:
        """Returns whether consumers may wait by this mark: it was made after ``after_ms``, and the group was not found
        busy since. A mark of the future was made under a wrong clock."""
        return not self.busy_ms and after_ms < self.since_ms <= now_ms


class Subject(SubjectSettings, frozen=True, kw_only=True):
    """A subject's record. A subject that is created again after its deletion has the next ``generation``, and so new
    logs."""

    name: str
    generation: int
    created_ms: int
    paused: bool = False
    """Whether no group of the subject gets messages."""

    deleted: bool = False
    erased: bool = False
    """Whether nothing is left of a deleted subject."""

    routes: tuple[Route, ...] = ()
    """The place of each queue; empty: every queue is one log in the home cell."""

    epoch: int = 0
    """The number of changes of ``routes``."""

    change: RouteChange | None = None
    """A change of ``routes`` that is not complete."""

    dozing: tuple[DozingGroup, ...] = ()
    """The groups that a stored message has to wake: see ``dozing/dozing.py``."""

    @property
    def wakes_groups(self) -> bool:
        """Whether a stored message may have to wake groups."""
        return bool(self.dozing)

    @property
    def open_targets(self) -> tuple[MoveTarget, ...]:
        """The targets of the change that is not complete."""
        return self.change.targets if self.change else ()

    @property
    def route_state(self) -> tuple[int, int, bool]:
        """Changes with each change of the route, and when the subject is deleted."""
        return self.generation, self.epoch, self.deleted

    @property
    def cells(self) -> list[str]:
        """The cell to which each queue's new messages go."""
        return [route.last.cell for route in self.all_routes()]

    def queues_in(self, cell: str) -> list[int]:
        """Returns the queues whose new messages go to the cell."""
        return [queue for queue, own_cell in enumerate(self.cells) if own_cell == cell]

    def parts_in(self, cell: str) -> list[tuple[int, Mapping, str]]:
        """Returns those of the held parts that are in the cell."""
        return [(queue, part, log) for queue, part, log in self.held_parts() if part.cell == cell]

    def targets_in(self, cell: str) -> list[MoveTarget]:
        """Returns the targets of the open change that are in the cell."""
        return [target for target in self.open_targets if target.cell == cell]

    def without_targets(self, withdrawn: Collection[MoveTarget]) -> Self:
        """Returns the subject without these targets of its open change, and with the number of queues that it has."""
        left = change_of((target for target in self.open_targets if target not in withdrawn), self.queues)
        return replace(self, change=left)

    def adds_queues(self, change: RouteChange | None) -> bool:
        """Returns whether the subject has more queues after the change."""
        return change is not None and change.queues > self.queues

    def leaves_cell(self, target: MoveTarget) -> bool:
        """Returns whether the queue of the target moves to another cell than that in which it is."""
        return target.cell != self.route(target.queue).last.cell

    @property
    def retention_ms(self) -> int:
        return self.retention_seconds * 1_000

    def log(self, queue: int) -> str:
        """Returns the name of the log that takes the queue's new messages."""
        if not self.routes:
            return queue_log(self.name, self.generation, queue)
        return self.log_of(queue, self.routes[queue].last)

    def log_of(self, queue: int, where: Mapping | MoveTarget) -> str:
        """Returns the name of the log of a mapping of the queue."""
        return queue_log(self.name, self.generation, queue, where.part, where.part_generation, where.cell)

    def route(self, queue: int) -> Route:
        return self.routes[queue] if self.routes else Route()

    def all_routes(self) -> tuple[Route, ...]:
        """Returns the route of each queue."""
        return self.routes or (Route(),) * self.queues

    def parts(self, queue: int) -> list[tuple[Mapping, str]]:
        """Returns the mappings of the queue that may hold messages, oldest first, each with the name of its log."""
        return [(mapping, self.log_of(queue, mapping)) for mapping in self.route(queue).readable]

    def held_parts(self) -> Iterator[tuple[int, Mapping, str]]:
        """Yields each mapping that may hold messages, with its queue and the name of its log. A deleted subject has
        rows until it is erased."""
        queues = range(0 if self.erased else self.queues)
        return ((queue, mapping, log) for queue in queues for mapping, log in self.parts(queue))

    def queue_logs(self) -> list[str]:
        """Returns the names of the logs of all queues that may hold messages."""
        if not self.routes:
            return [self.log(queue) for queue in range(self.queues)]
        return [log for queue in range(self.queues) for _, log in self.parts(queue)]
