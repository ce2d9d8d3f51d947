"""Wakes the thread that hands out messages, through a descriptor that an event loop can watch."""

import select
import socket
import threading
from contextlib import suppress

from hourwheel.locks import gives_back


class Bell:
    """Makes a descriptor readable from any thread, until the thread that hands out messages has seen it."""

    def __init__(self) -> None:
        self._ear, self._hammer = socket.socketpair()  # not a pipe: on Windows, select takes sockets only
        self._ear.setblocking(False)
        self._hammer.setblocking(False)
        self._descriptor = self._ear.fileno()  # an event loop may ask for it once the bell is closed
        self._lock = threading.RLock()
        self._rung = False
        self._closed = False

    def fileno(self) -> int:
        return self._descriptor

    @gives_back
    def ring(self) -> None:
        """Makes the descriptor readable, from any thread."""
        with self._lock:
            if not self._rung and not self._closed:
                self._rung = True
                self._hammer.send(b"\0")

    @gives_back
    def hush(self) -> None:
        """Makes the descriptor unreadable. Callers do so before they look for messages: a ring during the look
        stays."""
        with self._lock:
            if self._rung and not self._closed:
                self._rung = False
                with suppress(BlockingIOError):
                    self._ear.recv(1)

    def wait(self, timeout_seconds: float | None) -> bool:
        """Waits ``timeout_seconds`` at most for a ring (None: without end), and returns whether one came."""
        seconds = None if timeout_seconds is None else max(0.0, timeout_seconds)
        if hasattr(select, "poll"):  # select refuses descriptors from 1,024 on; Windows and eventlet have no poll
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            return bool(poll.poll(None if seconds is None else seconds * 1_000))
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    @gives_back
    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ear.close()
            self._hammer.close()

    def __del__(self) -> None:
        # Celery drops connections without closing them, after a fork. The lock is of no use to an object that nobody
        # else has, and a thread of the parent may have held it when the process forked.
        self._close()
