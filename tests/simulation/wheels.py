"""Implements wheel turners: actors that turn the wheels of buckets."""

from dataclasses import dataclass
from functools import partial

from hourwheel.buckets.starts import SOON_MS
from hourwheel.delay.wheel import WheelEnd
from hourwheel.errors import CellUnavailable, Throttled
from tests.simulation.actors import Actor
from tests.simulation.faults import Faults
from tests.simulation.timers import Sleeper, Start
from tests.simulation.world import Verb, Violation


def check_goes_on(verb: Verb, faults: Faults) -> None:
    """Checks that neither a cell nor a partition ended a wheel, for which the messages of others wait."""
    if isinstance(verb.error, CellUnavailable):
        raise Violation("7", f"a cell ended the wheel: {verb.error}")
    if isinstance(verb.error, Throttled) and faults == Faults(hot=faults.hot):
        raise Violation("7", f"the partition of one log ended the wheel: {verb.error}")


@dataclass
class WheelTurner(Actor):
    """An actor that turns the wheels whose timers fire."""

    lives: int = 0

    def work(self) -> None:
        alarms = self.machine.alarms
        if not alarms.fired:
            alarms.wait(self.process)
            return
        start = alarms.fired.pop(0)
        bucket = start.bucket
        self.lives += 1
        plan, now_ms = self.world.plan, self.process.now_ms()
        if start.wakes_ms > now_ms + SOON_MS:
            self.ask("start", lambda: self.deployment.start_wheel(bucket, start.wakes_ms), bucket=bucket)
            return
        assert plan.delays is not None
        leaves = plan.delays.leaves_seconds * 1_000
        leaves_ms = now_ms + int(leaves * (0.5 + self.rng.random())) if leaves else 0
        # Like one server that turns all its wheels under one name, or like a function with a name for each wheel.
        owner = self.process.name if plan.seed % 2 else f"{self.process.name}.{self.lives}"
        sleeper = self.machine.announcements.sleeper(self.process, bucket)
        verb, ended = self.ask(
            "wheel",
            lambda: self.deployment.turn_wheel(bucket, owner, partial(self._pause, sleeper), leaves_ms=leaves_ms),
            bucket=bucket,
            leaves_ms=leaves_ms,
        )
        check_goes_on(verb, self.world.faults)
        again = ended in (None, WheelEnd.BUSY, WheelEnd.STOPPED) and self.rng.random() < 0.5
        if again:
            self.world.alarm(self.world.now_ms + 2_000, partial(alarms.fire, Start(bucket)))

    def _pause(self, sleeper: Sleeper, seconds: float) -> bool:
        delays = self.world.plan.delays
        assert delays is not None
        if seconds > 0 and delays.tick_ms == 0:
            began_ms = self.world.now_ms
            sleeper.sleep(seconds)
            if delays.prompt:
                self.history.audit.bucket(sleeper.bucket).check_slept(began_ms)
            seconds = 0
        roll = self.rng.random()
        self.process.sleep(seconds + (0 if roll < 0.3 else 3 * self.rng.random() if roll < 0.8 else 12.0 * roll))
        return self.rng.random() < 0.99 or delays.prompt
