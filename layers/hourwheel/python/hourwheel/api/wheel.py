"""Function ``wheel``: turns the wheel of one bucket. A timer invokes the function, not a request."""

import json
import logging
from collections.abc import Callable
from typing import Any

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.api.periodic_flush import periodic_flush
from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.starts import SOON_MS
from hourwheel.cell import Cell
from hourwheel.delay.wheel import Pause
from hourwheel.errors import Broken, Unavailable
from hourwheel.ports import Clock

_LAST_STEP_MS = 20_000
"""The wheel stops this long before the invocation ends, so that a step it has begun can finish."""

_LEAST_MS = 360_000
"""Lambda stops functions that invoke each other more than 16 times in a row. With six minutes each, the wheel of an
hour takes fewer invocations."""

_logger = logging.getLogger("hourwheel")


def turning(flush: Callable[[], None]) -> Function:
    """Returns the function, which calls ``flush`` about once a minute, so that metrics do not pile up while it turns.

    A start that comes early is ordered again, and so is each one that a batch of the queue of precise timers names: the
    queue has its next messages read only when this invocation has ended. The function raises ``ValueError`` for an
    event that names no bucket, and for an invocation that is too short; it gives back messages of the queue that name
    no bucket, or whose wheel could not be started. Where a start that came early cannot be ordered again, it raises
    ``Unavailable`` or ``Broken``, and Lambda repeats the invocation.
    """

    def wheel(cell: Cell, event: Event, context: Invocation | None) -> Response:
        if isinstance(event, dict) and "Records" in event:
            return {"batchItemFailures": [{"itemIdentifier": each} for each in _start_all(cell, event["Records"])]}
        bucket, wakes_ms = _ordered(event)
        clock = cell.context.clock
        now_ms = clock.now_ms()
        # SQS delays for 15 minutes at most: a start that is further away takes several messages.
        if wakes_ms > now_ms + SOON_MS:
            cell.start_wheel(bucket, wakes_ms)
            return {"ended": "relayed"}
        leaves_ms = 0
        if context is not None:
            left_ms = context.get_remaining_time_in_millis()
            if left_ms < _LEAST_MS:
                raise ValueError(
                    f"the function has {left_ms} ms left and needs {_LEAST_MS}: give it a time-out of 15 minutes"
                )
            leaves_ms = now_ms + left_ms - _LAST_STEP_MS
        # Each invocation is an owner of its own: Lambda may run two for one event.
        owner = cell.context.ids.unique(now_ms)
        ended = cell.turn_wheel(bucket, owner, _flushing(clock, flush), leaves_ms=leaves_ms)
        return {"ended": ended.value}

    return wheel


def _start_all(cell: Cell, records: Any) -> list[str]:
    """Orders the wheels that messages of the queue name; returns the ids of the messages that name none, and of those
    whose wheel could not be started now: SQS delivers them again."""
    given_back = []
    for record in records:
        try:
            bucket, wakes_ms = _ordered(json.loads(record["body"]))
        except ValueError as error:
            _logger.error("message %s of the timer queue names no bucket: %s", record["messageId"], error)
            given_back.append(record["messageId"])
            continue
        try:
            cell.start_wheel(bucket, wakes_ms)
        except (Unavailable, Broken) as error:
            _logger.warning("the wheel of bucket %s could not be started: %s", bucket, error)
            given_back.append(record["messageId"])
    return given_back


def _ordered(event: Event) -> tuple[str, int]:
    """Returns the bucket, and the time for which its wheel was ordered (0: at once)."""
    name = event.get("bucket") if isinstance(event, dict) else None
    wakes_ms = event.get("wakes_ms", 0) if isinstance(event, dict) else None
    if not isinstance(name, str) or not isinstance(wakes_ms, int):
        raise ValueError('an event of the function wheel is {"bucket": NAME}')
    bucket = Bucket.parse(name)
    # No part of Hourwheel orders such a start.
    if wakes_ms > bucket.end_ms:
        raise ValueError(f"no wheel of bucket {name} starts at {wakes_ms}, after the end of the bucket")
    return bucket.name, wakes_ms


def _flushing(clock: Clock, flush: Callable[[], None]) -> Pause:
    step = periodic_flush(clock, flush)

    def pause(seconds: float) -> bool:
        clock.sleep(seconds)
        step()
        return True

    return pause
