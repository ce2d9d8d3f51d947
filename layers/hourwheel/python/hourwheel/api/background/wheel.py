"""Function ``wheel``: turns the wheel of one bucket. A timer invokes the function, not a request."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hourwheel.api.background.periodic_flush import periodic_flush
from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.starts import SOON_MS
from hourwheel.context import Context
from hourwheel.delay.wheel import Pause
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import Broken, Unavailable
from hourwheel.times import within

_LAST_STEP_MS = 20_000
"""The wheel stops this long before the invocation ends, so that a step it has begun can finish."""

_LEAST_MS = 360_000
"""The least time of an invocation. Lambda stops functions that invoke each other more than 16 times in a row; with six
minutes each, the wheel of an hour takes ten invocations."""

_MINUTE_MS = 60_000
_TOLD_BUSY = 0.25
"""The part of a minute from which on it is told how busy a wheel is: a metric costs money in the hours in which it is
recorded."""

_logger = logging.getLogger("hourwheel")


def turning(flush: Callable[[], None]) -> Function:
    """Returns the function, which calls ``flush`` about once a minute while the wheel turns.

    An event that names a bucket turns its wheel, unless the event comes early: then the function orders the start
    again and ends. A batch of precise timers orders one start for each timer and ends, because Lambda reads the queue
    on only when this invocation has ended.

    The function raises ``ValueError`` for an event that names no bucket, and for an invocation that is too short. It
    raises ``Unavailable`` or ``Broken`` where it cannot order a start again: Lambda then repeats the invocation. Of a
    batch it gives back the timers that name no bucket, and those whose start it could not order.
    """

    def wheel(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
        if isinstance(event, dict) and "Records" in event:
            return {
                "batchItemFailures": [
                    {"itemIdentifier": record_id} for record_id in _start_all(deployment, event["Records"])
                ]
            }
        bucket, wakes_ms = _ordered(event)
        clock = deployment.context.clock
        now_ms = clock.now_ms()
        # A timer for a start more than 15 minutes ahead fires early, for a precise one to be ordered (decision 41).
        if wakes_ms > now_ms + SOON_MS:
            deployment.start_wheel(bucket, wakes_ms)
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
        owner = deployment.context.ids.unique(now_ms)
        ended = deployment.turn_wheel(bucket, owner, _flushing(deployment.context, flush), leaves_ms=leaves_ms)
        return {"ended": ended.value}

    return wheel


def _start_all(deployment: Deployment, records: Any) -> list[str]:
    """Orders a start for each timer of the queue. Returns the ids of the messages that name no bucket, and of those
    whose start could not be ordered now: SQS delivers them again."""
    given_back = []
    for record in records:
        try:
            bucket, wakes_ms = _ordered(json.loads(record["body"]))
        except ValueError as error:
            _logger.error("message %s of the timer queue starts no wheel: %s", record["messageId"], error)
            given_back.append(record["messageId"])
            continue
        try:
            deployment.start_wheel(bucket, wakes_ms)
        except (Unavailable, Broken) as error:
            _logger.warning("the wheel of bucket %s could not be started: %s", bucket, error)
            given_back.append(record["messageId"])
    return given_back


def _ordered(event: Event) -> tuple[str, int]:
    """Returns the bucket that an event names, and the time for which the start of its wheel was ordered (0: at once).
    Raises ``ValueError``."""
    name = event.get("bucket") if isinstance(event, dict) else None
    wakes_ms = event.get("wakes_ms", 0) if isinstance(event, dict) else None
    if not isinstance(name, str) or not isinstance(wakes_ms, int):
        raise ValueError('an event of the function wheel must be {"bucket": NAME}, or hold messages of its timer queue')
    bucket = Bucket.parse(name)
    # Every message of a bucket is due before its end. An event with a later time would be relayed again and again.
    if wakes_ms > bucket.end_ms:
        raise ValueError(f"no wheel of bucket {name} starts at {wakes_ms}, after the end of the bucket")
    return bucket.name, wakes_ms


@dataclass
class _WorkShare:
    """Measures which part of each minute a wheel works: it pauses less and less before its messages are late."""

    context: Context
    began_ms: int
    paused_ms: int = 0

    def sleep(self, seconds: float) -> None:
        """Sleeps. Records once a minute, if the wheel is busy, which part of the minute it has worked."""
        clock = self.context.clock
        before_ms = clock.now_ms()
        clock.sleep(seconds)
        now_ms = clock.now_ms()
        self.paused_ms += max(0, now_ms - before_ms)
        if within(self.began_ms, now_ms, _MINUTE_MS):
            return
        share = 1 - self.paused_ms / max(1, now_ms - self.began_ms)
        if _TOLD_BUSY <= share <= 1:  # a clock that was set gives any number
            self.context.meter.record("WheelBusyPercent", 100 * share, unit="Percent")
        self.began_ms, self.paused_ms = now_ms, 0


def _flushing(context: Context, flush: Callable[[], None]) -> Pause:
    step, busy = periodic_flush(context.clock, flush), _WorkShare(context, context.clock.now_ms())

    def pause(seconds: float) -> bool:
        busy.sleep(seconds)
        step()
        return True

    return pause
