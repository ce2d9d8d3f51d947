"""Simulates the store: an exact state, behind connections that fail.

``State`` contains the stored items, and reports every change to its watcher. ``SimulatedStore`` is one
actor's connection: calls may be refused, their answers lost or their effects late, and the
actor may crash or be paused before or after each of them.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from hourwheel.adapters.limits import check_value
from hourwheel.errors import Broken, NotFound, OutcomeUnknown, Sealed, Throttled, Unavailable
from hourwheel.logs.rows import sort_of
from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table
from tests.simulation.world import Crashed, Process, Verb, World

T = TypeVar("T")

_STALE_CHANGES = 6


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


class Connection:
    """The connection of an actor to a service, with the faults that can happen on it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world: World = process.world

    def call(self, name: str, about: object, effect: Callable[[], T]) -> T:
        """Makes a call, with faults before, at and after its effect."""
        world, process, faults = self.world, self.process, self.world.faults
        world.step(process)
        if process.watch is not None and not process.atomic:
            process.watch(name, about)
        if faults.hot and name in ("add", "put") and _is_hot(about) and world.rng.random() < faults.hot:
            world.record(process.name, name, about, "refused: its partition has too many")
            raise Throttled("simulated: too many writes to a partition")
        roll = 2.0 if process.atomic else world.rng.random()
        if roll < (edge := faults.crash):
            if world.rng.random() < 0.5:
                self._effect(name, about, effect)
            world.record(process.name, name, about, "crash")
            raise Crashed
        if roll < (edge := edge + faults.throttle):
            world.record(process.name, name, about, "throttled")
            raise Throttled("simulated")
        if roll < (edge := edge + faults.late):
            verb = process.verb
            world.record(process.name, name, about, "late")
            world.later(1 + int(world.rng.random() * 3_000), lambda: self._late(verb, name, about, effect))
            raise OutcomeUnknown("simulated: still under way")
        if roll < (edge := edge + faults.lose):
            self._effect(name, about, effect)
            world.record(process.name, name, about, "answer lost")
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
        self.world.record(self.process.name, name, about, result)
        return result

    def _late(self, verb: Verb, name: str, about: object, effect: Callable[[], Any]) -> None:
        process = self.process
        current, process.verb = process.verb, verb
        try:
            self.world.record(process.name, name, about, "lands now", effect())
        except (Sealed, NotFound):
            pass
        finally:
            process.verb = current

    def _pause(self, name: str, about: object) -> None:
        world = self.world
        longest = world.plan.longest_pause_ms if world.plan.long_pauses and world.rng.random() < 0.3 else 8_000
        ms = int(world.rng.random() * longest)
        world.record(self.process.name, name, about, "pause", ms)
        world.sleep(self.process, ms)


def _is_hot(about: object) -> bool:
    """Returns whether a write goes to the first queue of subject s: to its counter, or to its rows."""
    name = about.partition if isinstance(about, Key) else str(about)
    return name.startswith("s~") and name.endswith("/0") and name.count("/") == 1


