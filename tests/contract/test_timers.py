"""Timers start wheels in time and at least once."""

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.system import SystemClock

from .records import at_once
from .timers import Opened

AT_ONCE_SECONDS = 120.0
"""On an idle machine a start takes one or two seconds. The orders that must not delay it are for an hour later."""

LATEST_MS = 60_000
HOUR_MS = 3_600_000


def bucket(number: int = 0) -> str:
    return Bucket(1_800_000_000_000 + number * HOUR_MS, 60).name


@pytest.mark.parametrize("ago_ms", [0, 1, 1_000, 86_400_000])
def test_where_the_time_has_passed_the_wheel_is_started_at_once(timers: Opened, ago_ms: int) -> None:
    timers.timers.at(SystemClock().now_ms() - ago_ms, bucket())
    timers.started(bucket(), seconds=AT_ONCE_SECONDS)


def test_a_wheel_is_started_at_its_time_or_up_to_a_minute_later(timers: Opened) -> None:
    when_ms = SystemClock().now_ms() + timers.ahead_ms
    timers.timers.at(when_ms, bucket())
    (start,) = timers.started(bucket(), seconds=AT_ONCE_SECONDS)
    assert when_ms - timers.early_ms <= start.at_ms <= when_ms + LATEST_MS


def test_each_bucket_is_started(timers: Opened) -> None:
    now_ms = SystemClock().now_ms()
    for number in range(10):
        timers.timers.at(now_ms - number, bucket(number))
    timers.started(*map(bucket, range(10)), seconds=AT_ONCE_SECONDS)


def test_the_same_order_again_is_harmless(timers: Opened) -> None:
    when_ms = SystemClock().now_ms() + timers.ahead_ms
    for _ in range(5):
        timers.timers.at(when_ms, bucket())
    assert timers.started(bucket(), seconds=AT_ONCE_SECONDS)


def test_an_earlier_order_is_not_held_up_by_a_later_one(timers: Opened) -> None:
    now_ms = SystemClock().now_ms()
    timers.timers.at(now_ms + HOUR_MS, bucket())
    timers.timers.at(now_ms, bucket())
    timers.started(bucket(), seconds=AT_ONCE_SECONDS)


def test_a_wheel_that_has_ended_is_started_again(timers: Opened) -> None:
    timers.timers.at(SystemClock().now_ms(), bucket())
    timers.started(bucket(), seconds=AT_ONCE_SECONDS)
    timers.timers.at(SystemClock().now_ms(), bucket())
    timers.timers.at(SystemClock().now_ms(), bucket(1))
    starts = timers.started(bucket(), bucket(), bucket(1), seconds=AT_ONCE_SECONDS)
    assert [start.bucket for start in starts].count(bucket()) == 2


def test_orders_of_many_threads_are_all_kept(timers: Opened) -> None:
    timers.timers.at(SystemClock().now_ms(), bucket(100))
    at_once(lambda thread: timers.timers.at(SystemClock().now_ms(), bucket(thread)))
    timers.started(*map(bucket, range(8)), seconds=AT_ONCE_SECONDS)
