"""Implements the store and the blobs in memory: for tests, and as the reference for the other adapters."""

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from typing import TypeVar

from hourwheel.adapters.limits import check_blob_key, check_range, check_value
from hourwheel.adapters.transacted import TransactedWrites
from hourwheel.errors import Corrupt, NotFound, Sealed
from hourwheel.locks import gives_back
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table

T = TypeVar("T")


class _Partition:
    """Items in order of ``sort``. Python compares strings by code point, which is the order of their UTF-8 bytes."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.items: dict[str, Record] = {}

    def set(self, sort: str, record: Record | None) -> None:
        if record is None:
            if self.items.pop(sort, None) is not None:
                del self.order[bisect_left(self.order, sort)]
            return
        if sort not in self.items:
            insort(self.order, sort)
        self.items[sort] = record


class _Rows:
    """The records and counters, without locks. ``undo`` has a call for each change of the transaction, in order, which
    reverts the change."""

    def __init__(self) -> None:
        self._counters: dict[str, Counter] = {}
        self._partitions: dict[tuple[Table, str], _Partition] = {}
        self.undo: list[Callable[[], None]] = []
        self.transaction: object | None = None

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        before = self.counter(counter)
        if before.sealed:
            raise Sealed(counter)
        return self._count(counter, Counter(before.rows + rows, before.numbers + numbers))

    def begin(self, counter: str, *, numbers: int) -> Counter:
        before = self.counter(counter)
        return self._count(counter, Counter(0, numbers)) if before == Counter(0, 0) else before

    def seal(self, counter: str) -> Counter:
        return self._count(counter, self.counter(counter)._replace(sealed=True))

    def counter(self, counter: str) -> Counter:
        return self._counters.get(counter, Counter(0, 0))

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        return {counter: self.counter(counter) for counter in counters}

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        return self._partition(key.table, key.partition).items.get(key.sort)

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        items = self._partition(table, partition).items
        return {sort: items[sort] for sort in sorts if sort in items}

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        records = ((key, self.get(key)) for key in keys)
        return {key: record for key, record in records if record is not None}

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        check_value(record)
        current = self.get(key)
        if (current and current.token) != expect:
            return Refused(current)
        self._set(key, record)
        return None

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        current = self.get(key)
        if current is None or current.token != expect:
            return Refused(current)
        self._set(key, None)
        return None

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        for sort in sorts:
            self._set(Key(table, partition, sort), None)

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
        stored = self._partition(table, partition)
        first = bisect_left(stored.order, start)
        end = len(stored.order)
        sorts = stored.order[max(first, end - limit) : end][::-1] if reverse else stored.order[first : first + limit]
        return [(sort, stored.items[sort]) for sort in sorts]

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        order = self._partition(table, partition).order
        for sort in order[: bisect_left(order, below)]:
            self._set(Key(table, partition, sort), None)

    def collect(self, table: Table, now_ms: int) -> None:
        for (kind, partition), stored in self._partitions.items():
            if kind != table:
                continue
            for sort, record in list(stored.items.items()):
                if record.expires_ms is not None and record.expires_ms <= now_ms:
                    self._set(Key(table, partition, sort), None)

    def _partition(self, table: Table, partition: str) -> _Partition:
        return self._partitions.setdefault((table, partition), _Partition())

    def _count(self, counter: str, after: Counter) -> Counter:
        before = self.counter(counter)
        self._counters[counter] = after
        self.undo.append(lambda: self._counters.update({counter: before}))
        return after

    def _set(self, key: Key, record: Record | None) -> None:
        partition = self._partition(key.table, key.partition)
        before = partition.items.get(key.sort)
        partition.set(key.sort, record)
        self.undo.append(lambda: partition.set(key.sort, before))


class MemoryStore(TransactedWrites):
    """Implements ``Store`` and ``Transactional`` in memory. Thread-safe: each call is a transaction of its own."""

    def __init__(self) -> None:
        self._rows = _Rows()
        self._lock = threading.RLock()
        self._inside = False

    @gives_back
    def transact(self, work: Callable[[Store], T]) -> T:
        with self._lock:
            # Refused, as the other adapters would wait for themselves here. The lock alone would let the thread in.
            if self._inside:
                raise RuntimeError("inside transact, use the store that it hands over")
            self._inside = True
            self._rows.transaction = object()
            try:
                return work(self._rows)
            except BaseException:
                # In reverse, so that a key that was changed twice gets its first value back.
                for revert in reversed(self._rows.undo):
                    revert()
                raise
            finally:
                self._rows.undo.clear()
                self._inside = False

    def counter(self, counter: str) -> Counter:
        return self.transact(lambda store: store.counter(counter))

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        return self.transact(lambda store: store.counters(counters))

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        return self.transact(lambda store: store.get(key))

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        return self.transact(lambda store: store.get_many(table, partition, sorts))

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        return self.transact(lambda store: store.get_keys(keys))

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
        return self.transact(lambda store: store.scan(table, partition, start=start, limit=limit, reverse=reverse))

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        self.transact(lambda store: store.trim(table, partition, below=below))

    def collect(self, table: Table, now_ms: int) -> None:
        self.transact(lambda store: store.collect(table, now_ms))


class MemoryBlobs:
    """Implements ``Blobs`` in a dictionary. Thread-safe: each call is one step of the dictionary."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def put(self, key: str, data: bytes) -> None:
        check_blob_key(key)
        self._objects.setdefault(key, bytes(data))

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        check_blob_key(key)
        check_range(offset, length)
        data = self._objects.get(key)
        if data is None:
            raise NotFound("blob-not-found", f"there is no object {key}")
        end = offset + length if length is not None else max(offset, len(data))
        if end > len(data):
            raise Corrupt(f"object {key} ends at {len(data)}, before {end}")
        return data[offset:end]

    def list(self, prefix: str) -> list[str]:
        return sorted(key for key in list(self._objects) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        check_blob_key(key)
        self._objects.pop(key, None)
