"""Simulates ``Timers``, which fire late, twice, or, with the fault for it, never, and the sleep of wheels without
ticks."""

import sys
from functools import partial

from tests.simulation.store import Connection
from tests.simulation.world import Process, World

_LATE_MS = 60_000
_SOON_MS = 2_000
LATEST_NEWS_MS = 250


class Alarms:
    """The ordered timers, and the timers that have fired and wait for a process to turn the wheel."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fired: list[str] = []
        self._idle: list[Process] = []

    def order(self, when_ms: int, bucket: str, asked_ms: int) -> None:
        """An ordered timer. ``asked_ms``: the time of the order by the clock of the actor."""
        world = self.world
        rng, now_ms = world.rng, world.now_ms
        late_ms = _LATE_MS if when_ms > asked_ms else _SOON_MS
        if rng.random() < world.faults.forget:
            world.record("timer", bucket, "forgotten")
            return
        for _ in range(1 + (rng.random() < 0.1)):
            world.alarm(max(when_ms, now_ms) + int(rng.random() * late_ms), partial(self.fire, bucket))

    def fire(self, bucket: str) -> None:
        self.world.record("timer", bucket)
        self.fired.append(bucket)
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
        self.call("timer", (bucket, when_ms), lambda: self._alarms.order(when_ms, bucket, asked_ms))
