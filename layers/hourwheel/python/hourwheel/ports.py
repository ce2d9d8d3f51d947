"""What the library needs from the world. The docstrings are the contract: the suite in
``tests/contract`` states each sentence and runs on every adapter.

Nothing above the ports imports a vendor's SDK, reads a clock or draws a random number.
"""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

T = TypeVar("T")

MAX_VALUE_BYTES = 350 * 1024
"""Largest value every store takes (DynamoDB: 400 KB an item, names and keys included)."""


GET_MANY = 100
"""At most this many items, or counters, can be read by their names at once."""


class Table(StrEnum):
    """One table each in DynamoDB and SQLite. Counters live in a table of their own."""

    META = "meta"
    CONSUME = "consume"
    PULL = "pull"
    KEYS = "keys"
    SCHEDULE = "schedule"
    DISPATCH = "dispatch"


class Key(NamedTuple):
    """``partition`` and ``sort`` are non-empty and at most 900 bytes of UTF-8 together.
    Items of a partition are ordered by the UTF-8 bytes of ``sort``."""

    table: Table
    partition: str
    sort: str


class Record(msgspec.Struct, frozen=True):
    """What a key holds.

    ``token`` (16 bytes) is drawn anew for every write: it names the write, so a writer whose answer
    was lost recognises its own effect. ``expires_ms`` (Unix milliseconds) allows the store
    to remove the item at any later time, days late or never: garbage collection, not logic.
    """

    value: bytes
    token: bytes
    expires_ms: int | None = None


class Refused(NamedTuple):
    """A condition did not hold. ``current`` is what the key held at that moment."""

    current: Record | None


class Counter(NamedTuple):
    """Totals of a counter: ``rows`` given out and ``numbers`` given out. A new one is zero."""

    rows: int
    numbers: int
    sealed: bool = False


class Store(Protocol):
    """Ordered key-value store with conditional writes.

    Every write is atomic and durable when it returns. Writes of one key are linearizable.
    Any method may raise ``Throttled`` (certainly no effect) or ``OutcomeUnknown`` (perhaps its
    effect); the caller asks again and recognises its own effect by the token. ``StorageFull``
    and ``Corrupt`` are final. A value over ``MAX_VALUE_BYTES`` raises ``ValueError`` and nothing is stored.
    """

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        """Adds to both totals in one step and returns them as they are after it. One write.

        Raises ``Sealed``, without effect, once the counter is sealed. Not idempotent: asked again
        after a lost answer it adds again. An adapter never repeats it by itself.
        """
        ...

    def seal(self, counter: str) -> Counter:
        """Seals the counter, for ever; returns its final totals. Idempotent. One write."""
        ...

    def counter(self, counter: str) -> Counter:
        """The totals, strongly consistent; zeros for a counter never added to."""
        ...

    def counters(self, counters: Sequence[str]) -> dict[str, Counter]:
        """The totals of up to ``GET_MANY`` counters, each named once; zeros for one never added to. Each is read by
        itself and may be out of date: totals that the counter had before, never ones that it did not have. One
        request, at half the price of ``counter`` for each."""
        ...

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        """What the key holds. ``consistent=False`` may be out of date and is cheaper."""
        ...

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        """Those items of the partition that are there, of up to ``GET_MANY`` names, each named once. Not at one moment:
        each as with ``get``."""
        ...

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        """Stores the record if the key now holds the token ``expect``, or nothing if ``expect`` is None.

        Returns None when stored; else ``Refused`` with what the key held, nothing changed. One write,
        refused or not. Asked again after a success that was not heard of, it returns ``Refused``
        with the very record it was asked to store.
        """
        ...

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        """Removes the key if it holds the token ``expect``; answers like ``put``."""
        ...

    def scan(
        self,
        table: Table,
        partition: str,
        *,
        start: str = "",
        limit: int,
        reverse: bool = False,
        consistent: bool = True,
    ) -> list[tuple[str, Record]]:
        """Up to ``limit`` items of the partition, in order of ``sort``: from ``start`` (included)
        upwards, or with ``reverse`` from the last one downwards (``start`` is then the lower
        bound, included). Fewer than ``limit`` come only when there are no more.
        ``consistent=False`` may miss recent writes.
        """
        ...

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        """Allows the removal of the partition's items with ``sort < below``. They may be gone
        at once or, where the engine removes expired items by itself, at their ``expires_ms``."""
        ...

    def collect(self, table: Table, now_ms: int) -> None:
        """Removes items of the table whose ``expires_ms`` has passed, where the engine does not do so by
        itself; bounded work, so some may stay for the next time."""
        ...


