"""Function ``wheel``: turns the wheel of one bucket. A timer invokes the function, not a request."""

from collections.abc import Callable

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.api.periodic_flush import periodic_flush
from hourwheel.buckets.buckets import Bucket
from hourwheel.cell import Cell
from hourwheel.delay.wheel import Pause
from hourwheel.ports import Clock

_LAST_STEP_MS = 20_000
"""The wheel stops this long before the invocation ends, so that a step it has begun can finish."""

_LEAST_MS = 360_000
"""Lambda stops functions that invoke each other more than 16 times in a row. With six minutes each, the wheel of an
hour takes fewer invocations."""


def turning(flush: Callable[[], None]) -> Function:
    """Returns the function, which calls ``flush`` about once a minute, so that metrics do not pile up while it turns.

    The function raises ``ValueError`` for an event that names no bucket, and for an invocation that is too short.
    """

    def wheel(cell: Cell, event: Event, context: Invocation | None) -> Response:
        bucket = _bucket(event)
        clock = cell.context.clock
        now_ms = clock.now_ms()
        leaves_ms = 0
        if context is not None:
            left_ms = context.get_remaining_time_in_millis()
            if left_ms < _LEAST_MS:
                raise ValueError(
                    f"the function has {left_ms} ms left and needs {_LEAST_MS}: give it a time-out of 15 minutes"
                )
            leaves_ms = now_ms + left_ms - _LAST_STEP_MS
        owner = cell.context.ids.unique(now_ms)
        ended = cell.turn_wheel(bucket, owner, _flushing(clock, flush), leaves_ms=leaves_ms)
        return {"ended": ended.value}

    return wheel


def _bucket(event: Event) -> str:
    name = event.get("bucket") if isinstance(event, dict) else None
    if not isinstance(name, str):
        raise ValueError('an event of the function wheel is {"bucket": NAME}')
    return Bucket.parse(name).name


def _flushing(clock: Clock, flush: Callable[[], None]) -> Pause:
    step = periodic_flush(clock, flush)

    def pause(seconds: float) -> bool:
        clock.sleep(seconds)
        step()
        return True

    return pause
