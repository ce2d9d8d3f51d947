"""Simulates ``Timers``, which fire late, twice, or, with the fault for it, never, and the sleep of wheels without
ticks."""

import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tests.simulation.store import Connection
from tests.simulation.world import Process, World

_LATE_MS = 60_000
_SOON_MS = 2_000
_EARLY_MS = 120_000
LATEST_NEWS_MS = 250


class Start(NamedTuple):
    """A start of a wheel, and the time for which it was ordered (0: not named)."""

    bucket: str
    wakes_ms: int = 0


class Alarms:
    """The ordered timers, and the starts that have come and wait for a process to turn the wheel. ``listening``:
    whether the queue of precise timers is read; until then its starts are kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fired: list[Start] = []
        self.listening = False
        self._kept: list[Start] = []
        self._idle: list[Process] = []

    def order(self, when_ms: int, start: Start, asked_ms: int) -> None:
        """Orders a timer. ``asked_ms``: the time of the order by the clock of the actor."""
        delays = self.world.plan.delays
        # Where messages must arrive in time, the sweeper's own starts come, which are ordered for now.
        now = when_ms <= asked_ms and not start.wakes_ms
        certain = delays is not None and delays.prompt and delays.precise and now
        late_ms = _LATE_MS if when_ms > asked_ms else _SOON_MS
        self._order(when_ms, late_ms, partial(self.fire, start), certain=certain)

    def order_precise(self, when_ms: int, start: Start) -> None:
        """Orders a precise timer. One in ten is early in runs with faults."""
        delays = self.world.plan.delays
        if delays is not None and not delays.prompt and self.world.rng.random() < 0.1:
            when_ms -= int(self.world.rng.random() * _EARLY_MS)
        self._order(when_ms, _SOON_MS, partial(self._arrive, start))

    def _order(self, when_ms: int, late_ms: int, effect: Callable[[], None], *, certain: bool = False) -> None:
        world = self.world
        if not certain and world.rng.random() < world.faults.forget:
            world.record("timer", "forgotten")
            return
        for _ in range(1 + (world.rng.random() < 0.1)):
            world.alarm(max(when_ms, world.now_ms) + int(world.rng.random() * late_ms), effect)

    def listen(self, on: bool) -> bool:
        """Begins or ends the reading of the queue, a while later."""
        if on != self.listening:
            self.world.alarm(self.world.now_ms + int(self.world.rng.random() * _LATE_MS), partial(self._switch, on))
        return on == self.listening

    def _switch(self, on: bool) -> None:
        self.listening = on
        while on and self._kept:
            self.fire(self._kept.pop(0))

    def _arrive(self, start: Start) -> None:
        if self.listening:
            self.fire(start)
        else:
            self._kept.append(start)

    def fire(self, start: Start) -> None:
        self.world.record("timer", start.bucket)
        self.fired.append(start)
        if self._idle:
            self.world.wake(self._idle.pop(0))

    def wait(self, process: Process) -> None:
        """Sleeps until a timer fires, or the run ends."""
        self._idle.append(process)
        self.world.idle(process)
        if process in self._idle:
            self._idle.remove(process)


class Sleeper:
    """Lets the wheel of one process sleep until a message that was announced is due."""

    def __init__(self, process: Process, bucket: str) -> None:
        self.bucket = bucket
        self._process = process
        self._announced_ms = sys.maxsize
        self._asleep = False

    def announce(self, due_ms: int) -> None:
        self._announced_ms = min(self._announced_ms, due_ms)
        world, process = self._process.world, self._process
        if self._asleep:
            wake_ms = world.now_ms + max(0, self._announced_ms - process.now_ms())
            process.wake_ms = min(process.wake_ms, wake_ms)

    def sleep(self, seconds: float) -> None:
        left_ms = max(1, min(int(seconds * 1_000), self._announced_ms - self._process.now_ms()))
        self._asleep = True
        try:
            self._process.sleep(left_ms / 1_000)
        finally:
            self._asleep, self._announced_ms = False, sys.maxsize


class Announcements:
    """Implements ``WheelWakeups`` for all processes of a run, each of which may turn any wheel. An announcement comes
    a little later, as from another process, or with the fault for it never."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sleepers: list[Sleeper] = []

    def sleeper(self, process: Process, bucket: str) -> Sleeper:
        """Returns the sleeper of the only wheel that the process turns."""
        made = Sleeper(process, bucket)
        self._sleepers = [sleeper for sleeper in self._sleepers if sleeper._process is not process] + [made]
        return made

    def announce(self, bucket: str, due_ms: int) -> None:
        rng = self._world.rng
        if not self._sleepers or rng.random() < self._world.faults.forget:
            return
        late_ms = 0 if rng.random() < 0.5 else int(rng.random() * LATEST_NEWS_MS)
        self._world.alarm(self._world.now_ms + late_ms, partial(self._arrive, bucket, due_ms))

    def _arrive(self, bucket: str, due_ms: int) -> None:
        for sleeper in self._sleepers:
            if sleeper.bucket == bucket:
                sleeper.announce(due_ms)


class SimulatedTimers(Connection):
    """Implements ``Timers`` for one actor."""

    def __init__(self, process: Process, alarms: Alarms) -> None:
        super().__init__(process)
        self._alarms = alarms

    def at(self, when_ms: int, bucket: str) -> None:
        asked_ms = self.process.now_ms()
        self.call("timer", (bucket, when_ms), lambda: self._alarms.order(when_ms, Start(bucket), asked_ms))


class SimulatedPreciseTimers(Connection):
    """Implements ``PreciseTimers`` for one actor."""

    def __init__(self, process: Process, alarms: Alarms) -> None:
        super().__init__(process)
        self._alarms = alarms

    def after(self, seconds: int, bucket: str, wakes_ms: int) -> None:
        def order() -> None:
            when_ms = self._alarms.world.now_ms + seconds * 1_000
            self._alarms.order_precise(when_ms, Start(bucket, wakes_ms))

        self.call("precise timer", (bucket, wakes_ms), order)

    def relay(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        asked_ms = self.process.now_ms()
        start = Start(bucket, wakes_ms)
        self.call("relayed timer", (bucket, wakes_ms), lambda: self._alarms.order(when_ms, start, asked_ms))

    def listen(self, on: bool) -> bool:
        answer: bool = self.call("listen", (on,), lambda: self._alarms.listen(on))
        return answer
