"""Defines what starts the wheels of buckets at their time."""

from typing import Protocol


class Timers(Protocol):
    """Starts the wheels of buckets."""

    def at(self, when_ms: int, bucket: str) -> None:
        """Orders a start of the bucket's wheel at that time, at least once. The start comes at most 5 s before the time
        and a minute after it; if the time has passed, within a second or two. A repetition for the same time and bucket
        may do nothing. May raise ``Unavailable``.
        """
        ...


PRECISE_SECONDS = 900
"""A precise timer waits at most this long (the limit of SQS)."""


class PreciseTimers(Protocol):
    """Starts the wheels of buckets at their second. A start names the time for which it was ordered: a start that comes
    early is ordered again."""

    def after(self, seconds: int, bucket: str, wakes_ms: int) -> None:
        """Orders a start that names ``wakes_ms``, after this number of seconds (0 to ``PRECISE_SECONDS``), at least
        once. It comes at most a second or two later while the queue of the timers is read, and otherwise waits in the
        queue until the reading begins. May raise ``Unavailable``."""
        ...

    def relay(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        """Orders a start at that time, at least once and at most a minute late, that names ``wakes_ms``: the start then
        orders a precise one. A repetition for the same time and bucket may do nothing. May raise ``Unavailable``."""
        ...

    def listen(self, on: bool) -> bool:
        """Begins (or with False ends) the reading of the queue, within a minute or two. Returns whether the queue is
        certainly read already. Idempotent. May raise ``Unavailable``."""
        ...
