"""Reads the machine's clock and randomness. No other module does; the core takes both through its ports."""

import os
import threading
import time
import weakref

from hourwheel.locks import gives_back

_POOL_BYTES = 4_096  # a call of the system for each token would cost more than the token
_JITTER_BITS = 53  # what a float holds exactly


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class SystemIds:
    """Draws randomness from the operating system, 4 KB at a time: each draw gives up the interpreter lock, and in a
    busy server the thread then waits for its turn again. A forked child draws bytes of its own."""

    def __init__(self) -> None:
        self._fresh()
        _pools.add(self)

    def token(self) -> bytes:
        return self._draw(16)

    def unique(self, now_ms: int) -> str:
        return f"{now_ms:012x}{self._draw(8).hex()}"

    def jitter(self) -> float:
        return (int.from_bytes(self._draw(8), "big") >> (64 - _JITTER_BITS)) / (1 << _JITTER_BITS)

    def _fresh(self) -> None:
        self._lock = threading.RLock()
        self._pool = b""
        self._at = 0

    @gives_back
    def _draw(self, count: int) -> bytes:
        with self._lock:
            if self._at + count > len(self._pool):
                self._pool = os.urandom(_POOL_BYTES)
                self._at = 0
            self._at += count
            return self._pool[self._at - count : self._at]


_pools: "weakref.WeakSet[SystemIds]" = weakref.WeakSet()


def _begin_anew() -> None:
    """Empties the pools of a forked child, whose bytes are those of the parent."""
    for ids in list(_pools):
        ids._fresh()


# Once for the process: what is registered stays to its end, with all that it refers to. Windows does not fork.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
