"""Gives locks back that an interrupt left behind.

Ctrl-C, and an exception that another thread raises in this one, come between any two calls. From Python 3.14 on they
also come between ``with lock:`` and the first line of its block: then the lock is held, and nothing releases it
(python/cpython issue 148874). ``threading.Condition`` and ``threading.Event`` have such gaps in every version, because
they are written in Python.

So code that the main thread of a program may run follows one rule. A method that enters ``self._lock`` is decorated
with ``gives_back``, the lock is a ``threading.RLock``, which knows its owner, and conditions and events are those of
this module. A function that a decorator would make too slow, or that has no ``self._lock``, calls ``give_back`` in its
``except BaseException``. The signal handlers of a thread may call methods whose lock this thread holds.
"""

import functools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import starmap
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class OwnedLock(Protocol):
    """A lock that only its owner can release: a ``threading.RLock``, or a condition that has one."""

    def release(self) -> None: ...


def give_back(lock: OwnedLock) -> None:
    """Releases the lock as often as the calling thread has acquired it: not at all, if it does not hold the lock."""
    with suppress(RuntimeError):
        while True:
            lock.release()


def gives_back(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Makes a method leave ``self._lock`` as it found it, if an error ends the method. A method that is called while
    its thread holds the lock leaves that to its caller."""

    @functools.wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        lock: Any = self._lock  # type: ignore[attr-defined]  # the rule: the class has it
        inner = lock._is_owned()
        try:
            return method(self, *args, **kwargs)
        except BaseException:
            if not inner:
                give_back(lock)
            raise

    return call


class Condition(threading.Condition):
    """A condition of a ``threading.RLock``. When a wait ends, by an interrupt too, the lock is held as before.

    A signal handler may notify a condition for which its own thread is about to wait. So ``wait_for`` counts: a
    notification that came after the look ends the wait.
    """

    _waiters: Any  # those of the base class, which ``notify`` wakes
    _acquire_restore: Callable[[tuple[int, int]], None]
    _release_save: Callable[[], tuple[int, int]]

    def __init__(self, lock: Any) -> None:
        super().__init__(lock)
        self.notifications = 0

    def notify(self, n: int = 1) -> None:
        self.notifications += 1
        super().notify(n)

    def wait(self, timeout: float | None = None, since: int | None = None) -> bool:
        """Waits for a notification, at most ``timeout`` seconds, and returns whether it came. Does not wait if
        ``notifications`` is not ``since`` any more."""
        turn = threading.Lock()
        turn.acquire()
        notified = False
        held: list[tuple[int, int]] = []
        try:
            self._waiters.append(turn)
            if since is not None and since != self.notifications:
                return True
            # One call, so that no interrupt comes between the release and the note of how often the lock was held.
            held.extend(starmap(self._release_save, [()]))
            notified = turn.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            return notified
        finally:
            for depth in held:
                self._acquire_restore(depth)  # unlike ``acquire``, no interrupt ends it before it holds the lock
            if not notified:
                with suppress(ValueError):
                    self._waiters.remove(turn)

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """Waits until the predicate is true, at most ``timeout`` seconds, and returns its last value."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            since = self.notifications
            result = predicate()
            left_seconds = None if until is None else until - time.monotonic()
            if result or (left_seconds is not None and left_seconds <= 0):
                return result
            self.wait(left_seconds, since)


class Event:
    """Does what ``threading.Event`` does. A thread that is interrupted in ``wait`` holds up no other."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self._set = False

    def is_set(self) -> bool:
        return self._set

    @gives_back
    def set(self) -> None:
        with self._lock:
            self._set = True
            self._changed.notify_all()

    @gives_back
    def clear(self) -> None:
        with self._lock:
            self._set = False

    @gives_back
    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the event is set, at most ``timeout`` seconds, and returns whether it is."""
        with self._lock:
            return self._changed.wait_for(self.is_set, timeout)
