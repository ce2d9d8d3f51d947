"""Simulates the machine: one time, one source of chance, and actors of which one runs at a time.

An actor runs in a greenlet until it calls the store or sleeps; then another may run. Time is virtual: each call takes a
little of it, and when all actors sleep, time jumps to the first that wakes.
"""

import gc
import heapq
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from tests.simulation.faults import NONE, Outage
from tests.simulation.plan import Plan

START_MS = 1_800_000_000_000

_LONGEST_TURN_MS = 500
"""In a run without faults, an actor that could go on goes on within this time, as a thread of a real process does: a
wheel that is late because another actor made one call after the other says nothing about the library."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Keeps the collector of cycles off during a run, which ends within seconds and keeps its trace anyway: it would
    take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Crashed(BaseException):
    """Raised where the actor's process ends. Only stored changes survive."""


class Violation(BaseException):
    """An invariant of the design does not hold. ``invariant`` is its number there. The library never
    contains it."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(f"invariant {invariant}: {what}")
        self.invariant = invariant


@dataclass
class Verb:
    """A call of an actor into the library, and the changes that the store saw during it."""

    name: str
    actor: str
    at: int
    details: dict[str, Any] = field(default_factory=dict)
    began_ms: int = 0
    error: Exception | None = None
    claims: list[tuple[str, int]] = field(default_factory=list)
    settled: list[tuple[str, int]] = field(default_factory=list)
    taken: set[tuple[str, int]] = field(default_factory=set)
    """The ids and attempts of the messages that the target took in this push, by the last delivery of each. A producer
    that repeats a batch without a key stores one body under two ids, and one batch may contain both. Where a lease ends
    during a delivery, another thread may have the next attempt."""
    raised: int = 0
    """The number of errors that the target has raised and the library has not reported yet."""
    unanswered: set[tuple[str, str]] = field(default_factory=set)
    """The rows of pull logs that the verb has put without an answer: it may not know that a claim is its own."""
    answered_late: set[tuple[str, str]] = field(default_factory=set)
    """The rows of pull logs of which the verb got no answer at first, and one to a repeated put."""
    unread: set[str] = field(default_factory=set)
    """The cells of which an object did not answer the verb, or which it did not ask because another call had failed.
    The home cell is the empty text."""
    seen: dict[str, set[int]] = field(default_factory=dict)
    """The rows of schedule logs that the verb has read, or has settled itself."""

    def learn(self, row: tuple[str, str]) -> None:
        """Notes that the verb got the answer to its put of a row."""
        if row in self.unanswered:
            self.answered_late.add(row)
        self.unanswered.discard(row)


@dataclass
class Process:
    """A running actor: its clock differs from the simulated time by ``offset_ms``, and by what it has gained since the
    start at its rate, unless that is more than the plan allows."""

    world: "World"
    name: str
    offset_ms: int
    verb: Verb
    rate: float = 0.0
    wake_ms: int = 0
    idle: bool = False
    atomic: bool = False
    gate: Callable[[], None] | None = None
    """Called before each step."""
    watch: Callable[[str, object], None] | None = None
    """Called for each call outside a transaction."""
    thread: greenlet | None = None
    parent: "Process | None" = None
    """The process of which this is another thread."""

    def now_ms(self) -> int:
        now_ms, skew_ms = self.world.now_ms, self.world.plan.skew_ms
        if not skew_ms:
            return now_ms
        gained_ms = int(self.rate * (now_ms - self.world.start_ms))
        return now_ms + max(-skew_ms, min(skew_ms, self.offset_ms + gained_ms))

    def sleep(self, seconds: float) -> None:
        self.world.sleep(self, max(1, int(seconds * 1_000)))


class World:
    """The time, the source of chance, the schedule and the trace of one run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = Random(plan.seed ^ 0x5EED)
        self.now_ms = self.start_ms = START_MS + plan.start_ms
        self.faults = plan.faults
        self.calls = 0
        self.limit = plan.calls
        self.events = 0
        self.grown = 0
        """The number of times that a row of a pull log has grown."""
        self.taken_on = 0
        """The number of times that a pull was handed messages which were claimed ahead for it."""
        self.staged = False
        """Whether actors work although none runs by itself."""
        self.doomed: list[Process] = []
        """The actors whose process has crashed, and who have not ended yet."""
        self.current: Process | None = None
        self.expire: Callable[[], None] = lambda: None
        """Removes a share of the items that TTL may remove by now."""
        self.spoil: Callable[[], None] = lambda: None
        """Damages a stored batch."""
        self.outages: dict[str, Outage] = {}
        """The cells that are out of reach, or were."""
        self.trace: list[tuple[Any, ...]] = []
        self._hub: greenlet | None = None
        self._processes: list[Process] = []
        self._pending: list[tuple[int, int, Callable[[], None]]] = []
        self._alarms: list[tuple[int, int, Callable[[], None]]] = []
        self._offsets: dict[str, int] = {}

    def process(self, name: str) -> Process:
        skew = self.plan.skew_ms
        self._offsets[name] = offset = self.rng.randint(-skew, skew)
        drift = self.plan.drift
        rate = self.rng.uniform(-drift, drift) if drift else 0.0
        return Process(self, name, offset, Verb("start", name, 0), rate)

    def another_machine(self, process: Process) -> None:
        """Moves the process to a machine whose clock is ahead or behind."""
        skew = self.plan.skew_ms
        process.offset_ms = self.rng.randint(-skew, skew)
        self._offsets[process.name] = max(self._offsets[process.name], process.offset_ms)

    def latest_clock(self, name: str) -> int:
        """Returns the latest time that any machine of the process may show now."""
        return self.now_ms + (self.plan.skew_ms if self.plan.drift else self._offsets[name])

    def spawn(self, process: Process, life: Callable[[], None]) -> None:
        process.thread = greenlet(life, self._hub)
        process.wake_ms = self.now_ms + self.rng.randrange(200)
        self._processes.append(process)

    def run(self) -> None:
        """Runs until every actor has ended. An error in one of them ends the run."""
        self._hub = getcurrent()
        while self._processes:
            ready = [process for process in self._processes if process.wake_ms <= self.now_ms]
            if not ready:
                if self.over:
                    self._wake_idle()
                coming = [queue[0][0] for queue in (self._pending, self._alarms) if queue]
                self.now_ms = min([*coming, *(process.wake_ms for process in self._processes)])
                self._apply_due()
                continue
            self.current = None
            self.current = process = self._next_of(ready)
            assert process.thread is not None
            process.thread.switch()
            process.wake_ms = max(process.wake_ms, self.now_ms)
            if process.thread.dead:
                self._processes.remove(process)
        self._hub = None

    @property
    def over(self) -> bool:
        return self.calls > self.limit

    @property
    def lively(self) -> bool:
        """Returns whether the actors are at work; at the end of the run only one is."""
        return self.staged or self._hub is not None

    @property
    def alone(self) -> bool:
        """Returns whether no actor runs by itself."""
        return self._hub is None

    def step(self, process: Process) -> None:
        """Begins a call: time passes, and another actor may run first."""
        self.calls += 1
        if process.atomic:
            return
        runner = self.runner(process)
        if runner in self.doomed:
            self.doomed.remove(runner)
            raise Crashed
        if process.gate is not None:
            process.gate()
        self._disturb(process)
        self.now_ms += 1 + int(self.rng.random() * self.plan.latency_ms)
        self._apply_due()
        if self._hub is None:
            if self.over:
                raise Violation("7", "the calls do not end after the faults have ended")
            return
        if self.rng.random() < self.plan.switch or self._delayed(self._processes):
            self._yield()
        if self.over:
            raise Crashed

    def _next_of(self, ready: list[Process]) -> Process:
        """Draws the actor that goes on. An actor that has been delayed goes first, if actors may not be."""
        drawn = ready[int(self.rng.random() * len(ready))] if len(ready) > 1 else ready[0]
        return min(self._delayed(ready), key=lambda process: process.wake_ms, default=drawn)

    def _delayed(self, processes: list[Process]) -> list[Process]:
        """Returns those that have been able to go on for too long; none unless the plan is about promptness."""
        delays = self.plan.delays
        if delays is None or not delays.prompt:
            return []
        latest_ms = self.now_ms - _LONGEST_TURN_MS
        return [process for process in processes if process.wake_ms < latest_ms and process is not self.current]

    def _disturb(self, process: Process) -> None:
        """Applies the faults that may come with any call."""
        if self.faults.expiry and self.rng.random() < self.faults.expiry:
            self.expire()
        if self.faults.damage and self.rng.random() < self.faults.damage:
            self.spoil()
        if self.faults.clock and self.rng.random() < self.faults.clock:
            self.another_machine(process)

    def runner(self, process: Process) -> Process:
        """Returns the thread of the process that runs now: the process itself where it has but one."""
        current = self.current
        return current if current is not None and current.parent is process and not self.alone else process

    def crash_others(self, process: Process) -> None:
        self.doomed = [other for other in self._processes if other is not process]

    def crash_soon(self, process: Process) -> None:
        """Ends the process, or thread, at its next call, which it reaches without a pause."""
        if process not in self.doomed:
            self.doomed.append(process)
        process.wake_ms = min(process.wake_ms, self.now_ms)

    def sleep(self, process: Process, ms: int) -> None:
        if self._hub is None:
            self.now_ms += ms
            self._apply_due()
            return
        self.runner(process).wake_ms = self.now_ms + ms
        self._yield()

    def idle(self, process: Process) -> None:
        """Sleeps until ``wake``, or the end of the run."""
        assert self._hub is not None
        process.idle, process.wake_ms = True, sys.maxsize
        self._yield()
        process.idle = False

    def wake(self, process: Process) -> None:
        process.wake_ms = self.now_ms

    def later(self, ms: int, effect: Callable[[], None]) -> None:
        """Schedules an effect for a later moment."""
        self.events += 1
        heapq.heappush(self._pending, (self.now_ms + ms, self.events, effect))

    def alarm(self, at_ms: int, effect: Callable[[], None]) -> None:
        """Schedules an effect that may lie far ahead: the end of the faults does not wait for it."""
        self.events += 1
        heapq.heappush(self._alarms, (at_ms, self.events, effect))

    def next_alarm(self) -> int | None:
        return self._alarms[0][0] if self._alarms else None

    def pass_to(self, at_ms: int) -> None:
        """Lets time pass while no actor runs."""
        assert self._hub is None
        self.now_ms = max(self.now_ms, at_ms)
        self._apply_due()

    def calm(self) -> None:
        """Ends the faults and outages, and lets late effects happen now."""
        self.faults = NONE
        self.outages.clear()
        while self._pending:
            self.now_ms = max(self.now_ms, self._pending[0][0])
            self._apply_due()

    def outage(self, cell: str) -> str:
        """Returns the kind of the cell's outage; "" without one."""
        outage = self.outages.get(cell)
        return outage.kind if outage is not None and self.now_ms < outage.until_ms else ""

    def record(self, *what: Any) -> None:
        self.trace.append((self.now_ms - START_MS, *what))

    def _apply_due(self) -> None:
        for queue in (self._pending, self._alarms):
            while queue and queue[0][0] <= self.now_ms:
                heapq.heappop(queue)[2]()

    def _wake_idle(self) -> None:
        for process in self._processes:
            if process.idle:
                self.wake(process)

    def _yield(self) -> None:
        assert self._hub is not None
        self._hub.switch()


