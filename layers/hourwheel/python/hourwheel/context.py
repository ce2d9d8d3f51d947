"""Defines the context of every call of the library: the ports, the settings, and the logs over them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar, cast

import msgspec

from hourwheel.errors import CellUnavailable
from hourwheel.logs.cas import CasRecord
from hourwheel.logs.codec import encode
from hourwheel.logs.large_batches import large_batch_folder, rows_of
from hourwheel.logs.log import Log
from hourwheel.logs.partial_rows import PartialRows
from hourwheel.logs.rows import Row, filler
from hourwheel.logs.seen_keys import SeenKeys
from hourwheel.model.fields import (
    DEFAULT_RETENTION_SECONDS,
    MAX_RETENTION_SECONDS,
    MAX_WAIT_SECONDS,
    MIN_RETENTION_SECONDS,
)
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.log_names import HOME, cell_of
from hourwheel.model.messages import Message, NewMessage
from hourwheel.model.routes import CellRecord
from hourwheel.ports.machine import Clock, Ids, Meter
from hourwheel.ports.pushing import NoPushes, NoStream, Pushes, StoredStream
from hourwheel.ports.storage import (
    Blobs,
    Cells,
    CellStorage,
    Key,
    LakeFiles,
    NoReserve,
    Reserve,
    Store,
    Table,
    atomically,
    transactional,
)
from hourwheel.ports.timers import PreciseTimers, Timers
from hourwheel.ports.waking import EarlyWakeups, NoEarlyWakeups, NoWheelWakeups, WakeupQueues, Wakeups, WheelWakeups

T = TypeVar("T")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a deployment. ``msgspec.convert`` checks them where they enter the library.

    ``inline_bytes``: a larger encoded batch goes to an object instead of its row; from 8 to 13 KB on DynamoDB's writes
    cost more than an S3 PUT. ``compression_level``: the level of zstd for batches up to 64 KB. ``noise_bytes``: a
    larger batch that hardly compresses is compressed fast rather than well. ``summary_bytes``: the summary of a batch's
    tags takes at most this many bytes beyond the last unit in which DynamoDB bills its row. ``registry_seconds``: the
    largest age at which cached settings of a subject or group are used. ``bucket_minutes`` and ``shards``: the length
    of a bucket of delayed messages, and the number of buckets for the same time; operators may change both while
    messages wait. ``batch_buckets``: the messages of one batch may fall due in at most this many buckets. ``tick_ms``:
    the time between two looks of a wheel for due messages; 0: no ticks, a wheel sleeps until its next message is due,
    which needs ``WheelWakeups``. ``retry``: the policy of groups without one of their own. ``retention_seconds``: the
    retention of new subjects. ``sweep_rest_seconds``: the longest time that the sweeper lets an idle subject rest; 0:
    it never lets one rest. ``archive``: the sweeper removes no row before it is archived. ``max_wait_seconds``: the
    longest wait of a pull, whatever its request asks for, as a waiting pull holds a Lambda execution. ``auto_create``:
    produce and pull create the subject and the group that they name. ``max_subjects``, and ``max_groups`` of each
    subject: the largest number that may exist; 0: no limit.
    """

    compression_level: Annotated[int, msgspec.Meta(ge=1, le=19)] = 1
    noise_bytes: Annotated[int, msgspec.Meta(ge=1_024)] = 64 * 1_024
    summary_bytes: Annotated[int, msgspec.Meta(ge=0, le=4 * 1_024)] = 0
    inline_bytes: Annotated[int, msgspec.Meta(ge=1_024, le=300 * 1_024)] = 12 * 1_024
    registry_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 2.0
    bucket_minutes: Annotated[int, msgspec.Meta(ge=5, le=60)] = 60
    batch_buckets: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1_000
    shards: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    tick_ms: Annotated[int, msgspec.Meta(ge=0, le=500)] = 500
    retry: RetryPolicy = RetryPolicy()
    retention_seconds: Annotated[int, msgspec.Meta(ge=MIN_RETENTION_SECONDS, le=MAX_RETENTION_SECONDS)] = (
        DEFAULT_RETENTION_SECONDS
    )
    sweep_rest_seconds: Annotated[int, msgspec.Meta(ge=0, le=3_600)] = 0
    sweep_shares: Annotated[int, msgspec.Meta(ge=1, le=128)] = 1
    """At most this many sweeps share the subjects of a deployment."""
    archive: bool = False
    auto_create: bool = True
    max_subjects: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_groups: Annotated[int, msgspec.Meta(ge=0)] = 0
    max_wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_SECONDS)] = MAX_WAIT_SECONDS


