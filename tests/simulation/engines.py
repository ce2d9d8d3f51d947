"""Runs real adapters under the scheduler: each call goes to the simulated store and to the adapter, and both must
agree.

The simulated store decides: it reports changes to the audit, and answers reads that are out of date. The adapter
carries out each call as well. Faults happen on the way to both, and within transactions.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from moto import mock_aws

from hourwheel.adapters.aws.dynamodb import DynamoStore, client, create_tables
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.errors import Sealed
from hourwheel.ports.storage import Counter, Key, Record, Refused, Store, Table
from tests.simulation.state import Partition, State, Wanted
from tests.simulation.world import Verb, Violation

T = TypeVar("T")

_PREFIX = "simulated"
_OF_ANOTHER_CELL = re.compile(r"(?:^|[@/])c\d+:")


def _at_home(name: str) -> bool:
    """Returns whether the log, or the record of one, is in the home cell: the adapter holds that cell alone, and the
    simulated state holds the others as well."""
    return not _OF_ANOTHER_CELL.search(name)


class Mirror(State):
    """The simulated store and an adapter with the same contents."""

    def __init__(self, state: State, adapter: Any, *, removes: bool) -> None:
        self._state = state
        self._adapter = adapter
        self._removes = removes

    def transact(self, work: Callable[[State], T]) -> T:
        """Carries out one transaction in both, or rolls it back in both."""

        def in_both(state: State) -> T:
            def run(session: Store) -> T:
                return work(Mirror(state, session, removes=self._removes))

            result: T = self._adapter.transact(run)
            return result

        return self._state.transact(in_both)

    def add(self, counter: str, rows: int, numbers: int) -> Counter:
        return self._both(
            f"add to {counter}",
            lambda: self._state.add(counter, rows, numbers),
            lambda: self._adapter.add(counter, rows=rows, numbers=numbers),
        )

    def begin(self, counter: str, numbers: int) -> Counter:
        return self._both(
            f"begin {counter}",
            lambda: self._state.begin(counter, numbers),
            lambda: self._adapter.begin(counter, numbers=numbers),
        )

    def seal(self, counter: str) -> Counter:
        return self._both(f"seal {counter}", lambda: self._state.seal(counter), lambda: self._adapter.seal(counter))

    def counter(self, counter: str) -> Counter:
        return self._both(
            f"counter {counter}", lambda: self._state.counter(counter), lambda: self._adapter.counter(counter)
        )

    def counters(self, ago: Mapping[str, int]) -> dict[str, Counter]:
        self._both(
            f"counters {list(ago)}",
            lambda: self._state.counters(dict.fromkeys(ago, 0)),
            lambda: self._adapter.counters(list(ago)),
        )
        return self._state.counters(ago)

    def partition(self, table: Table, name: str) -> Partition:
        return self._state.partition(table, name)

    def get(self, key: Key, changes: int, consistent: bool) -> Record | None:
        self._both(
            f"get {key}",
            lambda: self._state.get(key, 0, consistent),
            lambda: self._adapter.get(key, consistent=consistent),
        )
        return self._state.get(key, changes, consistent)

    def get_many(self, table: Table, name: str, ago: Mapping[str, int], consistent: bool) -> dict[str, Record]:
        self._both(
            f"get {list(ago)} of {name}",
            lambda: self._state.get_many(table, name, dict.fromkeys(ago, 0), consistent),
            lambda: self._adapter.get_many(table, name, list(ago), consistent=consistent),
        )
        return self._state.get_many(table, name, ago, consistent)

    def get_keys(self, ago: Mapping[Key, int], consistent: bool) -> dict[Key, Record]:
        self._both(
            f"get {list(ago)}",
            lambda: self._state.get_keys(dict.fromkeys(ago, 0), consistent),
            lambda: self._adapter.get_keys(list(ago), consistent=consistent),
        )
        return self._state.get_keys(ago, consistent)

    def scan(self, table: Table, name: str, wanted: Wanted, changes: int) -> list[tuple[str, Record]]:
        self._both(
            f"scan {name} from {wanted.start}",
            lambda: self._state.scan(table, name, wanted, 0),
            lambda: self._adapter.scan(table, name, **wanted._asdict()),
        )
        return self._state.scan(table, name, wanted, changes)

    def put(self, verb: Verb, key: Key, record: Record, expect: bytes | None) -> Refused | None:
        return self._both(
            f"put {key}",
            lambda: self._state.put(verb, key, record, expect),
            lambda: self._adapter.put(key, record, expect=expect),
        )

    def delete(self, key: Key, expect: bytes) -> Refused | None:
        return self._both(
            f"delete {key}",
            lambda: self._state.delete(key, expect),
            lambda: self._adapter.delete(key, expect=expect),
        )

    def trim(self, table: Table, name: str, below: str) -> None:
        self._state.trim(table, name, below)
        self._adapter.trim(table, name, below=below)

    def collect(self, table: Table, now_ms: int) -> None:
        if self._removes:
            self._state.collect(table, now_ms)
        self._adapter.collect(table, now_ms)

    def compare(self) -> None:
        """Raises a violation if the contents of the two differ."""
        for (table, name), partition in self._state.partitions():
            if not _at_home(name):
                continue
            simulated = [entry for entry in partition.scan("", len(partition.order), False) if _at_home(entry[0])]
            held = self._adapter.scan(table, name, limit=len(partition.order) + 1)
            if held != simulated:
                raise Violation("store", f"{table} {name}: the adapter holds {[sort for sort, _ in held]} at the end")
        totals = {name: counter for name, counter in self._state.totals().items() if _at_home(name)}
        if totals and (counted := {name: self._adapter.counter(name) for name in totals}) != totals:
            raise Violation("store", f"the adapter has counted {counted} instead of {totals}")

    def _both(self, what: str, simulated: Callable[[], T], real: Callable[[], T]) -> T:
        # The adapter first: a change that the simulated store reports to its watcher has happened in both.
        answer, expected = _outcome(real), _outcome(simulated)
        if isinstance(expected, Sealed) and isinstance(answer, Sealed):
            raise expected
        if isinstance(answer, Exception) or answer != expected:
            raise Violation("store", f"{what}: the adapter answers {answer!r}, expected is {expected!r}")
        return answer


def _outcome(ask: Callable[[], T]) -> T | Sealed:
    try:
        return ask()
    except Sealed as error:
        return error


@dataclass
class Engine(ABC):
    """Opens the adapter for each process of one run."""

    @abstractmethod
    def connect(self, name: str, state: State) -> Mirror:
        """Opens a store for the process of this name, and closes its former one."""


@dataclass
class SqliteEngine(Engine):
    """One file with a store for each process, as for several servers on one directory. A run has no power failure, so
    nothing is synced."""

    path: Path
    opened: dict[str, SqliteStore] = field(default_factory=dict)

    def connect(self, name: str, state: State) -> Mirror:
        if name in self.opened:
            self.opened.pop(name).close()
        self.opened[name] = store = SqliteStore(self.path, synchronous="NORMAL")
        state.on_expiry = partial(self._expire, store)
        return Mirror(state, store, removes=True)

    def _expire(self, store: SqliteStore, key: Key) -> None:
        """Removes what TTL has removed from the simulated store. SQLite itself removes rows of single tables alone."""
        record = store.get(key)
        if record is not None:
            store.delete(key, expect=record.token)

    def close(self) -> None:
        for store in self.opened.values():
            store.close()


@dataclass
class DynamoEngine(Engine):
    """Tables in this process. TTL removes the items that it has removed from the simulated store."""

    client: Any

    def connect(self, name: str, state: State) -> Mirror:
        state.on_expiry = self._expire
        return Mirror(state, DynamoStore(self.client, prefix=_PREFIX), removes=False)

    def _expire(self, key: Key) -> None:
        where = {"pk": {"S": key.partition}, "sk": {"S": key.sort}}
        self.client.delete_item(TableName=f"{_PREFIX}-{key.table}", Key=where)


@contextmanager
def opened_engine(kind: str) -> Iterator[Engine | None]:
    """Opens an empty engine of the kind that a plan names, if it names one."""
    if kind == "sqlite":
        with TemporaryDirectory(prefix="hourwheel-simulation-") as folder:
            engine = SqliteEngine(Path(folder) / "store.db")
            try:
                yield engine
            finally:
                engine.close()
    elif kind == "dynamodb":
        with mock_aws():
            opened = _client()
            create_tables(opened, _PREFIX)
            yield DynamoEngine(opened)
    else:
        yield None


@cache
def _client() -> Any:
    return client(region="us-east-1")
