"""Simulates the store: an exact ``State``, behind connections that fail.

``SimulatedStore`` is one actor's connection: calls may be refused, their answers lost or their effects late, and the
actor may crash or be paused before or after each of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from hourwheel.errors import Broken, NotFound, OutcomeUnknown, Sealed, Throttled, Unavailable
from hourwheel.logs.rows import sort_of
from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table
from tests.simulation.state import State, Wanted
from tests.simulation.world import Crashed, Process, Verb, World

T = TypeVar("T")

_STALE_CHANGES = 6


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
