"""Decides how many messages a consumer pulls at a time.

A request costs both sides the same whether it brings 100 messages or 800. A handler that takes microseconds for a
message would wait for requests most of its time. So a consumer whose handlers are fast pulls more at a time, and a
consumer whose handlers are slow leases no more than it was told to: the others of its group get the rest.
"""

from hourwheel.model.fields import BATCH_MESSAGES

_MOST_TIMES = 8
"""The largest pull, in pulls of ``max_messages``: what then remains of the cost of a request is small."""

_WORK_SECONDS = 0.05
"""A larger pull holds the work of this time: less than the wait for another consumer would save."""


class PullSize:
    """Watches how fast messages are handled, and says how many to pull. The caller passes the time in."""

    def __init__(self, max_messages: int) -> None:
        self._at_least = max_messages
        self._at_most = min(BATCH_MESSAGES, _MOST_TIMES * max_messages)
        self._handled = 0
        self._at: float | None = None

    def next(self, handled: int, now: float) -> int:
        """Returns the size of the pull that begins now. ``handled``: the messages that
        handlers have decided about so far."""
        since, before = self._at, self._handled
        self._at, self._handled = now, handled
        if since is None or now <= since:
            return self._at_least
        work = int((handled - before) / (now - since) * _WORK_SECONDS)
        return max(self._at_least, min(work, self._at_most))
