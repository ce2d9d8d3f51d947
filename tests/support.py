"""A cell in one process, with a clock that only moves when told to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.system import SystemIds
from hourwheel.cell import Cell
from hourwheel.context import Context, Settings
from hourwheel.model import Message, NewMessage, Placed, Pulled, PullRequest, Settlement
from hourwheel.ports import Blobs, Counter, Key, MeterUnit, Record, Refused, Store, Table

NOON_MS = 1_763_640_000_000


@dataclass
class HandClock:
    ms: int = NOON_MS

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.ms += round(seconds * 1_000)


@dataclass
class NoArrivals:
    """Nobody waits; what is announced is written down."""

    announced: list[tuple[str, str | None]] = field(default_factory=list)

    def announce(self, subject: str, group: str | None = None) -> None:
        self.announced.append((subject, group))

    def mark(self, subject: str) -> int:
        return len(self.announced)

    def wait(self, subject: str, group: str, *, mark: int, tries: int, seconds: float) -> bool:
        return False


@dataclass
class ListMeter:
    figures: list[tuple[str, float]] = field(default_factory=list)

    def record(
        self, name: str, value: float, *, unit: MeterUnit = "Count", dimensions: Mapping[str, str] | None = None
    ) -> None:
        self.figures.append((name, value))


class CallByCall:
    """A store whose transactions are hidden, and whose calls are written down: (verb, table or counter)."""

    WRITES = frozenset({"add", "put", "delete", "seal"})

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[tuple[str, str]] = []

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0] in self.WRITES]

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        self.calls.append(("add", counter))
        return self._store.add(counter, rows=rows, numbers=numbers)

    def seal(self, counter: str) -> Counter:
        self.calls.append(("seal", counter))
        return self._store.seal(counter)

    def counter(self, counter: str) -> Counter:
        self.calls.append(("counter", counter))
        return self._store.counter(counter)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        self.calls.append(("get", key.table))
        return self._store.get(key, consistent=consistent)

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        self.calls.append(("put", key.table))
        return self._store.put(key, record, expect=expect)

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        self.calls.append(("delete", key.table))
        return self._store.delete(key, expect=expect)

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        self.calls.append(("scan", table))
        return self._store.scan(table, partition, **how)

    def trim(self, table: Table, partition: str, *, below: str) -> None:
        self.calls.append(("trim", table))
        self._store.trim(table, partition, below=below)

    def collect(self, table: Table, now_ms: int) -> None:
        self.calls.append(("collect", table))
        self._store.collect(table, now_ms)


class CountedTransactions(CallByCall):
    """The same with the store's transactions: the calls inside are written down too."""

    def transact(self, work: Callable[[Store], Any]) -> Any:
        def counted(inner: Store) -> Any:
            session = CallByCall(inner)
            session.calls = self.calls
            return work(session)

        return self._store.transact(counted)  # type: ignore[attr-defined]


@dataclass
class Bench:
    """A cell and what it stands on."""

    store: Store = field(default_factory=MemoryStore)
    blobs: Blobs = field(default_factory=MemoryBlobs)
    clock: HandClock = field(default_factory=HandClock)
    arrivals: NoArrivals = field(default_factory=NoArrivals)
    meter: ListMeter = field(default_factory=ListMeter)
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        self.cell = self.another_process()

    def another_process(self) -> Cell:
        """A cell on the same storage with nothing in its caches."""
        return Cell(
            Context(
                store=self.store,
                blobs=self.blobs,
                clock=self.clock,
                ids=SystemIds(),
                arrivals=self.arrivals,
                meter=self.meter,
                settings=self.settings,
            )
        )

    def send(self, *bodies: str, subject: str = "orders", key: str | None = None) -> list[Placed]:
        return self.cell.produce(subject, [NewMessage(body=body, key=key) for body in bodies])

    def pull(
        self, limit: int = 100, *, subject: str = "orders", group: str = "billing", lease: int = 30
    ) -> list[Pulled]:
        request = PullRequest(consumer="c1", max_messages=limit, lease_seconds=lease)
        return self.cell.pull(subject, group, request).pulls

    def take(self, limit: int = 100, **where: Any) -> list[Message]:
        return [message for pull in self.pull(limit, **where) for message in pull.messages]

    def bodies(self, limit: int = 100, **where: Any) -> list[str | None]:
        return [message.body for message in self.take(limit, **where)]

    def settle(self, pull: Pulled, *, subject: str = "orders", group: str = "billing", **how: Any) -> str:
        (answer,) = self.cell.settle(subject, group, [Settlement(receipt=pull.receipt, **how)])
        return answer.status
