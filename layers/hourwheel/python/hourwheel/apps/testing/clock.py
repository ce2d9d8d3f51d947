"""Provides the time and the ids of a queue in memory: a clock that tests move, timers on it, and ids that count."""

import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class SimulatedClock:
    """Stands still until a test moves it. A call that sleeps moves it too, and calls ``meanwhile``."""

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms
        self.meanwhile: Callable[[], object] = lambda: None

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.ms += max(1, round(seconds * 1_000))  # a loop that sleeps for less than half a millisecond must end too
        self.meanwhile()


class SimulatedTimers:
    """Implements ``Timers`` and ``WheelWakeups``: lists the times at which the wheels of buckets have to turn."""

    def __init__(self) -> None:
        self._times: list[tuple[int, str]] = []
        self._ordered: set[tuple[int, str]] = set()

    def at(self, when_ms: int, bucket: str) -> None:
        if (when_ms, bucket) not in self._ordered:
            self._ordered.add((when_ms, bucket))
            heapq.heappush(self._times, (when_ms, bucket))

    def announce(self, bucket: str, due_ms: int) -> None:
        self.at(due_ms, bucket)

    def next_ms(self) -> int | None:
        return self._times[0][0] if self._times else None

    def due(self, now_ms: int) -> list[str]:
        """Removes the times that have come, and returns their buckets, each once."""
        buckets: dict[str, None] = {}
        while self._times and self._times[0][0] <= now_ms:
            self._ordered.discard(self._times[0])
            buckets[heapq.heappop(self._times)[1]] = None
        return list(buckets)


_GOLDEN = (5**0.5 - 1) / 2
"""Of all steps, this part of a circle spreads the points after any number of steps most evenly."""


class CountedIds:
    """Counts instead of drawing random numbers, so that each run of a test sees the same ids and pauses. Its chances
    are spread evenly: what happens in half of the cases happens in about every second one."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._chances = itertools.count(1)

    def token(self) -> bytes:
        return next(self._numbers).to_bytes(16, "big")

    def unique(self, now_ms: int) -> str:
        return f"{now_ms:012x}{next(self._numbers):016x}"

    def jitter(self) -> float:
        return next(self._chances) * _GOLDEN % 1.0


def distance(delta: timedelta | None, duration: dict[str, float]) -> timedelta:
    delta = timedelta(**duration) if delta is None else delta
    if delta < timedelta(0):
        raise ValueError("the clock of a queue does not go back")
    return delta


def moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)
