"""Metrics of invocations that last: without it they would be told at the end alone, or never."""

from collections.abc import Callable

from hourwheel.ports import Clock

_FLUSH_MS = 60_000


def periodic_flush(clock: Clock, flush: Callable[[], None]) -> Callable[[], None]:
    """Something to call often, which calls ``flush`` about each minute."""
    flushed_ms = clock.now_ms()

    def tell() -> None:
        nonlocal flushed_ms
        if clock.now_ms() - flushed_ms >= _FLUSH_MS:
            flushed_ms = clock.now_ms()
            flush()

    return tell
