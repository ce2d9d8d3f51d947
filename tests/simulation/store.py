"""The simulated store: exact state, an imperfect way to it.

``State`` is what is stored. It tells its watcher of every change. ``SimulatedStore`` is one
actor's connection: calls may be refused, their answers lost or their effects late, and the
actor may crash or be paused before or after each of them.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from hourwheel.adapters.limits import check_value
from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.errors import NotFound, OutcomeUnknown, Sealed, Throttled
from hourwheel.logs.rows import SCHEDULES
from hourwheel.ports import Counter, Key, Record, Refused, Store, Table
from tests.simulation.world import Crashed, Process, Verb, World

T = TypeVar("T")

_STALE_CHANGES = 6


class Watcher(Protocol):
    """Learns of every change once it is certain."""

    def stored(self, verb: Verb, key: Key, before: Record | None, record: Record) -> None: ...

    def removed(self, key: Key, record: Record) -> None: ...


class Partition:
    """Items in order of ``sort``, and what each change replaced."""

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

    def earlier(self, changes: int) -> "Partition":
        """The partition as it was that many changes ago."""
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


class State:
    """Counters and partitions. Changes inside ``begin`` and ``commit`` are told at the commit."""

    def __init__(self, watcher: Watcher, *, trims: bool) -> None:
        self._watcher = watcher
        self._trims = trims
        self._counters: dict[str, list[Counter]] = {}
        self._partitions: dict[tuple[Table, str], Partition] = {}
        self._undo: list[Callable[[], None]] | None = None
        self._told: list[Callable[[], None]] = []

    def begin(self) -> None:
        self._undo = []

    def commit(self) -> None:
        told, self._told, self._undo = self._told, [], None
        for tell in told:
            tell()

    def rollback(self) -> None:
        for take_back in reversed(self._undo or ()):
            take_back()
        self._told, self._undo = [], None

    def add(self, counter: str, rows: int, numbers: int) -> Counter:
        before = self.counter(counter)
        if before.sealed:
            raise Sealed(counter)
        return self._count(counter, Counter(before.rows + rows, before.numbers + numbers))

    def seal(self, counter: str) -> Counter:
        return self._count(counter, self.counter(counter)._replace(sealed=True))

    def counter(self, counter: str) -> Counter:
        return self.earlier(counter, 0)

    def earlier(self, counter: str, changes: int) -> Counter:
        """The totals as they were that many changes ago."""
        had = self._counters.get(counter, ())
        return had[-1 - changes] if len(had) > changes else Counter(0, 0)

    def partition(self, table: Table, name: str) -> Partition:
        found = self._partitions.get((table, name))
        if found is None:
            found = self._partitions[(table, name)] = Partition()
        return found

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
        """All items that the store may remove by now."""
        return [
            (Key(table, name, sort), partition.items[sort])
            for (table, name), partition in self._partitions.items()
            for sort in partition.order
            if (partition.items[sort].expires_ms or now_ms + 1) <= now_ms
        ]

    def remove(self, key: Key, record: Record) -> None:
        self.set(key, None)
        self._tell(lambda: self._watcher.removed(key, record))

    def set(self, key: Key, record: Record | None) -> None:
        """Changes an item unseen by the watcher."""
        partition = self.partition(key.table, key.partition)
        before = partition.items.get(key.sort)
        partition.set(key.sort, record)
        if self._undo is not None:
            self._undo.append(lambda: partition.set(key.sort, before))

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


class Connection:
    """The way of one actor to anything outside of it, with all that can go wrong on it."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @property
    def world(self) -> World:
        return self.process.world

    def call(self, name: str, about: object, effect: Callable[[], T]) -> T:
        """Carries out a call, or not, and says so, or not."""
        world, process, faults = self.world, self.process, self.world.faults
        world.step(process)
        if process.watch is not None and not process.atomic:
            process.watch(name, about)
        roll = 2.0 if process.atomic else world.rng.random()
        if roll < (edge := faults.crash):
            if world.rng.random() < 0.5:
                self._effect(name, about, effect)
            world.note(process.name, name, about, "crash")
            raise Crashed
        if roll < (edge := edge + faults.throttle):
            world.note(process.name, name, about, "throttled")
            raise Throttled("simulated")
        if roll < (edge := edge + faults.late):
            verb = process.verb
            world.note(process.name, name, about, "late")
            world.later(1 + int(world.rng.random() * 3_000), lambda: self._late(verb, name, about, effect))
            raise OutcomeUnknown("simulated: still under way")
        if roll < (edge := edge + faults.lose):
            self._effect(name, about, effect)
            world.note(process.name, name, about, "answer lost")
            raise OutcomeUnknown("simulated: answer lost")
        if roll < edge + faults.pause:
            if world.rng.random() < 0.5:
                self._pause(name, about)
                return self._effect(name, about, effect)
            result = self._effect(name, about, effect)
            self._pause(name, about)
            return result
        return self._effect(name, about, effect)

    def _effect(self, name: str, about: object, effect: Callable[[], T]) -> T:
        result = effect()
        self.world.note(self.process.name, name, about, result)
        return result

    def _late(self, verb: Verb, name: str, about: object, effect: Callable[[], Any]) -> None:
        process = self.process
        current, process.verb = process.verb, verb
        try:
            self.world.note(process.name, name, about, "lands now", effect())
        except (Sealed, NotFound):
            pass
        finally:
            process.verb = current

    def _pause(self, name: str, about: object) -> None:
        world = self.world
        longest = 90_000 if world.plan.long_pauses and world.rng.random() < 0.3 else 8_000
        ms = int(world.rng.random() * longest)
        world.note(self.process.name, name, about, "pause", ms)
        world.sleep(self.process, ms)