class SimulatedStore(Connection):
    """Implements ``Store``: each call is a step of its own."""

    def __init__(self, process: Process, state: State) -> None:
        super().__init__(process)
        self.state = state

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        return self.call("add", counter, lambda: self.state.add(counter, rows, numbers))

    def begin(self, counter: str, *, numbers: int) -> Counter:
        return self.call("begin", counter, lambda: self.state.begin(counter, numbers))

    def seal(self, counter: str) -> Counter:
        return self.call("seal", counter, lambda: self.state.seal(counter))

    def counter(self, counter: str) -> Counter:
        return self.call("counter", counter, lambda: self.state.counter(counter))

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        def read() -> dict[str, Counter]:
            return self.state.counters({counter: self._changes(consistent) for counter in counters})

        return self.call("counters", tuple(counters), read)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        return self.call("get", key, lambda: self.state.get(key, self._changes(consistent), consistent))

    def get_many(
        self, table: Table, partition: str, sorts: Sequence[str], *, consistent: bool = True
    ) -> dict[str, Record]:
        def read() -> dict[str, Record]:
            ago = {sort: self._changes(consistent) for sort in sorts}
            return self.state.get_many(table, partition, ago, consistent)

        return self.call("get many", (partition, *sorts), read)

    def get_keys(self, keys: Sequence[Key], *, consistent: bool = True) -> dict[Key, Record]:
        def read() -> dict[Key, Record]:
            return self.state.get_keys({key: self._changes(consistent) for key in keys}, consistent)

        return self.call("get keys", tuple(keys), read)

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        # A late effect belongs to the verb that requested it.
        if key.table is Table.SCHEDULE:
            self._show(key.partition, [key.sort])
        if key.table is not Table.PULL or not key.sort.isdigit():
            return self.call("put", key, lambda: self.state.put(self.process.verb, key, record, expect))
        with self._noting(key):
            return self.call("put", key, lambda: self.state.put(self.process.verb, key, record, expect))

    @contextmanager
    def _noting(self, key: Key) -> Iterator[None]:
        """Records that the verb does not know whether its claim is stored, while the last try has no answer."""
        row = (key.partition, key.sort)
        try:
            yield
            self.process.verb.learn(row)
        except (Unavailable, Broken):
            self.process.verb.unanswered.add(row)
            raise

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        return self.call("delete", key, lambda: self.state.delete(key, expect))

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        for sort in sorts:  # each by itself: some may be removed before the call fails
            key = Key(table, partition, sort)
            record = self.get(key)
            if record is not None:
                self.delete(key, expect=record.token)

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
            wanted = Wanted(start, limit, reverse, consistent)
            return self.call(
                "scan",
                (table, partition, start),
                lambda: self.state.scan(table, partition, wanted, self._changes(consistent)),
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
        self.call("collect", table, lambda: self.state.collect(table, now_ms))

    def _show(self, partition: str, sorts: Iterable[str]) -> None:
        """Records the rows of schedule logs that the verb has read."""
        if partition.startswith(SCHEDULE_PREFIX):
            self.process.verb.seen.setdefault(partition, set()).update(map(int, sorts))

    def _changes(self, consistent: bool) -> int:
        return 0 if consistent else self._changes_ago()

    def _changes_ago(self) -> int:
        """Returns the number of changes that a stale read misses."""
        rng = self.world.rng
        return 1 + int(rng.random() * _STALE_CHANGES) if rng.random() < self.world.faults.stale else 0


class TransactionalStore(SimulatedStore):
    """Implements ``Store`` and ``Transactional``, as an engine in the process: calls within a transaction cannot
    fail."""

    def transact(self, work: Callable[[Store], T]) -> T:
        if self.process.atomic:
            raise RuntimeError("inside transact, use the store that it hands over")
        claimed: list[tuple[str, str]] = []

        def effect() -> T:
            verb = self.process.verb
            before = len(verb.claims)
            result = self._committed(work)
            claimed.extend((partition, sort_of(row)) for partition, row in verb.claims[before:])
            # Unless the commit is answered, also one that comes late, the verb does not know of these claims.
            verb.unanswered.update(claimed)
            return result

        result = self.call("transact", "", effect)
        self.process.verb.unanswered.difference_update(claimed)
        return result

    def _committed(self, work: Callable[[Store], T]) -> T:
        self.process.atomic = True
        faults, rng = self.world.faults, self.world.rng
        try:
            if faults.rerun and rng.random() < faults.rerun:
                # The effects of the first run are undone.
                with suppress(_Undone):
                    self.state.transact(partial(self._run_in_vain, work))
            return self.state.transact(lambda state: work(_Inside(self.process, state)))
        finally:
            self.process.atomic = False

    def call(self, name: str, about: object, effect: Callable[[], T]) -> T:
        if self.process.atomic:
            raise RuntimeError("inside transact, use the store that it hands over")
        return super().call(name, about, effect)

    def _run_in_vain(self, work: Callable[[Store], T], state: State) -> None:
        work(_Inside(self.process, state))
        raise _Undone


class _Undone(Exception):
    """Raised to roll back a transaction whose work did not fail."""


class _Inside(SimulatedStore):
    """The store that a transaction passes to its work. The process may end between two calls."""

    transaction = property(lambda self: self)  # see ``transaction_of``: each transaction passes on a store of its own

    def call(self, name: str, about: object, effect: Callable[[], T]) -> T:
        if not self.process.atomic:
            raise RuntimeError(f"{name} {about} after the end of the transaction")
        abort = self.world.faults.abort
        if abort and self.world.rng.random() < abort:
            self.world.record(self.process.name, name, about, "crash within the transaction")
            raise Crashed
        return super().call(name, about, effect)
