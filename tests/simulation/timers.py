"""Simulates ``Timers``, which fire late, twice, or, with the fault for it, never."""

from functools import partial

from tests.simulation.store import Connection
from tests.simulation.world import Process, World

_LATE_MS = 60_000
_SOON_MS = 2_000


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


class SimulatedTimers(Connection):
    """Implements ``Timers`` for one actor."""

    def __init__(self, process: Process, alarms: Alarms) -> None:
        super().__init__(process)
        self._alarms = alarms

    def at(self, when_ms: int, bucket: str) -> None:
        asked_ms = self.process.now_ms()
        self.call("timer", (bucket, when_ms), lambda: self._alarms.order(when_ms, bucket, asked_ms))
