"""Defines the context of every call of the library: the ports, the settings, and the logs over them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

import msgspec

from hourwheel.logs.codec import encode
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row, filler
from hourwheel.logs.segments import rows_of, segment_folder
from hourwheel.model import (
    DEFAULT_RETENTION_SECONDS,
    MAX_RETENTION_SECONDS,
    MAX_WAIT_SECONDS,
    MIN_RETENTION_SECONDS,
    Message,
    NewMessage,
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
    """The settings of a cell. ``msgspec.convert`` checks them where they enter the library.

    ``inline_bytes``: a larger encoded batch goes to a segment instead of its row; from 8 to 13 KB on DynamoDB's writes
    cost more than an S3 PUT. ``compression_level``: the level of zstd for batches up to 64 KB. ``registry_seconds``:
    the largest age at which cached settings of a subject or group are used. ``bucket_minutes`` and ``shards``: the
    length of a bucket of delayed messages, and the number of buckets for the same time; operators may change both while
    messages wait. ``batch_buckets``: the messages of one batch may fall due in at most this many buckets. ``tick_ms``:
    the time between two looks of a wheel for due messages. ``retry``: the policy of groups without one of their own.
    ``retention_seconds``: the retention of new subjects. ``sweep_rest_seconds``: the longest time that the sweeper lets
    an idle subject rest; 0: it never lets one rest. ``archive``: the sweeper removes no row before it is archived.
    ``max_wait_seconds``: the longest wait of a pull, whatever its request asks for, as a waiting pull holds a Lambda
    execution. ``auto_create``: produce and pull create the subject and the group that they name. ``max_subjects``, and
    ``max_groups`` of each subject: the largest number that may exist; 0: no limit.
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
    """The ports and settings with which a call of the library works."""

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
    """The names of buckets that this process has seen registered."""
    later: "list[Callable[[Context], None]] | None" = None
    """Inside of ``atomically``: the calls that follow once everything is stored."""

    def log(self, name: str) -> Log:
        return Log(self.store, self.clock, self.ids, self.meter, name)

    def build_row(
        self, log: str, messages: Sequence[Message], *, at_ms: int, expires_ms: int, meta: bytes = b""
    ) -> Row:
        """Builds the row of a log that holds these messages: a filler without messages. The row has no sequence yet."""
        if not messages:
            return filler(at_ms, expires_ms, meta)
        segment = f"{segment_folder(log, expires_ms)}/{self.ids.unique(at_ms)}"
        (row,) = self.build_rows(segment, [messages], at_ms=at_ms, expires_ms=expires_ms)
        return msgspec.structs.replace(row, meta=meta) if meta else row

    def build_rows(
        self, segment: str, batches: Sequence[Sequence[NewMessage | Message]], *, at_ms: int, expires_ms: int
    ) -> list[Row]:
        """Builds a row for each batch. The large ones are stored together in an object with the key ``segment``. The
        rows have no sequence yet."""
        return rows_of(
            [encode(messages, self.settings.compression_level) for messages in batches],
            blobs=self.blobs,
            segment=segment,
            at_ms=at_ms,
            expires_ms=expires_ms,
            inline_bytes=self.settings.inline_bytes,
        )

    def atomically(self, work: "Callable[[Context], T]") -> T:
        """Runs ``work`` on this context and returns its result, in one transaction where the store has transactions.
        The calls that ``work`` passes to ``afterwards`` run after the commit; without transactions they run at once, as
        no write can be undone."""
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
        # dataclasses.replace visits every field: 4 us on each call of the queue.
        inside = object.__new__(Context)
        inside.__dict__.update(self.__dict__, store=store, later=later)
        return inside

    def afterwards(self, call: "Callable[[Context], None]") -> None:
        """Runs ``call`` once no write so far can be undone any more: at once outside of ``atomically``."""
        if self.later is None:
            call(self)
        else:
            self.later.append(call)
