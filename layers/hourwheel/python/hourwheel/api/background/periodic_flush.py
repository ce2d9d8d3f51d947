"""Prints the metrics of long invocations while they run, so that a killed invocation loses at most a minute of them."""

from collections.abc import Callable

from hourwheel.ports.machine import Clock

_FLUSH_MS = 60_000  # CloudWatch keeps metrics by the minute


def periodic_flush(clock: Clock, flush: Callable[[], None]) -> Callable[[], None]:
    """Returns a callback for loops to call at each step; the callback calls ``flush`` about once a minute."""
    flushed_ms = clock.now_ms()

    def step() -> None:
        nonlocal flushed_ms
        if clock.now_ms() - flushed_ms >= _FLUSH_MS:
            flushed_ms = clock.now_ms()
            flush()

    return step
