"""The exact state of the simulated store: its counters and items, and what each of them was before."""

from bisect import bisect_left, insort
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from hourwheel.adapters.limits import check_value
from hourwheel.errors import Sealed
from hourwheel.ports.storage import Counter, Key, Record, Refused, Table
from tests.simulation.world import Verb

T = TypeVar("T")


class Watcher(Protocol):
    """Receives every change once it is certain."""

    def stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None: ...

    def removed(self, key: Key, record: Record) -> None: ...


class Partition:
    """The items of a partition in the order of ``sort``, and the former item of each change."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.items: dict[str, Record] = {}
        self.changes: list[tuple[str, Record | None]] = []

    def set(self, sort: str, record: Record | None) -> None:
        before = self.items.get(sort)
        self.changes.append((sort, before))
        if record is None:
            del self.items[sort]
            del self.order[bisect_left(self.order, sort)]
            return
        if before is None:
            insort(self.order, sort)
        self.items[sort] = record

    def take_back(self) -> None:
        """Undoes the last change, which no later read may show, not even a stale one."""
        sort, before = self.changes[-1]
        self.set(sort, before)
        del self.changes[-2:]

    def earlier(self, changes: int) -> "Partition":
        """Returns the partition as it was this many changes ago."""
        past = Partition()
        past.items = dict(self.items)
        for sort, before in self.changes[: -changes - 1 : -1]:
            if before is None:
                past.items.pop(sort, None)
            else:
                past.items[sort] = before
        past.order = sorted(past.items)
        return past

    def scan(self, start: str, limit: int, reverse: bool) -> list[tuple[str, Record]]:
        first, end = bisect_left(self.order, start), len(self.order)
        wanted = self.order[max(first, end - limit) : end][::-1] if reverse else self.order[first : first + limit]
        return [(sort, self.items[sort]) for sort in wanted]


class Wanted(NamedTuple):
    """The part of a partition that a scan requests."""

    start: str
    limit: int
    reverse: bool
    consistent: bool


class State:
    """Counters and partitions. Reports the changes within ``transact`` to the watcher when it ends."""

    def __init__(self, watcher: Watcher, *, trims: bool) -> None:
        self._watcher = watcher
        self._trims = trims
        self.on_expiry: Callable[[Key], None] | None = None
        """Called with each item that TTL has removed."""
        self._counters: dict[str, list[Counter]] = {}
        self._partitions: dict[tuple[Table, str], Partition] = {}
        self._undo: list[Callable[[], None]] | None = None
        self._told: list[Callable[[], None]] = []

    def transact(self, work: Callable[["State"], T]) -> T:
        """Applies all changes of the work, or none if it raises."""
        self._undo = []
        try:
            result = work(self)
        except BaseException:
            self._roll_back()
            raise
        told, self._told, self._undo = self._told, [], None
        for tell in told:
            tell()
        return result

    def _roll_back(self) -> None:
        for take_back in reversed(self._undo or ()):
            take_back()
        self._told, self._undo = [], None

    def add(self, counter: str, rows: int, numbers: int) -> Counter:
        before = self.counter(counter)
        if before.sealed:
            raise Sealed(counter)
        return self._count(counter, Counter(before.rows + rows, before.numbers + numbers))

    def begin(self, counter: str, numbers: int) -> Counter:
        before = self.counter(counter)
        return self._count(counter, Counter(0, numbers)) if before == Counter(0, 0) else before

    def seal(self, counter: str) -> Counter:
        return self._count(counter, self.counter(counter)._replace(sealed=True))

    def counter(self, counter: str) -> Counter:
        return self.earlier(counter, 0)

    def totals(self) -> dict[str, Counter]:
        """Returns all counters that were ever changed."""
        return {counter: had[-1] for counter, had in self._counters.items() if had}

    def earlier(self, counter: str, changes: int) -> Counter:
        """Returns the totals as they were this many changes ago."""
        had = self._counters.get(counter, ())
        return had[-1 - changes] if len(had) > changes else Counter(0, 0)

    def partition(self, table: Table, name: str) -> Partition:
        found = self._partitions.get((table, name))
        if found is None:
            found = self._partitions[(table, name)] = Partition()
        return found

    def counters(self, ago: Mapping[str, int]) -> dict[str, Counter]:
        """Returns the totals of each counter as they were this many changes ago."""
        return {counter: self.earlier(counter, changes) for counter, changes in ago.items()}

    def get(self, key: Key, changes: int, consistent: bool) -> Record | None:
        return self._past(key.table, key.partition, changes).items.get(key.sort)

    def get_many(self, table: Table, name: str, ago: Mapping[str, int], consistent: bool) -> dict[str, Record]:
        """Reads each item as it was this many changes ago: some may be out of date, others not."""
        found = {sort: self._past(table, name, changes).items.get(sort) for sort, changes in ago.items()}
        return {sort: record for sort, record in found.items() if record is not None}

    def get_keys(self, ago: Mapping[Key, int], consistent: bool) -> dict[Key, Record]:
        """Reads each item as it was this many changes of its partition ago."""
        found = {key: self.get(key, changes, consistent) for key, changes in ago.items()}
        return {key: record for key, record in found.items() if record is not None}

    def scan(self, table: Table, name: str, wanted: Wanted, changes: int) -> list[tuple[str, Record]]:
        return self._past(table, name, changes).scan(wanted.start, wanted.limit, wanted.reverse)

    def _past(self, table: Table, name: str, changes: int) -> Partition:
        partition = self.partition(table, name)
        return partition.earlier(changes) if changes else partition

    def partitions(self) -> list[tuple[tuple[Table, str], Partition]]:
        """Returns all partitions that were ever read or written."""
        return list(self._partitions.items())

    def put(self, verb: Verb, key: Key, record: Record, expect: bytes | None) -> Refused | None:
        check_value(record)
        current = self.partition(key.table, key.partition).items.get(key.sort)
        if (current.token if current else None) != expect:
            return Refused(current)
        self.set(key, record)
        self._tell(lambda: self._watcher.stored(verb, key, current, record))
        return None

    def delete(self, key: Key, expect: bytes) -> Refused | None:
        current = self.partition(key.table, key.partition).items.get(key.sort)
        if current is None or current.token != expect:
            return Refused(current)
        self.remove(key, current)
        return None

    def trim(self, table: Table, name: str, below: str) -> None:
        if self._trims:
            partition = self.partition(table, name)
            for sort in partition.order[: bisect_left(partition.order, below)]:
                self.remove(Key(table, name, sort), partition.items[sort])

    def expired(self, now_ms: int) -> list[tuple[Key, Record]]:
        """Returns all items that the store may remove by now."""
        return [
            (Key(table, name, sort), partition.items[sort])
            for (table, name), partition in self._partitions.items()
            for sort in partition.order
            if (partition.items[sort].expires_ms or now_ms + 1) <= now_ms
        ]

    def collect(self, table: Table, now_ms: int) -> None:
        for key, record in self.expired(now_ms):
            if key.table == table:
                self.remove(key, record)

    def expire(self, now_ms: int, share: float, rng: Random) -> list[Key]:
        """Removes a random share of the items that the store may remove by now, in random order, as TTL does."""
        expired = self.expired(now_ms)
        rng.shuffle(expired)
        removed = [(key, record) for key, record in expired if rng.random() < share]
        for key, record in removed:
            self.remove(key, record)
            if self.on_expiry is not None:
                self.on_expiry(key)
        return [key for key, _ in removed]

    def remove(self, key: Key, record: Record) -> None:
        self.set(key, None)
        self._tell(lambda: self._watcher.removed(key, record))

    def set(self, key: Key, record: Record | None) -> None:
        """Changes an item unseen by the watcher."""
        partition = self.partition(key.table, key.partition)
        partition.set(key.sort, record)
        if self._undo is not None:
            self._undo.append(partition.take_back)

    def _tell(self, tell: Callable[[], None]) -> None:
        if self._undo is None:
            tell()
        else:
            self._told.append(tell)

    def _count(self, counter: str, after: Counter) -> Counter:
        had = self._counters.setdefault(counter, [])
        had.append(after)
        if self._undo is not None:
            self._undo.append(lambda: had.pop())
        return after