class Spans(Exception):
    """Says that the work of a transaction needs the storage of another cell: it then runs without a transaction."""


class _ClosedHome:
    """Stands for the home store inside a transaction of another cell."""

    def __getattr__(self, name: str) -> object:
        raise Spans


_NO_STORE = cast("Store", _ClosedHome())


def record_of_cell(home: Store, ids: Ids, name: str) -> CasRecord[CellRecord]:
    """Returns the record of a cell in the meta table of its home (see ``cells/cells.py``)."""
    return CasRecord(home, ids, Key(Table.META, "cells", name), CellRecord)


@dataclass
class StartHints:
    """Remembers the starts of wheels that this process knows. ``wakes_ms``: for each bucket a start that was ordered
    and recorded. ``until_ms``: the end of the promise that the queue of precise timers is read, as this process read
    the promise at ``read_ms``. ``off``: this process has seen that the queue is not read."""

    wakes_ms: dict[str, int] = field(default_factory=dict)
    until_ms: int = 0
    read_ms: int = 0
    off: bool = False
    has_no_targets: bool = False
    """This process has found no group with a target, and has switched the stream of stored rows off."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """The ports and settings with which a call of the library works.

    ``store`` and ``blobs`` are those of the home cell. ``cells`` opens the others; None where there is only one cell.
    ``log``, ``store_of`` and ``blobs_of`` open the storage of any log by its name.
    """

    store: Store
    blobs: Blobs
    cells: Cells | None = None
    clock: Clock
    ids: Ids
    wakeups: Wakeups
    early_wakeups: EarlyWakeups = field(default_factory=NoEarlyWakeups)
    meter: Meter
    timers: Timers
    wakeup_queues: WakeupQueues | None = None
    """Where consumers wait without a request; None where their pulls wait here, which costs nothing on one machine."""
    brief_store: Store | None = None
    """The home store with calls that give up soon; None where its calls are not repeated."""
    threads: int = 1
    """The number of calls to stores that a step of a wheel, or a sweep, makes at the same time: more than one where
    they are far away."""
    precise_timers: PreciseTimers | None = None
    """None where ``timers`` are precise and cost nothing: wheels then run in this process."""
    wheel_wakeups: WheelWakeups = field(default_factory=NoWheelWakeups)
    pushes: Pushes = field(default_factory=NoPushes)
    stream: StoredStream = field(default_factory=NoStream)
    reserve: Reserve = field(default_factory=NoReserve)
    lake: LakeFiles | None = None
    """None where this process cannot reach the lake."""
    settings: Settings = field(default_factory=Settings)
    buckets: set[str] = field(default_factory=set)
    """The names of buckets that this process has seen registered."""
    hints: StartHints = field(default_factory=StartHints)
    partial_rows: PartialRows = field(default_factory=PartialRows)
    seen_keys: SeenKeys = field(default_factory=SeenKeys)
    later: "list[Callable[[Context], None]] | None" = None
    """Inside of ``atomically``: the calls that follow once everything is stored."""
    inside: str | None = None
    """Inside of ``atomically``, where there are several cells: the cell whose transaction runs."""
    within: Store | None = None
    """Inside of ``atomically``, where there are several cells: the store of the transaction."""

    @property
    def has_one_storage(self) -> bool:
        """Whether all logs are in one storage: there are no cells beside the home cell."""
        return self.cells is None

    def reads(self, log: str) -> bool:
        """Returns whether the log can be read here: inside of ``atomically``, where it is in the cell of the
        transaction."""
        return self.inside is None or cell_of(log) == self.inside

    def log(self, name: str) -> Log:
        # Not ``cell_of``: where there is one cell, nothing more than this look at the name is to be paid.
        store = self.store_of(name) if ":" in name else self.store
        return Log(store, self.clock, self.ids, self.meter, name)

    def brief_log(self, name: str) -> Log:
        """Returns the log with calls that give up soon: for work on many logs, of which none must hold up the others.
        Inside of ``atomically`` it is the log as it is."""
        log = self.log(name)
        if self.brief_store is None or self.later is not None or cell_of(name) != HOME:
            return log
        return replace(log, store=self.brief_store)

    def build_row(
        self, log: str, messages: Sequence[Message], *, at_ms: int, expires_ms: int, meta: bytes = b""
    ) -> Row:
        """Builds the row of a log that holds these messages: a filler without messages. The row has no sequence yet."""
        if not messages:
            return filler(at_ms, expires_ms, meta)
        folder = large_batch_folder(log, expires_ms)
        (row,) = self.build_rows(log, folder, [messages], at_ms=at_ms, expires_ms=expires_ms)
        return msgspec.structs.replace(row, meta=meta) if meta else row

    def build_rows(
        self,
        log: str,
        folder: str,
        batches: Sequence[Sequence[NewMessage | Message]],
        *,
        at_ms: int,
        expires_ms: int,
        prefix: str = "",
    ) -> list[Row]:
        """Builds a row for each batch of logs in the cell of ``log``. The large ones are stored together in an object
        of this folder. The rows have no sequence yet."""
        return rows_of(
            [encode(messages, self.settings.compression_level, self.settings.noise_bytes) for messages in batches],
            blobs=self.blobs_of(log),
            key=lambda: f"{folder}/{self.ids.unique(at_ms)}",
            at_ms=at_ms,
            expires_ms=expires_ms,
            inline_bytes=self.settings.inline_bytes,
            prefix=prefix,
        )

    def store_of(self, log: str) -> Store:
        """Returns the store of the log's cell. Raises ``Unavailable`` where it cannot be opened."""
        cell = cell_of(log)
        if cell == HOME:
            return self.store
        if self.inside is None:
            return self._storage(cell).store
        if cell != self.inside or self.within is None:
            raise Spans
        return self.within

    def blobs_of(self, log: str) -> Blobs:
        """Returns the blobs of the log's cell. Raises ``Unavailable`` where they cannot be opened."""
        cell = cell_of(log)
        return self.blobs if cell == HOME else self._storage(cell).blobs

    def _storage(self, cell: str) -> CellStorage:
        if self.cells is None:
            raise self._not_opened(cell)
        return self.cells.storage(cell)

    def _not_opened(self, cell: str) -> CellUnavailable:
        """Returns the error for a cell in a process with one cell: a route may be older than the loss of the cell."""
        current = record_of_cell(self.store, self.ids, cell).load(consistent=False)
        if current is not None and current.value.lost_ms:
            return CellUnavailable(f"cell {cell} was given up: what it held is lost")
        how = f"start the server with --cell {cell}=DIRECTORY, or on AWS deploy it with hourwheel:cells"
        return CellUnavailable(f"cell {cell} is not opened here: {how}", is_lasting=True)

    def atomically(self, work: "Callable[[Context], T]", logs: Iterable[str] = (HOME,)) -> T:
        """Runs ``work`` on this context and returns its result, in one transaction where the store has transactions.
        The calls that ``work`` passes to ``afterwards`` run after the commit; without transactions they run at once, as
        no write can be undone.

        ``logs`` are the logs that ``work`` needs; the home store stands for itself as ``HOME``. Work that spans cells
        runs without a transaction: every step of it is stored when it is done, and the protocol alone holds.
        """
        cell = self._cell_of_all(logs)
        # Logs in several cells have no transaction in common; work inside of a transaction is part of it.
        if cell is None or self.inside is not None:
            return work(self)
        store = self.store if cell == HOME else self._storage(cell).store
        if not transactional(store):
            return work(self)
        later: list[Callable[[Context], None]] = []

        def run(store: Store) -> T:
            later.clear()  # a store may run the work more than once, and only the last run counts
            return work(self._inside(store, later, cell))

        try:
            result = atomically(store, run)
        except Spans:
            # Nothing is stored: a transaction that raises is undone.
            return work(self)
        for call in later:
            call(self)
        return result

    def is_atomic(self, logs: Iterable[str]) -> bool:
        """Returns whether ``atomically`` runs work on these logs in one transaction."""
        cell = self._cell_of_all(logs)
        return cell is not None and transactional(self.store if cell == HOME else self._storage(cell).store)

    def _cell_of_all(self, logs: Iterable[str]) -> str | None:
        return HOME if self.cells is None else self._only_cell(logs)

    @staticmethod
    def _only_cell(logs: Iterable[str]) -> str | None:
        """Returns the cell of all these logs; None if they are in several cells."""
        cells = {cell_of(log) for log in logs}
        return cells.pop() if len(cells) == 1 else None

    def _inside(self, store: Store, later: "list[Callable[[Context], None]]", cell: str) -> "Context":
        # dataclasses.replace visits every field: 4 us on each call of the queue.
        inside = object.__new__(Context)
        inside.__dict__.update(self.__dict__, store=store, later=later)
        if self.cells is not None:
            # A write to the home store would not be part of the transaction of another cell.
            home = store if cell == HOME else _NO_STORE
            inside.__dict__.update(store=home, inside=cell, within=store)
        return inside

    def afterwards(self, call: "Callable[[Context], None]") -> None:
        """Runs ``call`` once no write so far can be undone any more: at once outside of ``atomically``."""
        if self.later is None:
            call(self)
        else:
            self.later.append(call)
