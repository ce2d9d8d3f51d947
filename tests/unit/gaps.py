"""Interrupts the main thread between taking a lock and the block behind it, as Ctrl-C may on Python 3.14."""

import sys
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import hourwheel

FAR_SECONDS = 30.0
_PACKAGE = str(Path(hourwheel.__file__).parent)
_OF_FUTURES = str(Path("concurrent") / "futures")


class Gaps:
    """Interrupts the main thread at one of the blocks on locks that it enters. ``left`` counts them down."""

    def __init__(self) -> None:
        self.left = -1

    def entered(self) -> None:
        """Raises ``KeyboardInterrupt`` in place of the first line of a block."""
        if self.left < 0 or threading.get_ident() != threading.main_thread().ident or not _of_the_library():
            return
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt


def _of_the_library() -> bool:
    """Returns whether a module of the library, or the future that it derives from, enters the lock."""
    frame = sys._getframe(3)
    while frame.f_code.co_filename == threading.__file__ and frame.f_back is not None:
        frame = frame.f_back  # a condition enters its lock
    name = frame.f_code.co_filename
    return name.startswith(_PACKAGE) or _OF_FUTURES in name


class WatchedLock:
    """A lock of ``threading`` behind whose ``__enter__`` an interrupt may come."""

    def __init__(self, lock: Any, gaps: Gaps) -> None:
        self._lock = lock
        self._gaps = gaps

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def __enter__(self) -> bool:
        self._lock.acquire()
        self._gaps.entered()
        return True

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def patch_locks(monkeypatch: pytest.MonkeyPatch) -> Gaps:
    """Makes the locks of ``threading``, from now on, those that an interrupt may come behind."""
    gaps = Gaps()
    for name in ("Lock", "RLock"):
        make = getattr(threading, name)
        monkeypatch.setattr(threading, name, lambda make=make: WatchedLock(make(), gaps))
    return gaps


def interrupt_at_each_gap(gaps: Gaps, begin: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]]) -> int:
    """Interrupts a call behind each lock that it takes, and returns their number.

    ``begin`` returns the call, and another that has to end afterwards, in two other threads.
    """
    for gap in count():
        call, other = begin()
        gaps.left = gap
        try:
            call()
        except KeyboardInterrupt:
            interrupted = True
        else:
            interrupted = False
        swallowed, gaps.left = not interrupted and gaps.left < 0, -1
        for name in ("another thread", "a second one"):
            thread = threading.Thread(target=other, daemon=True)
            thread.start()
            thread.join(FAR_SECONDS)
            assert not thread.is_alive(), f"{name} waits for ever after an interrupt at lock {gap}"
        assert not swallowed, f"the interrupt at lock {gap} was swallowed"
        if not interrupted:
            return gap
    raise AssertionError
