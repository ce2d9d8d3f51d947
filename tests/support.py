"""Provides a deployment in one process, with a clock that only tests move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self, TypeVar

from greenlet import getcurrent, greenlet

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.context import Context, Settings
from hourwheel.delay.wheel import WheelEnd
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import CellUnavailable, Unavailable
from hourwheel.model.fields import Delay
from hourwheel.model.groups import PushTarget, RetryPolicy
from hourwheel.model.messages import Message, NewMessage, SendResult
from hourwheel.model.pulls import Pull, PullRequest, Settlement, WakeupQueue
from hourwheel.model.targets import DONE, Outcome, PushDelivery
from hourwheel.ports.machine import MeterUnit
from hourwheel.ports.storage import Blobs, CellStorage, Counter, Key, LakeFiles, Record, Refused, Store, Table
from hourwheel.system import SystemIds

NOON_MS = 1_763_640_000_000

T = TypeVar("T")


@dataclass
class HandClock:
    ms: int = NOON_MS
    sleeps: bool = False
    """True if a sleep lets others run meanwhile: see ``Bench.turn``."""

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        hub = getcurrent().parent
        if self.sleeps and hub is not None:
            hub.switch(seconds)
        else:
            self.pass_time(seconds)

    def pass_time(self, seconds: float) -> None:
        self.ms += round(seconds * 1_000)


@dataclass
class NoWakeups:
    """``Wakeups`` without waiting, which record the announcements."""

    announced: list[tuple[str, str | None]] = field(default_factory=list)

    def announce(self, subject: str, group: str | None = None) -> None:
        self.announced.append((subject, group))

    def announcements(self, subject: str) -> int:
        return len(self.announced)

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        return False


@dataclass
class ListMeter:
    metrics: list[tuple[str, float]] = field(default_factory=list)

    def record(self, name: str, value: float, *, unit: MeterUnit = "Count") -> None:
        self.metrics.append((name, value))


class CallByCall:
    """A store that hides transactions, and records its calls as (verb, table or counter)."""

    WRITES = frozenset({"add", "put", "delete", "remove many", "seal", "begin"})

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: list[tuple[str, str]] = []

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0] in self.WRITES]

    def add(self, counter: str, *, rows: int, numbers: int) -> Counter:
        self.calls.append(("add", counter))
        return self._store.add(counter, rows=rows, numbers=numbers)

    def begin(self, counter: str, *, numbers: int) -> Counter:
        self.calls.append(("begin", counter))
        return self._store.begin(counter, numbers=numbers)

    def seal(self, counter: str) -> Counter:
        self.calls.append(("seal", counter))
        return self._store.seal(counter)

    def counter(self, counter: str) -> Counter:
        self.calls.append(("counter", counter))
        return self._store.counter(counter)

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        self.calls.append(("counters", ",".join(counters)))
        return self._store.counters(counters, consistent=consistent)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        self.calls.append(("get", key.table))
        return self._store.get(key, consistent=consistent)

    def get_many(self, table: Table, partition: str, sorts: Sequence[str], **how: Any) -> dict[str, Record]:
        self.calls.append(("get many", table))
        return self._store.get_many(table, partition, sorts, **how)

    def get_keys(self, keys: Sequence[Key], **how: Any) -> dict[Key, Record]:
        self.calls.append(("get keys", keys[0].table))
        return self._store.get_keys(keys, **how)

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        self.calls.append(("put", key.table))
        return self._store.put(key, record, expect=expect)

    def delete(self, key: Key, *, expect: bytes) -> Refused | None:
        self.calls.append(("delete", key.table))
        return self._store.delete(key, expect=expect)

    def remove_many(self, table: Table, partition: str, sorts: Sequence[str]) -> None:
        self.calls.append(("remove many", table))
        self._store.remove_many(table, partition, sorts)

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
    """A store that records its calls, including those within transactions."""

    def transact(self, work: Callable[[Store], Any]) -> Any:
        def counted(inner: Store) -> Any:
            session = CallByCall(inner)
            session.calls = self.calls
            return work(session)

        return self._store.transact(counted)


AT_ONCE = RetryPolicy(first_seconds=0)
"""A policy that retries at once, for tests of other properties."""


@dataclass
class HandTimers:
    """Timers that a test fires."""

    ordered: list[tuple[int, str]] = field(default_factory=list)

    def at(self, when_ms: int, bucket: str) -> None:
        self.ordered.append((when_ms, bucket))

    def due(self, now_ms: int) -> set[str]:
        """Removes and returns the buckets whose timers are due."""
        found = {bucket for when_ms, bucket in self.ordered if when_ms <= now_ms}
        self.ordered = [entry for entry in self.ordered if entry[0] > now_ms]
        return found


@dataclass
class HandQueues:
    """Wake-up queues in memory. ``away`` is an error that each call raises."""

    wakeups: dict[str, int] = field(default_factory=dict)
    """The wake-ups that nobody has received, by queue."""
    made: list[str] = field(default_factory=list)
    away: Exception | None = None

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        self._fail()
        if fresh or name not in self.made:
            self.made.append(name)
            self.wakeups.setdefault(name, 0)
        return WakeupQueue(f"https://sqs.example/{name}", "eu-west-1")

    def wake(self, name: str) -> bool:
        self._fail()
        if name in self.wakeups:
            self.wakeups[name] += 1
        return name in self.wakeups

    def remove(self, name: str) -> None:
        self._fail()
        self.wakeups.pop(name, None)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]

    def received(self) -> int:
        """Takes all wake-ups, and returns their number."""
        taken = sum(self.wakeups.values())
        self.wakeups = dict.fromkeys(self.wakeups, 0)
        return taken

    def _fail(self) -> None:
        if self.away is not None:
            raise self.away


@dataclass
class HandPreciseTimers:
    """Precise timers that a test fires with its other timers. ``orders``: the seconds of each order, or ``relay``."""

    timers: HandTimers
    clock: HandClock
    orders: list[int | str] = field(default_factory=list)
    listening: bool = False
    lost: bool = False
    """True if timers that are ordered never fire."""

    def after(self, seconds: int, bucket: str, wakes_ms: int) -> None:
        self._order(seconds, self.clock.ms + seconds * 1_000, bucket)

    def relay(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        self._order("relay", wakes_ms, bucket)

    def _order(self, order: int | str, when_ms: int, bucket: str) -> None:
        self.orders.append(order)
        if not self.lost:
            self.timers.at(when_ms, bucket)

    def listen(self, on: bool) -> bool:
        before, self.listening = self.listening, on
        return before is on


@dataclass
class HandPushes:
    """Pushes that a test carries out."""

    started: list[tuple[str, str]] = field(default_factory=list)

    def start(self, subject: str, group: str) -> None:
        self.started.append((subject, group))


@dataclass
class HandStream:
    """The state of the stream of stored rows: read or not, or a fault that each change raises."""

    heard: list[bool] = field(default_factory=list)
    away: bool = False

    def listen(self, wanted: bool) -> None:
        if self.away:
            raise Unavailable("away")
        self.heard.append(wanted)


@dataclass
class ListTargets:
    """Targets that accept every delivery, unless ``answer`` returns another outcome."""

    answer: Callable[[PushDelivery], Outcome] = lambda _: DONE
    deliveries: list[PushDelivery] = field(default_factory=list)
    announced: list[tuple[str, str]] = field(default_factory=list)

    def check(self, target: PushTarget, subject: str) -> None:
        pass

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        self.deliveries.append(delivery)
        return self.answer(delivery)

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        self.announced.append((subject, group))
        return DONE

    @property
    def bodies(self) -> list[str | None]:
        return [message.body for delivery in self.deliveries for message in delivery.messages]


@dataclass
class KnownCells:
    """``Cells`` that are already open."""

    opened: dict[str, CellStorage]

    def storage(self, cell: str) -> CellStorage:
        if cell not in self.opened:
            raise CellUnavailable(f"cell {cell} is not known here")
        return self.opened[cell]

    def location(self, cell: str) -> str | None:
        return f"/disks/{cell}" if cell in self.opened else None

    def names(self) -> list[str]:
        return sorted(self.opened)

    def kinds(self, cell: str) -> None:
        return None

    def claim(self, cell: str, *, new: bool) -> None:
        pass

    def forget(self, cell: str) -> None:
        pass


class SeededIds(SystemIds):
    """Draws the same chances each time, so that a test takes the same course: a pull shares between retries and new
    messages by chance."""

    def __init__(self) -> None:
        super().__init__()
        self._chances = Random(7)

    def jitter(self) -> float:
        return self._chances.random()


@dataclass
class Bench:
    """A deployment with its ports."""

    store: Store = field(default_factory=MemoryStore)
    blobs: Blobs = field(default_factory=MemoryBlobs)
    clock: HandClock = field(default_factory=HandClock)
    wakeups: NoWakeups = field(default_factory=NoWakeups)
    meter: ListMeter = field(default_factory=ListMeter)
    settings: Settings = field(default_factory=lambda: Settings(retry=AT_ONCE))
    timers: HandTimers = field(default_factory=HandTimers)
    precise: HandPreciseTimers | None = None
    pushes: HandPushes = field(default_factory=HandPushes)
    stream: HandStream = field(default_factory=HandStream)
    targets: ListTargets = field(default_factory=ListTargets)
    queues: "HandQueues | None" = None
    cells: dict[str, CellStorage] = field(default_factory=dict)
    """The storage of other cells, by name."""
    lake: LakeFiles | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        self.deployment = self.another_process()

    def another_process(self) -> Deployment:
        """Returns a deployment on the same storage with empty caches."""
        return Deployment(
            Context(
                store=self.store,
                blobs=self.blobs,
                cells=GuardedCells(
                    KnownCells(self.cells), self.store, self.clock, SystemIds(), seconds=0, rest_seconds=0
                )
                if self.cells
                else None,
                clock=self.clock,
                ids=SeededIds(),
                wakeups=self.wakeups,
                meter=self.meter,
                timers=self.timers,
                precise_timers=self.precise,
                pushes=self.pushes,
                wakeup_queues=self.queues,
                stream=self.stream,
                lake=self.lake,
                threads=self.threads,
                settings=self.settings,
            ),
            targets=self.targets,
        )

    @classmethod
    def precisely(cls) -> Self:
        """Returns a deployment whose wheels are started by precise timers."""
        clock, timers = HandClock(), HandTimers()
        return cls(CallByCall(MemoryStore()), clock=clock, timers=timers, precise=HandPreciseTimers(timers, clock))

    def send(self, *bodies: str, subject: str = "orders", key: str | None = None) -> list[SendResult]:
        return self.deployment.produce(subject, [NewMessage(body=body, key=key) for body in bodies])

    def send_later(
        self, *bodies: str, delay: Delay | None = None, deliver_at: str | None = None, subject: str = "orders"
    ) -> list[SendResult]:
        return self.deployment.produce(
            subject, [NewMessage(body=body, delay=delay, deliver_at=deliver_at) for body in bodies]
        )

    def turn(self, seconds: float, *, beside: Callable[[], object] | None = None) -> list[WheelEnd]:
        """Lets time pass, turns the wheels whose timers fire meanwhile, and returns how they ended. At the end stops
        the wheels that still turn; the next call continues them. ``beside`` runs after the first second, and lets the
        wheels turn while it sleeps."""
        until_ms = self.clock.now_ms() + round(seconds * 1_000)
        ended: list[WheelEnd] = []
        turning: dict[str, tuple[int, greenlet]] = {}
        if beside is not None:
            self.clock.sleeps = True
            turning["beside"] = (self.clock.now_ms() + 1_000, greenlet(lambda _: beside()))
        while True:
            now_ms = self.clock.now_ms()
            over = now_ms >= until_ms
            for bucket in sorted(self.timers.due(now_ms)):
                if bucket in turning:
                    self.timers.at(now_ms + 1, bucket)
                else:
                    turning[bucket] = (now_ms, greenlet(self._turner(bucket, ended)))
            for bucket, (wakes_ms, wheel) in list(turning.items()):
                if wakes_ms <= now_ms or over:
                    pause = wheel.switch(not over)
                    while over and not wheel.dead:
                        pause = wheel.switch(False)
                    if wheel.dead:
                        del turning[bucket]
                    else:
                        turning[bucket] = (now_ms + max(1, round(pause * 1_000)), wheel)
            if over:
                self.clock.sleeps = False
                return ended
            following = [wakes_ms for wakes_ms, _ in turning.values()]
            following += [when_ms for when_ms, _ in self.timers.ordered]
            self.clock.ms = min(until_ms, max(now_ms, min(following, default=until_ms)))

    def _turner(self, bucket: str, ended: list[WheelEnd]) -> Callable[[bool], None]:
        def turn(_: bool) -> None:
            hub = getcurrent().parent
            assert hub is not None
            ended.append(self.deployment.turn_wheel(bucket, "bench", hub.switch))
            if ended[-1] is WheelEnd.STOPPED:
                self.timers.at(self.clock.now_ms(), bucket)

        return turn

    def pull(self, limit: int = 100, *, subject: str = "orders", group: str = "billing", lease: int = 30) -> list[Pull]:
        request = PullRequest(consumer="c1", max_messages=limit, lease_seconds=lease)
        return self.deployment.pull(subject, group, request).pulls

    def take(self, limit: int = 100, **where: Any) -> list[Message]:
        return [message for pull in self.pull(limit, **where) for message in pull.messages]

    def take_all(self, **where: Any) -> list[Message]:
        """Pulls until no message is left: each suspect comes alone."""
        taken: list[Message] = []
        while messages := self.take(**where):
            taken += messages
        return taken

    def bodies(self, limit: int = 100, **where: Any) -> list[str | None]:
        return [message.body for message in self.take(limit, **where)]

    def settle(self, pull: Pull, *, subject: str = "orders", group: str = "billing", **how: Any) -> str:
        (answer,) = self.deployment.settle(subject, group, [Settlement(receipt=pull.receipt, **how)])
        return answer.status
