"""A timer that comes early, late, twice or never, or cannot be ordered, makes no message early, lost or double."""

from typing import Any

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.starts import SOON_MS
from hourwheel.delay.wheel import WheelEnd
from hourwheel.errors import Unavailable
from hourwheel.model.fields import Precision
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import RetryLater
from tests.support import Bench
from tests.unit.delay.test_precise_wheels import NEXT_HOUR_MS, at_the_hour, swept
from tests.unit.delay.test_waiting import bodies

BUCKET = Bucket.at(NEXT_HOUR_MS, 60)
HALF_SECONDS = 30 * 60


@pytest.fixture(params=[None, "minute"])
def precision(request: pytest.FixtureRequest) -> Precision | None:
    found: Precision | None = request.param
    return found


def with_a_reminder(precision: Precision | None) -> Bench:
    """Returns a cell with a message that is due in half an hour."""
    bench = at_the_hour()
    bench.deployment.produce("orders", [NewMessage(body="remind", delay=HALF_SECONDS, precision=precision)])
    return bench


@pytest.mark.parametrize("seconds_early", [3, 60, 1_200])
def test_a_timer_that_comes_early_sends_nothing_early(precision: Precision | None, seconds_early: int) -> None:
    bench = with_a_reminder(precision)
    bench.timers.ordered[:] = [(bench.clock.ms + (HALF_SECONDS - seconds_early) * 1_000, BUCKET.name)]
    bench.turn(HALF_SECONDS - 0.001)
    assert bodies(bench) == []
    bench.turn(1)
    assert bodies(bench) == ["remind"]


@pytest.mark.parametrize("seconds_late", [1, 50, 600])
def test_a_timer_that_comes_late_sends_everything_then(precision: Precision | None, seconds_late: int) -> None:
    bench = with_a_reminder(precision)
    bench.timers.ordered[:] = [(bench.clock.ms + (HALF_SECONDS + seconds_late) * 1_000, BUCKET.name)]
    bench.turn(HALF_SECONDS + seconds_late + 1)
    assert bodies(bench) == ["remind"]


def test_a_timer_that_comes_again_after_its_message_sends_nothing_more(precision: Precision | None) -> None:
    bench = with_a_reminder(precision)
    bench.turn(HALF_SECONDS + 1)
    bench.timers.at(bench.clock.ms, BUCKET.name)
    assert bench.turn(20) == [WheelEnd.ASLEEP]
    assert bodies(bench) == ["remind"]


def test_a_timer_that_never_comes_is_replaced_by_the_sweeper(precision: Precision | None) -> None:
    bench = with_a_reminder(precision)
    bench.timers.ordered.clear()
    swept(bench, 33)
    bench.turn(3)
    assert bodies(bench) == ["remind"]


def test_a_timer_that_cannot_be_ordered_is_counted_and_replaced_by_the_sweeper(
    precision: Precision | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throttled(*_: Any) -> None:
        raise Unavailable("ThrottlingException")

    bench = at_the_hour()
    with monkeypatch.context() as patch:
        for port, verb in ((bench.timers, "at"), (bench.precise, "after"), (bench.precise, "relay")):
            patch.setattr(port, verb, throttled)
        bench.deployment.produce("orders", [NewMessage(body="remind", delay=HALF_SECONDS, precision=precision)])
    assert ("WakesMissed", 1) in bench.meter.metrics
    swept(bench, 33)
    bench.turn(3)
    assert bodies(bench) == ["remind"]


@pytest.mark.parametrize("seconds", [1, 5, 6, 60, 179, 180, 600, 899, 902])
def test_a_delay_of_less_than_15_minutes_needs_no_schedule(seconds: int) -> None:
    """A start within five seconds of now is an invocation, and a later one a message of the queue of timers."""
    bench = at_the_hour()
    assert bench.precise is not None
    bench.send_later("soon", delay=seconds)
    assert "relay" not in bench.precise.orders
    precise_at = {bench.clock.ms + wait * 1_000 for wait in bench.precise.orders if isinstance(wait, int)}
    assert all(at_ms <= bench.clock.ms + SOON_MS or at_ms in precise_at for at_ms, _ in bench.timers.ordered)
    bench.turn(seconds + 0.6)
    assert bodies(bench) == ["soon"]


@pytest.mark.parametrize("delay", ["10s", "5m", "14m"])
def test_a_retry_within_15_minutes_needs_no_schedule(delay: str) -> None:
    bench = at_the_hour()
    assert bench.precise is not None
    bench.send("fails")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[RetryLater(index=0, delay=delay)])
    assert "relay" not in bench.precise.orders
    bench.turn(15 * 60)
    assert bodies(bench) == ["fails"]
