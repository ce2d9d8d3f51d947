"""The means of starting a wheel are chosen by the time that is left, and by whether precise timers are read."""

import pytest

from hourwheel.buckets.buckets import Bucket, order_timer
from hourwheel.buckets.lease import START_MS, WheelOwner, lacks_wheel, owner_record, planned_start
from hourwheel.buckets.starts import (
    COARSE_MS,
    KEPT_MS,
    RELAY_MS,
    SOON_MS,
    SWITCH_MS,
    StartKind,
    keep_listening,
    shortest_rest_ms,
    start_kind,
)
from hourwheel.ports.timers import PRECISE_SECONDS
from tests.support import NOON_MS, Bench, CallByCall, HandPreciseTimers

BUCKET = Bucket.at(NOON_MS, 60)
NEED_MS = NOON_MS + 600_000
LONGEST_MS = PRECISE_SECONDS * 1_000


def precise(bench: Bench) -> HandPreciseTimers:
    assert bench.precise is not None
    return bench.precise


def recording(bench: Bench) -> CallByCall:
    assert isinstance(bench.store, CallByCall)
    return bench.store


@pytest.mark.parametrize(
    ("wait_ms", "listening_ms", "means"),
    [
        (-1, 0, StartKind.AT_ONCE),
        (SOON_MS, LONGEST_MS, StartKind.AT_ONCE),
        (SOON_MS + 1, SOON_MS, StartKind.AT_ONCE),
        (SOON_MS + 1, SOON_MS + 1, StartKind.PRECISE),
        (SWITCH_MS - 1, 0, StartKind.AT_ONCE),
        (SWITCH_MS, 0, StartKind.PRECISE),
        (LONGEST_MS, 0, StartKind.PRECISE),
        (LONGEST_MS + 1, LONGEST_MS, StartKind.RELAYED),
    ],
)
def test_a_start_is_ordered_by_the_means_that_comes_in_time(wait_ms: int, listening_ms: int, means: StartKind) -> None:
    assert start_kind(wait_ms, listening_ms) is means


def test_a_relay_that_is_as_late_as_it_may_be_leaves_time_to_switch_the_reading_on() -> None:
    assert RELAY_MS - COARSE_MS >= SWITCH_MS


@pytest.mark.parametrize(
    ("seconds", "minute", "orders"), [(600, False, [600]), (3_600, False, ["relay"]), (1, False, []), (600, True, [])]
)
def test_an_order_goes_to_one_port(seconds: int, minute: bool, orders: list[int | str]) -> None:
    bench = Bench.precisely()
    order_timer(bench.deployment.context, bench.clock.ms + seconds * 1_000, BUCKET, minute=minute)
    assert precise(bench).orders == orders
    assert len(bench.timers.ordered) == 1


def test_a_short_wait_is_ordered_precisely_once_the_reading_is_promised_for_as_long() -> None:
    bench = Bench.precisely()
    context = bench.deployment.context
    order_timer(context, bench.clock.ms + 60_000, BUCKET)
    assert precise(bench).orders == [], "started at once: nobody reads the queue"
    keep_listening(context, True)  # the reading begins
    keep_listening(context, True)  # it has begun
    bench.clock.pass_time(11)
    order_timer(context, bench.clock.ms + 60_000, BUCKET)
    assert precise(bench).orders == [60]


def test_a_wheel_leaves_for_a_short_time_only_if_its_next_start_would_be_in_time() -> None:
    bench = Bench.precisely()
    context = bench.deployment.context
    assert shortest_rest_ms(context, 60_000, 10_000) > 60_000
    assert shortest_rest_ms(context, SWITCH_MS + 5_000, 10_000) == 10_000
    for _ in range(2):
        keep_listening(context, True)
    bench.clock.pass_time(11)
    assert shortest_rest_ms(context, 60_000, 10_000) == 10_000


def test_the_reading_ends_when_the_promise_is_over_and_not_before() -> None:
    bench = Bench.precisely()
    context = bench.deployment.context
    for _ in range(2):
        keep_listening(context, True)
    keep_listening(context, False)
    assert precise(bench).listening
    bench.clock.pass_time(KEPT_MS / 1_000 - 1)
    keep_listening(bench.another_process().context, False)
    assert precise(bench).listening
    bench.clock.pass_time(2)
    keep_listening(context, False)
    assert not precise(bench).listening


