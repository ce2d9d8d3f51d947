"""How long a delayed message may have waited for its wheel is known from the records of buckets and owners alone."""

import pytest

from hourwheel.buckets.buckets import LEAD_MS, Bucket
from hourwheel.buckets.lease import START_MS, WheelOwner
from hourwheel.buckets.starts import COARSE_MS
from hourwheel.delay.maintenance import waiting_since
from tests.support import Bench, CallByCall

HOUR_MS = 3_600_000
BUCKET = Bucket(10 * HOUR_MS, 60)
NOW_MS = BUCKET.start_ms + HOUR_MS // 2


def left(**times: int) -> WheelOwner:
    return WheelOwner(owner="w", until_ms=0, **times)


@pytest.mark.parametrize(
    ("owner", "now_ms", "since_ms"),
    [
        (None, NOW_MS, BUCKET.start_ms),
        (None, BUCKET.start_ms - 1_000, BUCKET.start_ms - 1_000),
        (WheelOwner(owner="w", until_ms=NOW_MS + 1), NOW_MS, NOW_MS),
        (WheelOwner(owner="w", until_ms=BUCKET.end_ms + 90_000), BUCKET.end_ms + 70_000, BUCKET.end_ms),
        (WheelOwner(owner="w", until_ms=NOW_MS - 40_000), NOW_MS, NOW_MS - 40_000),
        (left(wakes_ms=NOW_MS - 10_000), NOW_MS, NOW_MS - 10_000 + START_MS),
        (left(wakes_ms=NOW_MS + 10_000), NOW_MS, NOW_MS),
        (left(wakes_ms=BUCKET.end_ms), BUCKET.end_ms + 90_000, BUCKET.end_ms + 90_000),
        (left(wakes_ms=BUCKET.end_ms, minute_ms=NOW_MS - 100_000), NOW_MS, NOW_MS - 100_000 + START_MS + COARSE_MS),
    ],
    ids=["never", "early", "turns", "late", "died", "unstarted", "asleep", "closing", "coarse"],
)
def test_since_when_a_message_may_wait(owner: WheelOwner | None, now_ms: int, since_ms: int) -> None:
    assert waiting_since(owner, BUCKET, now_ms, START_MS) == since_ms


def test_a_silent_wheel_shows_and_one_that_turns_does_not() -> None:
    bench = Bench(CallByCall(Bench().store))
    bench.send_later("x", delay=600)
    bench.timers.ordered.clear()  # its timer is lost
    bench.clock.pass_time(600 + 30)
    bench.timers.ordered.clear()
    bench.deployment.sweeper.delayed.tend()
    (seconds,) = (value for name, value in bench.meter.metrics if name == "OverdueDelayedSeconds")
    assert seconds >= 30 - LEAD_MS / 1_000
    bench.turn(5)
    bench.meter.metrics.clear()
    bench.clock.pass_time(60)
    bench.deployment.sweeper.delayed.tend()
    assert not [name for name, _ in bench.meter.metrics if name == "OverdueDelayedSeconds"]
