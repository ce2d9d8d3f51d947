"""Decides how long handled messages are remembered, and when a store removes expired ones."""

import hashlib
import threading
from datetime import timedelta

from hourwheel.locks import gives_back
from hourwheel.ports.machine import Clock
from hourwheel.system import SystemClock

KEEP = timedelta(days=30)
"""The queue keeps a dead letter this long: it may be redriven until then, and must still count as handled."""

IDENTITY_CHARACTERS = 302  # a subject, a group and an id of 100 each, and two slashes
SWEEP_ROWS = 500  # at once: rows that are removed are locked until the transaction ends
_SWEEP_MS = 10_000  # the pause after a sweep that found fewer: enough for 50 rows a second


def stored_identity(identity: str) -> str:
    """Returns what a table stores for a message: its SHA-256 if the id ends with a blank. MySQL and MariaDB compare
    texts without the blanks at their ends, so that "order-7 " would count as handled after "order-7"."""
    return hashlib.sha256(identity.encode()).hexdigest() if identity.endswith(" ") else identity


class Expiry:
    """Computes when messages expire, and decides when a store sweeps: every 10 s, and again at the next message after a
    sweep of ``SWEEP_ROWS`` rows. Thread-safe."""

    def __init__(self, keep: timedelta, clock: Clock | None) -> None:
        if keep <= timedelta(0):
            raise ValueError("keep must be longer than zero: a message may come again at once")
        self._keep_ms = round(keep / timedelta(milliseconds=1))
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._swept_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def expires_ms(self) -> int:
        return self._clock.now_ms() + self._keep_ms

    @gives_back
    def sweeps(self) -> bool:
        """Returns whether the caller has to sweep now. Returns True to one caller only."""
        now_ms = self._clock.now_ms()
        with self._lock:
            if now_ms - self._swept_ms < _SWEEP_MS:
                return False
            self._swept_ms = now_ms
            return True

    @gives_back
    def swept(self, rows: int) -> None:
        """Takes the number of removed rows. After a full sweep, the next message sweeps again: there may be more."""
        if rows >= SWEEP_ROWS:
            with self._lock:
                self._swept_ms = 0
