"""What the verbs of the queue work with: the ports, the settings, and the logs over them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import msgspec

from hourwheel.logs.log import Log
from hourwheel.model import (
    DEFAULT_RETENTION_SECONDS,
    MAX_RETENTION_SECONDS,
    MAX_WAIT_SECONDS,
    MIN_RETENTION_SECONDS,
    RetryPolicy,
)
from hourwheel.ports import (
    Blobs,
    Clock,
    Ids,
    Meter,
    NoPushes,
    NoStream,
    Pushes,
    Store,
    StoredStream,
    Timers,
    Wakeups,
    atomically,
    transactional,
)

T = TypeVar("T")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a cell. Checked where they come in (``msgspec.convert``).

    ``inline_bytes``: largest encoded batch that sits in its row. DynamoDB's writes cost more than an S3 PUT
    from 8 to 13 KB on. ``compression_level``: of zstd, for batches up to 64 KB. ``registry_seconds``: how old a
    subject's or group's settings may be when they are used. ``bucket_minutes`` and ``shards``: length and number of the
    buckets of delayed messages; they may be changed while messages wait. ``batch_buckets``: the messages of one batch
    may fall due in so many of them. ``tick_ms``: how often a wheel looks for what is due. ``retry``: for groups without
    a policy. ``retention_seconds``: of new subjects. ``sweep_rest_seconds``: subjects in which nothing moves are swept
    so seldom in the end; 0: each time. ``archive``: nothing is removed before it is archived. ``max_wait_seconds``:
    caps how long a pull waits, whatever its request asks for; a pull that waits holds a Lambda execution.
    ``auto_create``: producing and pulling make the subject and the group that they name. ``max_subjects`` and, of each
    subject, ``max_groups``: no more are made; 0: any number.
    """

    compression_level: Annotated[int, msgspec.Meta(ge=1, le=19)] = 1
    inline_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=300 * 1_024)] = 12 * 1_024
    registry_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 2.0
    bucket_minutes: Annotated[int, msgspec.Meta(ge=5, le=60)] = 60
    batch_buckets: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1_000
    shards: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    tick_ms: Annotated[int, msgspec.Meta(ge=10, le=500)] = 500
    retry: RetryPolicy = RetryPolicy()
    retention_seconds: Annotated[int, msgspec.Meta(ge=MIN_RETENTION_SECONDS, le=MAX_RETENTION_SECONDS)] = (
        DEFAULT_RETENTION_SECONDS
    )
    sweep_rest_seconds: Annotated[int, msgspec.Meta(ge=0, le=3_600)] = 0
    archive: bool = False
    auto_create: bool = True
    max_subjects: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_groups: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = MAX_WAIT_SECONDS


@dataclass(frozen=True, kw_only=True)
class Context:
    store: Store
    blobs: Blobs
    clock: Clock
    ids: Ids
    wakeups: Wakeups
    meter: Meter
    timers: Timers
    pushes: Pushes = field(default_factory=NoPushes)
    stream: StoredStream = field(default_factory=NoStream)
    settings: Settings = field(default_factory=Settings)
    buckets: set[str] = field(default_factory=set)
    """The buckets of delayed messages that this process has seen registered."""
    later: "list[Callable[[Context], None]] | None" = None
    """Inside of ``atomically``: what is to be done once all is stored."""

    def log(self, name: str) -> Log:
        return Log(self.store, self.clock, self.ids, self.meter, name)

    def atomically(self, work: "Callable[[Context], T]") -> T:
        """Runs ``work`` on this context, in one transaction where the store has them. What it leaves for afterwards is
        done then; where there are no transactions, at once, as nothing can be taken back."""
        if not transactional(self.store):
            return work(self)
        later: list[Callable[[Context], None]] = []

        def run(store: Store) -> T:
            later.clear()
            return work(self._inside(store, later))

        result = atomically(self.store, run)
        for call in later:
            call(self)
        return result

    def _inside(self, store: Store, later: "list[Callable[[Context], None]]") -> "Context":
        # dataclasses.replace goes through every field: 4 us, on each call of the queue.
        inside = object.__new__(Context)
        inside.__dict__.update(self.__dict__, store=store, later=later)
        return inside

    def afterwards(self, call: "Callable[[Context], None]") -> None:
        """Calls once what was stored so far cannot be taken back any more: at once when not ``atomically``."""
        if self.later is None:
            call(self)
        else:
            self.later.append(call)