def test_nothing_is_read_or_written_while_no_start_is_near() -> None:
    bench = Bench.precisely()
    context = bench.deployment.context
    keep_listening(context, False)
    store = recording(bench)
    store.calls.clear()
    keep_listening(context, False)
    assert store.calls == []


def left(wakes_ms: int, minute_ms: int = 0) -> WheelOwner:
    return WheelOwner(owner="w", until_ms=0, wakes_ms=wakes_ms, minute_ms=minute_ms)


@pytest.mark.parametrize(
    ("owner", "minute", "wakes_ms"),
    [
        (None, False, NEED_MS),
        (left(NEED_MS + 1), False, NEED_MS),
        (left(NEED_MS), False, None),
        (left(NOON_MS + 1), False, None),
        (left(NOON_MS - 1_000), False, None),  # it has just come
        (left(NOON_MS - 60_000), False, NOON_MS),  # overdue: the sweeper must see that
        (left(0), False, NOON_MS),  # stopped
        (WheelOwner(owner="w", until_ms=NOON_MS + 1), False, None),  # it turns
        (left(BUCKET.end_ms, NEED_MS), False, NEED_MS),  # a coarse start may come too late
        (left(BUCKET.end_ms, NEED_MS - COARSE_MS), False, None),
        (left(BUCKET.end_ms, NEED_MS), True, None),
        (left(NEED_MS), True, None),
    ],
)
def test_a_start_is_recorded_unless_one_comes_in_time(
    owner: WheelOwner | None, minute: bool, wakes_ms: int | None
) -> None:
    planned = planned_start(owner, BUCKET, NEED_MS, NOON_MS, minute=minute)
    assert (None if planned is None else planned.wakes_ms) == wakes_ms


def test_a_coarse_start_is_recorded_beside_a_precise_one() -> None:
    planned = planned_start(left(NEED_MS + 60_000), BUCKET, NEED_MS, NOON_MS, minute=True)
    assert planned is not None
    assert (planned.wakes_ms, planned.minute_ms) == (NEED_MS + 60_000, NEED_MS)
    planned = planned_start(None, BUCKET, NEED_MS, NOON_MS, minute=True)
    assert planned is not None
    assert (planned.wakes_ms, planned.minute_ms) == (BUCKET.end_ms, NEED_MS)


def test_the_sweeper_misses_a_start_that_did_not_come() -> None:
    assert not lacks_wheel(left(NOON_MS), BUCKET, NOON_MS + 4_999)
    assert lacks_wheel(left(NOON_MS), BUCKET, NOON_MS + 5_000)
    assert not lacks_wheel(left(BUCKET.end_ms, NOON_MS), BUCKET, NOON_MS + 64_999)
    assert lacks_wheel(left(BUCKET.end_ms, NOON_MS), BUCKET, NOON_MS + 65_000)


def test_a_producer_records_the_start_once() -> None:
    bench = Bench.precisely()
    store = recording(bench)
    bench.send_later("a", delay="40m")
    store.calls.clear()
    bench.send_later("b", delay="41m")
    of_the_subject = ("get", "meta")  # whether its queues have moved
    assert [call for call in store.calls if call[1] == "meta"] == [of_the_subject]
    bench.send_later("c", delay="30m")
    bucket = Bucket.at(bench.clock.ms + 30 * 60_000, 60)
    current = owner_record(bench.deployment.context, bucket).load()
    assert current is not None
    assert current.value.wakes_ms == bench.clock.ms + 30 * 60_000 - START_MS
    assert precise(bench).orders == ["relay", "relay"]


@pytest.mark.parametrize("owner", [None, left(BUCKET.end_ms)], ids=["never started", "drained"])
def test_a_message_stored_just_after_the_end_of_its_bucket_has_a_start_ordered(owner: WheelOwner | None) -> None:
    now_ms = BUCKET.end_ms + 500
    planned = planned_start(owner, BUCKET, now_ms, now_ms, minute=False)
    assert planned is not None
    assert planned.wakes_ms == now_ms
    assert planned_start(planned, BUCKET, now_ms + 100, now_ms + 100, minute=False) is None, "it may still be starting"
