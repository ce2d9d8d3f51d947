"""Provides ids without chance (no jitter, distinct keys), and a clock that stands still."""

from hourwheel.apps.testing.clock import CountedIds


class StillIds(CountedIds):
    """Counts instead of drawing random numbers, so that pauses have no jitter and keys are distinct."""

    def jitter(self) -> float:
        return 0.0


class StillClock:
    """2026-11-20T09:00:00Z, as the fake server has it."""

    def now_ms(self) -> int:
        return 1_795_165_200_000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing here sleeps")