class SimulatedStore(Connection):
    """``Store``: every call is a step of its own."""

    def __init__(self, process: Process, state: State) -> None:
        super().__init__(process)
        self.state = state

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        return self.call("add", counter, lambda: self.state.add(counter, rows, numbers))

    def seal(self, counter: str) -> Counter:
        return self.call("seal", counter, lambda: self.state.seal(counter))

    def counter(self, counter: str) -> Counter:
        return self.call("counter", counter, lambda: self.state.counter(counter))

    def counters(self, counters: Sequence[str]) -> dict[str, Counter]:
        def read() -> dict[str, Counter]:
            return {counter: self.state.earlier(counter, self._changes_ago()) for counter in counters}

        return self.call("counters", tuple(counters), read)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        return self.call("get", key, lambda: self._seen(key.table, key.partition, consistent).items.get(key.sort))

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        def read() -> dict[str, Record]:
            # Each by itself: some may be out of date, others not.
            found = {sort: self._seen(table, partition, consistent).items.get(sort) for sort in sorts}
            return {sort: record for sort, record in found.items() if record is not None}

        return self.call("get many", (partition, *sorts), read)

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        # The verb at the time of the effect: a late one belongs to the verb that asked for it.
        if key.table is Table.SCHEDULE:
            self._show(key.partition, [key.sort])
        return self.call("put", key, lambda: self.state.put(self.process.verb, key, record, expect))

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        return self.call("delete", key, lambda: self.state.delete(key, expect))

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
        def scan(start: str, limit: int) -> list[tuple[str, Record]]:
            return self.call(
                "scan",
                (table, partition, start),
                lambda: self._seen(table, partition, consistent).scan(start, limit, reverse),
            )

        torn = limit > 1 and not reverse and not self.process.atomic
        if torn and self.world.faults.torn and self.world.rng.random() < self.world.faults.torn:
            first = self.world.rng.randint(1, min(limit - 1, 4))
            found = scan(start, first)
            if len(found) == first:
                found += scan(found[-1][0] + "\x00", limit - first)
        else:
            found = scan(start, limit)
        if table is Table.SCHEDULE:
            self._show(partition, [sort for sort, _ in found])
        return found

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        self.call("trim", (table, partition, below), lambda: self.state.trim(table, partition, below))

    def collect(self, table: Table, now_ms: int) -> None:
        def effect() -> None:
            for key, record in self.state.expired(now_ms):
                if key.table == table:
                    self.state.remove(key, record)

        self.call("collect", table, effect)

    def _show(self, partition: str, sorts: Iterable[str]) -> None:
        """Notes what the verb gets to know of a schedule log."""
        if partition.startswith(SCHEDULES):
            self.process.verb.seen.setdefault(partition, set()).update(map(int, sorts))

    def _seen(self, table: Table, name: str, consistent: bool) -> Partition:
        partition = self.state.partition(table, name)
        changes = 0 if consistent else self._changes_ago()
        return partition.earlier(changes) if changes else partition

    def _changes_ago(self) -> int:
        """How many changes a read that may be out of date has not seen."""
        rng = self.world.rng
        return 1 + int(rng.random() * _STALE_CHANGES) if rng.random() < self.world.faults.stale else 0


class TransactionalStore(SimulatedStore):
    """``Store`` and ``Transactional``: as an engine in the process, whose calls inside a transaction cannot fail."""

    def transact(self, work: Callable[[Store], T]) -> T:
        if self.process.atomic:
            raise RuntimeError("inside transact, use the store that it hands over")

        def effect() -> T:
            self.process.atomic = True
            self.state.begin()
            try:
                if self.world.faults.rerun and self.world.rng.random() < self.world.faults.rerun:
                    # What the first run did counts for nothing.
                    work(_Inside(self.process, self.state))
                    self.state.rollback()
                    self.state.begin()
                result = work(_Inside(self.process, self.state))
            except BaseException:
                self.state.rollback()
                raise
            finally:
                self.process.atomic = False
            self.state.commit()
            return result

        return self.call("transact", "", effect)

    def call(self, name: str, about: object, effect: Callable[[], T]) -> T:
        if self.process.atomic:
            raise RuntimeError("inside transact, use the store that it hands over")
        return super().call(name, about, effect)


class _Inside(SimulatedStore):
    """The store that a transaction hands over."""


class SimulatedBlobs(Connection):
    """``Blobs`` over one dictionary."""

    def __init__(self, process: Process, blobs: MemoryBlobs) -> None:
        super().__init__(process)
        self._blobs = blobs

    def put(self, key: str, data: bytes) -> None:
        self.call("blob put", key, lambda: self._blobs.put(key, data))

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self.call("blob get", key, lambda: self._blobs.get(key, offset=offset, length=length))

    def list(self, prefix: str) -> list[str]:
        return self.call("blob list", prefix, lambda: self._blobs.list(prefix))

    def delete(self, key: str) -> None:
        self.call("blob delete", key, lambda: self._blobs.delete(key))
