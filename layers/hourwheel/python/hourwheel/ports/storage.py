"""Defines what the library needs of its stores: items and counters, objects, the storage of other cells, space."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from hourwheel.model.route_records import CellKind

T = TypeVar("T")


MAX_VALUE_BYTES = 350 * 1024
"""The largest value that every store takes (DynamoDB: 400 KB an item, names and keys included)."""

GET_MANY = 100
"""At most this many items, or counters, can be read by their names in one call (the limit of DynamoDB)."""


REMOVE_MANY = 25
"""At most this many items can be removed by their names in one call (the limit of DynamoDB)."""


class Table(StrEnum):
    """The tables: each is a table of DynamoDB and of SQLite. Counters have a table of their own."""

    META = "meta"  # small records: subjects, groups, leases, checkpoints, watermarks
    CONSUME = "consume"  # rows of the logs of queues, retries and dead letters
    PULL = "pull"  # pull rows, and the states of dead letters
    KEYS = "keys"  # idempotency keys
    SCHEDULE = "schedule"  # rows of schedule logs, and requested changes of delayed messages
    DISPATCH = "dispatch"  # dispatch rows


class Key(NamedTuple):
    """``partition`` and ``sort`` are non-empty and at most 900 bytes of UTF-8 together.
    Items of a partition are ordered by the UTF-8 bytes of ``sort``."""

    table: Table
    partition: str
    sort: str


class Record(msgspec.Struct, frozen=True):
    """The content of a key.

    ``token`` (16 bytes) is new for every write and names the write: a writer whose answer was lost recognises its own
    effect by the token. ``expires_ms`` (Unix milliseconds) allows the store to remove the item at any later time, days
    late or never: it serves garbage collection only, and no logic relies on it.
    """

    value: bytes
    token: bytes
    expires_ms: int | None = None


class Refused(NamedTuple):
    """The answer of a conditional write whose condition did not hold. ``current`` is the content of the key at that
    moment (None: the key is empty)."""

    current: Record | None


class Counter(NamedTuple):
    """The totals of a counter: the ``rows`` and the ``numbers`` that it gave out. A new counter has zeros."""

    rows: int
    numbers: int
    sealed: bool = False


class Store(Protocol):
    """Stores keys in order, and writes them conditionally.

    Every write is atomic, and durable once the call returns. Writes of one key are linearizable. Any method may raise
    ``Throttled`` (the call certainly had no effect) or ``OutcomeUnknown`` (the call may have had its effect): the
    caller repeats the call and recognises its own effect by the token. ``StorageFull`` and ``Corrupt`` are final. A
    value over ``MAX_VALUE_BYTES`` raises ``ValueError``, and nothing is stored.
    """

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        """Adds to both totals in one step and returns the new totals. One write.

        Raises ``Sealed``, without effect, once the counter is sealed. Not idempotent: a repetition after a lost answer
        adds again, so an adapter never repeats the call by itself.
        """
        ...

    def begin(self, counter: str, *, numbers: int) -> Counter:
        """Gives a new counter these ``numbers`` and no rows, and returns its totals. A counter to which something was
        added, that was begun before or is sealed stays as it is. Idempotent. One write."""
        ...

    def seal(self, counter: str) -> Counter:
        """Seals the counter for ever and returns its final totals. Idempotent. One write."""
        ...

    def counter(self, counter: str) -> Counter:
        """Returns the totals, strongly consistent; zeros for a counter to which nothing was added."""
        ...

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        """Returns the totals of up to ``GET_MANY`` counters, each named once; zeros for a counter to which nothing was
        added. Each counter is read by itself, and its totals may be out of date: they are totals that the counter had
        at some time. One request, at half the price of ``counter`` for each counter. With ``consistent`` each is read
        as by ``counter``, at its price."""
        ...

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        """Returns the content of the key, or None. With ``consistent=False`` it may be out of date and is cheaper."""
        ...

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        """Returns the items of the partition that exist among up to ``GET_MANY`` names, each named once. The items are
        not read at one moment: each is read as by ``get``."""
        ...

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        """Returns the items that exist among up to ``GET_MANY`` keys of one table, each named once, in any partitions.
        As ``get_many``, they are not read at one moment."""
        ...

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        """Stores the record if the key has the token ``expect``, or no record if ``expect`` is None.

        Returns None once the record is stored; else ``Refused`` with the content of the key, which is unchanged. One
        write, refused or not. A repetition after a success whose answer was lost returns ``Refused`` with the very
        record that the caller passed.
        """
        ...

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        """Removes the key if it has the token ``expect``; answers like ``put``."""
        ...

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        """Removes up to ``REMOVE_MANY`` items of the partition by their names, each named once, whatever their tokens:
        only for items that nobody writes any more. Each is removed by itself, and names without an item count as
        removed. One request, and one write for each item. Idempotent."""
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
        """Returns up to ``limit`` items of the partition in order of ``sort``: from ``start`` (included) upwards, or
        with ``reverse`` from the last item downwards (``start`` is then the lower bound, included). Returns fewer than
        ``limit`` only when there are no more. With ``consistent=False`` it may miss recent writes.
        """
        ...

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        """Allows the removal of the partition's items with ``sort < below``. The store removes them at once or, where
        the engine removes expired items by itself, at their ``expires_ms``."""
        ...

    def collect(self, table: Table, now_ms: int) -> None:
        """Removes items of the table whose ``expires_ms`` has passed, where the engine does not remove them by itself.
        The work of one call is bounded: some items may stay for the next call."""
        ...


class Transactional(Protocol):
    """Runs several calls of a store as one atomic, durable step (SQLite, memory)."""

    def transact(self, work: Callable[[Store], T]) -> T:
        """Runs ``work`` with a store whose calls take effect together when ``work`` returns, or not at all when
        ``work`` raises (the error passes through). No other writer runs meanwhile. ``work`` may run more than once;
        only the last run counts. ``work`` must not keep the store that it receives. See also ``transaction_of``."""
        ...


def items_of(
    store: Store, table: Table, partition: str, *, start: str = "", page: int = 200, consistent: bool = True
) -> Iterator[tuple[str, Record]]:
    """Yields the items of a partition from ``start`` on, up to the end that the partition has when its last page is
    read. Reads ``page`` items at a time."""
    while True:
        items = store.scan(table, partition, start=start, limit=page, consistent=consistent)
        yield from items
        # Fewer than were asked for: the partition has no more (see ``Store.scan``).
        if len(items) < page:
            return
        start = items[-1][0] + "\x00"  # the next name that a key can have


def atomically(store: Store, work: Callable[[Store], T]) -> T:
    """Runs ``work`` in one transaction where the store has transactions, otherwise call by call; returns its result.

    ``work`` must be correct without the transaction, which only saves round trips and syncs.
    """
    transact = getattr(store, "transact", None)
    result: T = work(store) if transact is None else transact(work)
    return result


def transaction_of(store: Store) -> object | None:
    """Returns an object that stands for the transaction whose work received this store: several pieces of work that
    share a transaction get the same one, and no other transaction has it. None for a store that does not tell."""
    return getattr(store, "transaction", None)


def transactional(store: Store) -> bool:
    """Returns whether the store is ``Transactional``."""
    # Not isinstance: looking through the protocol costs 10 us each time.
    return hasattr(store, "transact")


class Blobs(Protocol):
    """Stores write-once objects, such as segments. Keys are ``/``-separated parts of ``[A-Za-z0-9._-]``, no part of
    dots alone.

    Any method may raise ``Unavailable``: every call may be repeated. ``StorageFull`` and the rest of ``Broken`` are
    final.
    """

    def put(self, key: str, data: bytes) -> None:
        """Stores the object durably, completely or not at all. A key keeps its first bytes: another ``put`` under a
        used key, also with other bytes, has no effect and is no error."""
        ...

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Returns the bytes of the range; raises ``NotFound`` when there is no such object, ``Corrupt`` when the object
        ends before the range does."""
        ...

    def list(self, prefix: str) -> list[str]:
        """Returns all keys that begin with ``prefix``, sorted."""
        ...

    def delete(self, key: str) -> None:
        """Removes the object; does nothing when there is none."""
        ...


