"""Decides how long handled messages are remembered, and when a store removes the others."""

import threading
from datetime import timedelta

from hourwheel.ports import Clock
from hourwheel.system import SystemClock

KEEP = timedelta(days=30)
"""As long as the queue keeps a dead letter: it may be redriven until then."""

IDENTITY_CHARACTERS = 302  # a subject, a group and an id of 100 each, and two slashes
SWEEP_ROWS = 500  # in one step: rows that are removed are locked until the step is over
_SWEEP_MS = 10_000  # 50 rows a second, and more without a pause while more have expired


class Expiry:
    """Says when messages expire, and that it is time to sweep: at most every 10 s. Thread-safe."""

    def __init__(self, keep: timedelta, clock: Clock | None) -> None:
        if keep <= timedelta(0):
            raise ValueError("keep must be more than no time: a message may come again at once")
        self._keep_ms = round(keep / timedelta(milliseconds=1))
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._swept_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def expires_ms(self) -> int:
        return self._clock.now_ms() + self._keep_ms

    def sweeps(self) -> bool:
        """Returns whether the caller has to sweep."""
        now_ms = self._clock.now_ms()
        with self._lock:
            if now_ms - self._swept_ms < _SWEEP_MS:
                return False
            self._swept_ms = now_ms
            return True

    def swept(self, rows: int) -> None:
        """Lets the next message sweep again where a step was full: there may be more."""
        if rows >= SWEEP_ROWS:
            with self._lock:
                self._swept_ms = 0
