"""Gives locks back that an interrupt left behind.

Ctrl-C, and an exception that another thread raises in this one, come between any two calls. From Python 3.14 on they
also come between ``with lock:`` and the first line of its block: then the lock is held, and nothing releases it
(python/cpython issue 148874). ``threading.Condition`` and ``threading.Event`` have such gaps in every version, because
they are written in Python.

So code that the main thread of a program may run follows one rule: a method that enters ``self._lock`` is decorated
with ``gives_back``, the lock is a ``threading.RLock``, which knows its owner, and conditions and events are those of
this module. A function that a decorator would make too slow, or that has no ``self._lock``, calls ``give_back`` in its
``except BaseException``. The signal handlers of a thread may call methods whose lock this thread holds.
"""

import functools
import threading
from collections.abc import Callable
from contextlib import suppress
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
    """A condition of a ``threading.RLock``. When a wait ends, by an interrupt too, the lock is held as before."""

    _waiters: Any  # those of the base class, which ``notify`` wakes
    _acquire_restore: Callable[[tuple[int, int]], None]

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for a notification, at most ``timeout`` seconds, and returns whether it came. The caller has acquired
        the lock once."""
        turn = threading.Lock()
        turn.acquire()
        acquired_once = (1, threading.get_ident())
        notified = False
        self._waiters.append(turn)
        try:
            self.release()  # an interrupt comes when it has returned, so the lock is free from here on
            notified = turn.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            return notified
        finally:
            self._acquire_restore(acquired_once)  # unlike ``acquire``, no interrupt ends it before it holds the lock
            if not notified:
                with suppress(ValueError):
                    self._waiters.remove(turn)


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