class CellStorage(NamedTuple):
    """The storage of one cell."""

    store: Store
    blobs: Blobs


class Cells(Protocol):
    """Opens the storage of cells other than the home cell."""

    def storage(self, cell: str) -> CellStorage:
        """Returns the storage of the cell, opened once. Raises ``Unavailable`` for a cell that this process does not
        know or cannot open."""
        ...

    def location(self, cell: str) -> str | None:
        """Returns where the storage of the cell is, for operators; None for a cell that this process does not know."""
        ...

    def names(self) -> Sequence[str]:
        """Returns the names of the cells that this process can open."""
        ...

    def kinds(self, cell: str) -> tuple[CellKind, ...] | None:
        """Returns the kinds that the cell has unless its operator names others; None: all kinds."""
        ...

    def claim(self, cell: str, *, new: bool) -> None:
        """Marks the storage of the cell as this deployment's before it is added. Idempotent. ``new``: the cell has no
        messages. Raises ``Conflict`` where the storage belongs to another deployment or is that of another cell, and
        where it has no mark though the cell is not new; ``Unavailable`` where it cannot be opened."""
        ...

    def forget(self, cell: str) -> None:
        """Drops what is remembered of the cell's state."""
        ...


class VolumeSpace(NamedTuple):
    """A volume, with its free bytes and those of them that new messages may not take."""

    name: str
    free: int
    reserve: int


class Reserve(Protocol):
    """Keeps a reserve of space, in which queues are drained once new messages find none."""

    def volumes(self) -> Sequence[VolumeSpace]:
        """Returns the volumes that can be read; none where messages may take all there is."""
        ...

    def check(self, cell: str) -> None:
        """Raises ``StorageFull`` if new messages may take no more space of the home, which is "", and ``CellFull`` for
        another cell. Cheap: asked for each batch."""
        ...


class NoReserve:
    """Implements ``Reserve`` where messages may take all there is."""

    def volumes(self) -> Sequence[VolumeSpace]:
        return ()

    def check(self, cell: str) -> None:
        pass


class LakeFiles(Protocol):
    """Reads the files that the jobs of the pipeline leave in the lake."""

    @property
    def serves_report(self) -> bool:
        """Whether this process serves the report of the lake."""
        ...

    def read(self, path: str) -> bytes | None:
        """Returns the file at this path below the lake; None if there is none."""
        ...
