"""Defines the record of a subject."""

from msgspec import Struct

from hourwheel.model.log_names import queue_log
from hourwheel.model.routes import Mapping, MoveTarget, Route, RouteChange


class DozingGroup(Struct, frozen=True, array_like=True):
    """A group that was marked at ``since_ms``: its consumers wait at its wake-up queue ``queue``, or are about to. A
    process found at ``busy_ms`` that its consumers get messages without wake-ups (0: none has found that)."""

    queue: str
    since_ms: int
    busy_ms: int = 0

    def counts(self, after_ms: int, now_ms: int) -> bool:
        """Returns whether consumers may wait by this mark: it was made after ``after_ms``, and the group was not found
        busy since. A mark of the future was made under a wrong clock."""
        return not self.busy_ms and after_ms < self.since_ms <= now_ms


class Subject(Struct, frozen=True, kw_only=True):
    """A subject's record. A subject that is created again after its deletion has the next ``generation``, and so new
    logs. ``erased`` says that nothing is left of a deleted subject. With ``clamp_delays`` a delay that is too long is
    cut to the longest one instead of being refused. While the subject is ``paused``, no group gets messages; while it
    is ``read_only``, it takes no messages from producers. ``routes`` says where each queue is (empty: every queue is
    one log in the home cell), ``epoch`` counts its changes, and ``change`` is a change that is not complete. ``dozing``
    lists the groups that a stored message has to wake: see ``dozing/dozing.py``."""

    name: str
    generation: int
    queues: int
    retention_seconds: int
    created_ms: int
    clamp_delays: bool = False
    paused: bool = False
    read_only: bool = False
    deleted: bool = False
    erased: bool = False
    routes: tuple[Route, ...] = ()
    epoch: int = 0
    change: RouteChange | None = None
    dozing: tuple[DozingGroup, ...] = ()

    @property
    def wakes_groups(self) -> bool:
        """Whether a stored message may have to wake groups."""
        return bool(self.dozing)

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

    def queue_logs(self) -> list[str]:
        """Returns the names of the logs of all queues that may hold messages."""
        if not self.routes:
            return [self.log(queue) for queue in range(self.queues)]
        return [log for queue in range(self.queues) for _, log in self.parts(queue)]
