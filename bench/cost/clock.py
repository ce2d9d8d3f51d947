"""Counts the time that a Lambda function would take: its waits, and its CPU time at Lambda's speed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

START_MS = 1_763_640_000_000

VCPU_MB = 1_769
"""A function with this much memory has one vCPU; one with less has a proportional share."""


class ModelClock:
    """A ``Clock`` that only sleeps, reported waits, and the CPU time within ``running`` move forward."""

    def __init__(self) -> None:
        self._waited_ms = 0.0
        self._slowness = 0.0
        self._began = 0.0
        self._alarms: list[tuple[int, Callable[[], None]]] = []

    def now_ms(self) -> int:
        return START_MS + int(self.elapsed_ms())

    def elapsed_ms(self) -> float:
        used = (time.process_time() - self._began) * 1_000 * self._slowness if self._slowness else 0.0
        return self._waited_ms + used

    def sleep(self, seconds: float) -> None:
        self.wait(seconds)
        for alarm in [alarm for alarm in self._alarms if alarm[0] <= self.now_ms()]:
            self._alarms.remove(alarm)
            alarm[1]()

    def alarm(self, when_ms: int, call: Callable[[], None]) -> None:
        """Calls a function in the first sleep that ends at this time or later."""
        self._alarms.append((when_ms, call))

    def wait(self, seconds: float) -> None:
        self._waited_ms += seconds * 1_000

    def go_to(self, when_ms: int) -> None:
        """Moves the clock forward to this time; does nothing if the time has passed."""
        self.wait(max(0, when_ms - self.now_ms()) / 1_000)

    @contextmanager
    def running(self, memory_mb: int) -> Iterator[None]:
        """Counts CPU time within the block, divided by the function's share of a vCPU."""
        self._slowness = max(1.0, VCPU_MB / memory_mb)
        self._began = time.process_time()
        try:
            yield
        finally:
            self._waited_ms, self._slowness = self.elapsed_ms(), 0.0
