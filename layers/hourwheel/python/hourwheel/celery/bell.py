"""Wakes the thread that hands out messages, through a descriptor that an event loop can watch."""

import os
import select
import threading
from contextlib import suppress


class Bell:
    """Makes a descriptor readable from any thread, until the thread that hands out messages has seen it."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._lock = threading.Lock()
        self._rung = False
        self._closed = False
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def fileno(self) -> int:
        return self._reader

    def ring(self) -> None:
        """Makes the descriptor readable, from any thread."""
        with self._lock:
            if not self._rung and not self._closed:
                self._rung = True
                os.write(self._writer, b"\0")

    def hush(self) -> None:
        """Makes the descriptor unreadable. Callers do so before they look for messages: a ring during the look
        stays."""
        with self._lock:
            if self._rung and not self._closed:
                self._rung = False
                with suppress(BlockingIOError):
                    os.read(self._reader, 1)

    def wait(self, timeout_seconds: float | None) -> bool:
        """Waits ``timeout_seconds`` at most for a ring (None: without end), and returns whether one came."""
        ready = self._poll.poll(None if timeout_seconds is None else max(0.0, timeout_seconds * 1_000))
        return bool(ready)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._reader)
            os.close(self._writer)

    def __del__(self) -> None:
        # Celery drops connections without closing them, after a fork. The lock is of no use to an object that nobody
        # else has, and a thread of the parent may have held it when the process forked.
        self._close()
