"""Lets a wheel sleep between two turns, on one machine."""

import threading
import time

from hourwheel.ports.machine import Clock

_SLICE_SECONDS = 0.1
"""A sleeping wheel looks at the clock this often, because the clock may be set forward."""


class WheelSleep:
    """Lets one wheel sleep until a time, or until a message that is announced during the sleep is due.

    An announcement that comes while the wheel is awake counts for its next sleep, so that none is lost between the
    wheel's last look at the schedule log and its sleep.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        self._announced_ms: int | None = None
        self._until_ms = 0
        """The end of the sleep; 0 while the wheel is awake."""
        self._ended = False

    def announce(self, due_ms: int) -> None:
        """Wakes the wheel at ``due_ms``, or at once if that time has passed."""
        with self._changed:
            if self._announced_ms is None or due_ms < self._announced_ms:
                self._announced_ms = due_ms
                if due_ms < self._until_ms:
                    self._changed.notify()

    def end(self) -> None:
        """Ends this sleep and all further ones."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def sleep(self, seconds: float) -> bool:
        """Sleeps for this time, or until an announced message is due. Returns False once the wheel has to stop. With 0
        seconds it does not sleep, and keeps the announcements for the next sleep."""
        if seconds <= 0:
            return not self._ended
        # The monotonic clock bounds the sleep, as the other clock may be set back.
        latest = time.monotonic() + seconds
        with self._changed:
            self._until_ms = self._clock.now_ms() + round(seconds * 1_000)
            while not self._ended and (left_seconds := self._left(latest)) > 0:
                self._changed.wait(min(left_seconds, _SLICE_SECONDS))
            self._announced_ms, self._until_ms = None, 0
            return not self._ended

    def _left(self, latest: float) -> float:
        """Returns the seconds until the end of the sleep, or until the first announced message is due."""
        end_ms = self._until_ms if self._announced_ms is None else min(self._until_ms, self._announced_ms)
        return min((end_ms - self._clock.now_ms()) / 1_000, latest - time.monotonic())