class SimulatedIds:
    """Draws from the run's own source of chance."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def token(self) -> bytes:
        return self._rng.randbytes(16)

    def unique(self, now_ms: int) -> str:
        return f"{now_ms:012x}{self._rng.getrandbits(64):016x}"

    def jitter(self) -> float:
        return self._rng.random()


class Turns:
    """A lock of a process whose requests run in turns. When no other actor can run, a waiting request gives up, like a
    request whose caller has left."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._taken = False

    def acquire(self, blocking: bool = True) -> bool:
        while self._taken:
            if not blocking:
                return False
            if self._world.alone:
                raise Crashed
            assert self._world.current is not None
            self._world.current.sleep(0.005)
        self._taken = True
        return True

    def release(self) -> None:
        self._taken = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Silence:
    """Implements ``Wakeups`` and ``Meter`` for a separate process: no call announces messages, and waiting is
    sleeping."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def announce(self, subject: str, group: str | None = None) -> None:
        pass

    def announcements(self, subject: str) -> int:
        return 0

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        self._process.sleep(min(seconds, 0.3))
        return True

    def record(self, name: str, value: float, **rest: Any) -> None:
        # A fault that the library reports is its own, unless the plan has damage, or the target has raised.
        verb, plan = self._process.verb, self._process.world.plan
        spoilt = plan.has_spoilt_record and verb.name == "sweep"
        planned = {"UnreadableMessages": plan.faults.damage > 0, "Faults": spoilt}
        if name == "Faults" and verb.raised:
            verb.raised -= 1
        elif not planned.get(name, True):
            raise Violation("errors", f"{name} {rest}")
