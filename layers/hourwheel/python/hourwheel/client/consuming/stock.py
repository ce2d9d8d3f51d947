"""Decides when a consumer pulls, and how many messages: a consumer with slow handlers leaves messages to the others of
its group, one with fast handlers waits for few requests.

By default the stock follows the handlers: it is what they have finished within their last second of work. At the start
it is a message for each handler and one more, and it grows with the messages that are finished.
"""

import math

from hourwheel.client.consuming.pull_size import PullSize

_GROWTH = 4
"""The stock of fast handlers grows this fast from pull to pull: to 800 messages within six."""

_AHEAD = 4
"""The least stock that waits is a message for each four handlers: 100 slow handlers pull 25 at a time, not each one."""


class Stock:
    """Not thread-safe: the pull session calls it under its lock, and passes the time in."""

    def __init__(self, max_messages: int) -> None:
        self._size = PullSize(max_messages)
        self._max_messages = max_messages
        self.low_water = 0
        """A pull begins once no more than this many messages wait."""
        self._handlers: int | None = None
        self._idle = 0
        self._busy_seconds = 0.0  # of all handlers together, since the last pull
        self._handled = 0
        self._recent = 0.0
        self._seconds = 0.0
        self._at: float | None = None

    def follow(self, handlers: int | None) -> None:
        """Lets the stock follow this number of handlers. With None, pulls bring ``max_messages`` or more, and the next
        pull begins when fewer wait: a handler that ends a pull finds the next one there."""
        self._handlers = handlers
        self.low_water = self._max_messages - 1 if handlers is None else 0

    def idle(self, handlers: int, now: float) -> None:
        """Records how many handlers wait for a message."""
        if self._handlers is not None:
            self._work_until(now)
            self._idle = handlers
            self._handlers = max(self._handlers, handlers)  # loops in several threads

    def next_size(self, handled: int, waiting: int, now: float) -> int:
        """Returns the size of the pull that begins now. ``handled`` messages were decided so far, and ``waiting`` ones
        were pulled and not handed out."""
        size = self._size.next(handled, now)
        self.low_water = max(self._max_messages - 1, size // 2)
        if self._handlers is None:
            return size
        idle = self._handlers if self._at is None else self._idle
        self._work_until(now)
        ahead = max(1, self._handlers // _AHEAD, int(self._last_second(handled)) - self._handlers)
        self.low_water = min(self.low_water, ahead // 2)
        return min(size, max(1, idle + ahead - waiting))

    def _work_until(self, now: float) -> None:
        if self._at is not None and self._handlers is not None:
            self._busy_seconds += max(0, self._handlers - self._idle) * (now - self._at)
        self._at = now

    def _last_second(self, handled: int) -> float:
        """Returns how many messages the handlers finish within a second of work, by their last ones, with weights that
        fade: time in which they wait for messages does not count. Before they have worked for a second, returns at most
        a few times as many as they have finished."""
        assert self._handlers is not None
        seconds, self._busy_seconds = self._busy_seconds / self._handlers, 0.0
        fresh, self._handled = handled - self._handled, handled
        weight = -math.expm1(-seconds) / seconds if seconds else 1.0  # that of work spread evenly over these seconds
        self._recent = self._recent * math.exp(-seconds) + fresh * weight
        self._seconds += seconds
        share = -math.expm1(-self._seconds)  # of all weights, that of the time so far
        return min(self._recent / share, _GROWTH * self._recent) if share else _GROWTH * self._recent
