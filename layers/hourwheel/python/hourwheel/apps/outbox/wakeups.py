"""Wakes the relays of this process when rows are committed."""

import threading
from weakref import WeakSet

from hourwheel.locks import Condition, give_back, gives_back

_wakeups: "WeakSet[Wakeup]" = WeakSet()
_lock = threading.RLock()


class Wakeup:
    """Lets the threads of a relay wait for rows. A thread that is busy when a wake-up comes does not miss it: the next
    ``wait`` of this thread ends at once."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self._count = 0
        try:
            with _lock:
                _wakeups.add(self)
        except BaseException:
            give_back(_lock)
            raise

    @property
    def count(self) -> int:
        """The number of wake-ups so far. A thread reads it before it looks for rows, and passes it to ``wait``."""
        return self._count

    @gives_back
    def set(self) -> None:
        with self._lock:
            self._count += 1
            self._changed.notify_all()

    @gives_back
    def wait(self, seen: int, seconds: float) -> bool:
        """Waits ``seconds`` at most for the wake-up that follows the first ``seen`` ones, and returns whether it
        came."""
        with self._lock:
            return self._changed.wait_for(lambda: self._count != seen, seconds)


def wake() -> None:
    """Has the relays of this process look for rows now. ``send`` does so for sessions that tell of their commits; a
    program that commits a plain connection of SQLite or MySQL calls this after its commit.

    Raises nothing.

    Example:
        >>> wake()
    """
    try:
        with _lock:
            wakeups = list(_wakeups)
    except BaseException:
        give_back(_lock)
        raise
    for wakeup in wakeups:
        wakeup.set()