class Transactional(Protocol):
    """A store that can run several calls as one atomic, durable step (SQLite, memory)."""

    def transact(self, work: Callable[[Store], T]) -> T:
        """Runs ``work`` with a store whose calls take effect together when it returns, or not at
        all when it raises (the error passes through). No other writer runs meanwhile. ``work`` may be
        run more than once, only the last run counts. The store handed to it must not be used after it."""
        ...


def items_of(
    store: Store, table: Table, partition: str, *, start: str = "", page: int = 200, consistent: bool = True
) -> Iterator[tuple[str, Record]]:
    """The items of a partition from ``start`` on, read so many at a time, up to its end as it is when the last of them
    are read."""
    while True:
        items = store.scan(table, partition, start=start, limit=page, consistent=consistent)
        yield from items
        if len(items) < page:
            return
        start = items[-1][0] + "\x00"


def atomically(store: Store, work: Callable[[Store], T]) -> T:
    """Runs a protocol in one transaction where the store has them, call by call where not.

    ``work`` must be right without the transaction: it saves round trips and syncs, no more.
    """
    transact = getattr(store, "transact", None)
    result: T = work(store) if transact is None else transact(work)
    return result


def transactional(store: Store) -> bool:
    """Whether the store is ``Transactional``."""
    # Not isinstance: looking through the protocol costs 10 us each time.
    return hasattr(store, "transact")


class Blobs(Protocol):
    """Write-once objects (segments). Keys are ``/``-separated parts of ``[A-Za-z0-9._-]``, no part of dots alone.

    Any method may raise ``Unavailable``: every call may be repeated. ``StorageFull`` and the rest of ``Broken`` are
    final.
    """

    def put(self, key: str, data: bytes) -> None:
        """Stores the object durably, whole or not at all. Under a key that is used the first bytes stay: putting
        again has no effect and is no error, also with other bytes."""
        ...

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of that range; raises ``NotFound`` when there is no such object, ``Corrupt`` when
        it ends before the range does."""
        ...

    def list(self, prefix: str) -> list[str]:
        """All keys that begin with ``prefix``, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Removes the object; no error when there is none."""
        ...


class Clock(Protocol):
    def now_ms(self) -> int:
        """Unix time in milliseconds. Decides when to try, never who wins."""
        ...

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def token(self) -> bytes:
        """16 random bytes."""
        ...

    def unique(self, now_ms: int) -> str:
        """A unique name (28 lower-case hex digits: 48 bits of time, 64 random) that sorts by time."""
        ...

    def jitter(self) -> float:
        """Uniform in [0, 1)."""
        ...


class Wakeups(Protocol):
    """Wakes pulls that wait for messages."""

    def announce(self, subject: str, group: str | None = None) -> None:
        """There is something new for one group of the subject, or for all of them."""
        ...

    def mark(self, subject: str) -> int:
        """A number that changes with each announcement for the subject."""
        ...

    def wait(self, subject: str, group: str, *, mark: int, tries: int, seconds: float) -> bool:
        """Returns when something may have arrived since ``mark`` was taken, at the latest after ``seconds``;
        ``tries`` counts the waits of one pull, from 0. False: it will not wait (shutting down, or
        too many waiters): answer now. Each return is only a hint."""
        ...


class Timers(Protocol):
    """Starts the wheels of buckets."""

    def at(self, when_ms: int, bucket: str) -> None:
        """Has the wheel of the bucket started at that time, give or take 5 s, or up to a minute later; within a second
        or two where it has passed: at least once. Asked again for the same time and bucket it may do nothing. May raise
        ``Unavailable``.
        """
        ...


class Pushes(Protocol):
    """Starts pushing for groups that have a target."""

    def start(self, subject: str, group: str) -> None:
        """Has somebody push for the group within a second or two, at least once; returns at once. May raise
        ``Unavailable``."""
        ...


class NoPushes:
    """``Pushes`` where nothing is pushed, or somebody else sees to it."""

    def start(self, subject: str, group: str) -> None:
        pass


class StoredStream(Protocol):
    """The stream of what is stored, which wakes those who push. Reading it costs an invocation for each batch of rows,
    so it is read only while some group has a target."""

    def listen(self, wanted: bool) -> None:
        """Has the stream read within a minute or two, or no longer. Idempotent: a change that is under way, or was
        asked for by somebody else, may win; whoever cares asks again. May raise ``Unavailable``."""
        ...


class NoStream:
    """``StoredStream`` where there is none, or somebody else sees to it."""

    def listen(self, wanted: bool) -> None:
        pass


MeterUnit = Literal["Count", "Milliseconds", "Seconds", "Bytes"]


class Meter(Protocol):
    """Metrics for those who operate a deployment."""

    def record(self, name: str, value: float, *, unit: MeterUnit = "Count") -> None:
        """Adds to a count, or keeps one more value of something else. Never fails; cheap enough for every call."""
        ...
