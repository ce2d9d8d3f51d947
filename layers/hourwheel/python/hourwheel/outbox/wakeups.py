"""Wakes the relays of this process when rows were committed."""

import threading
from weakref import WeakSet

_waiting: "WeakSet[Wakeup]" = WeakSet()
_lock = threading.Lock()


class Wakeup:
    """Lets the threads of a relay wait for rows. A wake-up that comes while nobody waits is kept for each thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        with _lock:
            _waiting.add(self)

    @property
    def count(self) -> int:
        """The number of wake-ups so far: a thread reads it before it looks."""
        return self._count

    def set(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, seconds: float) -> bool:
        """Waits until there were more wake-ups than ``seen``, and returns whether there were."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count != seen, seconds)


def wake() -> None:
    """Has the relays of this process look for rows now. ``send`` does so for sessions that tell of their commits; a
    program that commits a plain connection of SQLite or MySQL calls this after its commit.

    Raises nothing.

    Example:
        >>> wake()
    """
    with _lock:
        waiting = list(_waiting)
    for each in waiting:
        each.set()
