"""Where timers are precise, a wheel runs only around the time of its messages, and the sweeper closes its bucket."""

from base64 import b64encode
from random import Random
from typing import Any

import pytest

from hourwheel.buckets.buckets import Bucket, bucket_record
from hourwheel.buckets.lease import START_MS, owner_record
from hourwheel.buckets.starts import keep_listening
from hourwheel.delay.wheel import WheelEnd
from hourwheel.delay.wheel_steps import READING_SHARE, REST_MS, next_starts, rest_for_ms
from hourwheel.ports.storage import Table
from tests.support import NOON_MS, Bench, CallByCall
from tests.unit.delay.test_waiting import bodies

HOUR_MS = 3_600_000
NEXT_HOUR_MS = NOON_MS // HOUR_MS * HOUR_MS + HOUR_MS


def at_the_hour() -> Bench:
    bench = Bench.precisely()
    bench.clock.ms = NEXT_HOUR_MS
    return bench


def seconds_turned(bench: Bench, until_seconds: float) -> float:
    """Lets time pass, and returns for how long wheels turned: none may turn at the end."""
    spans = []
    turn = bench.deployment.turn_wheel

    def timed(*args: Any, **options: Any) -> WheelEnd:
        began_ms = bench.clock.ms
        ended = turn(*args, **options)
        spans.append(bench.clock.ms - began_ms)
        return ended

    object.__setattr__(bench.deployment, "turn_wheel", timed)
    bench.turn(until_seconds)
    return sum(spans) / 1_000


def swept(bench: Bench, minutes: int) -> None:
    for _ in range(minutes):
        bench.turn(60)
        bench.deployment.sweeper.sweep()


def test_a_message_alone_in_its_hour_lets_its_wheel_turn_for_two_seconds() -> None:
    bench = at_the_hour()
    bench.send_later("alone", delay="30m")
    assert seconds_turned(bench, 40 * 60) <= START_MS / 1_000 + 1
    assert bodies(bench) == ["alone"]


def test_a_message_alone_comes_within_a_tick() -> None:
    bench = at_the_hour()
    bench.send_later("alone", delay="30m")
    bench.turn(30 * 60 + 0.5)
    assert bodies(bench) == ["alone"]


def test_a_bucket_with_nothing_left_is_closed_by_the_sweeper_without_a_wheel() -> None:
    bench = at_the_hour()
    bench.send_later("alone", delay="30m")
    swept(bench, 59)
    record = bucket_record(bench.deployment.context, Bucket.at(NEXT_HOUR_MS, 60))
    current = record.load()
    assert current is not None
    assert not current.value.closed_ms
    ordered = bench.timers.ordered
    assert ordered == []
    swept(bench, 2)
    assert bench.timers.ordered == ordered, "no wheel was started"
    current = record.load()
    assert current is not None
    assert current.value.closed_ms


def test_a_bucket_that_is_removed_leaves_the_record_of_its_owner_to_expire() -> None:
    bench = at_the_hour()
    bench.send_later("alone", delay="30m")
    swept(bench, 62)
    bench.clock.pass_time(86_400)
    assert isinstance(bench.store, CallByCall)
    del bench.store.calls[:]
    bench.deployment.sweeper.sweep()
    bucket = Bucket.at(NEXT_HOUR_MS, 60)
    assert bucket_record(bench.deployment.context, bucket).load() is None
    assert bench.store.calls.count(("remove many", Table.SCHEDULE)) == 1
    assert bench.store.calls.count(("delete", Table.META)) == 1, "that of the bucket alone"
    left = bench.store.get(owner_record(bench.deployment.context, bucket).key)
    assert left is not None
    assert left.expires_ms == bucket.end_ms + 3 * 86_400_000


def test_a_message_for_a_bucket_that_was_drained_keeps_the_record_of_its_owner() -> None:
    bench = at_the_hour()
    bench.send_later("first", delay="10m")
    bench.turn(20 * 60)
    bucket = Bucket.at(NEXT_HOUR_MS, 60)
    record = owner_record(bench.deployment.context, bucket)
    current = record.load()
    assert current is not None
    assert current.value.drained
    bench.send_later("second", delay="20m")
    stored = bench.store.get(record.key)
    assert stored is not None
    assert stored.expires_ms is None


def test_a_drained_bucket_whose_record_of_an_owner_has_expired_is_closed_by_a_wheel() -> None:
    bench = at_the_hour()
    bench.send_later("alone", delay="30m")
    bench.turn(59 * 60)
    bucket = Bucket.at(NEXT_HOUR_MS, 60)
    record = owner_record(bench.deployment.context, bucket)
    current = record.load()
    assert current is not None
    bench.store.delete(record.key, expect=current.token)
    swept(bench, 3)
    closed = bucket_record(bench.deployment.context, bucket).load()
    assert closed is not None
    assert closed.value.closed_ms
    assert bench.deployment.context.log("orders~1/0").totals().rows == 1, "nothing was handed over again"


@pytest.mark.parametrize("large", [False, True])
def test_objects_are_listed_only_for_a_bucket_whose_rows_name_one(large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = at_the_hour()
    listed: list[str] = []
    find = bench.blobs.list
    monkeypatch.setattr(bench.blobs, "list", lambda prefix: listed.append(prefix) or find(prefix))
    bench.send_later(b64encode(Random(1).randbytes(15_000)).decode() if large else "small", delay="30m")
    assert bool(list(find("scheduled/"))) is large
    swept(bench, 62)
    bench.clock.pass_time(86_400)
    bench.deployment.sweeper.sweep()
    assert bucket_record(bench.deployment.context, Bucket.at(NEXT_HOUR_MS, 60)).load() is None
    assert [prefix for prefix in listed if prefix.startswith("scheduled/")] == (
        [f"scheduled/{Bucket.at(NEXT_HOUR_MS, 60).name}/"] if large else []
    )
    assert list(find("scheduled/")) == []


def test_a_bucket_in_which_a_row_was_given_out_before_its_end_is_left_to_a_wheel() -> None:
    bench = at_the_hour()
    bench.send_later("alone", delay="30m")
    bench.turn(59 * 60)
    bucket = Bucket.at(NEXT_HOUR_MS, 60)
    bench.deployment.context.log(bucket.log).reserve(1)  # its writer is slow
    bench.clock.pass_time(120)
    bench.deployment.sweeper.sweep()
    assert [name for _, name in bench.timers.ordered] == [bucket.name]
    record = bucket_record(bench.deployment.context, bucket).load()
    assert record is not None
    assert not record.value.closed_ms


def test_a_lost_timer_costs_about_a_minute() -> None:
    bench = at_the_hour()
    assert bench.precise is not None
    bench.precise.lost = True
    bench.send_later("alone", delay="30m")
    swept(bench, 30)
    for seconds in range(70):
        bench.turn(1)
        if seconds % 60 == 0:
            bench.deployment.sweeper.sweep()
        if bodies(bench):
            return
    raise AssertionError("it did not come within 70 seconds")


def test_a_wheel_that_leaves_keeps_a_recorded_start_on_which_a_producer_relies() -> None:
    bench = at_the_hour()
    (first,) = bench.send_later("cancelled", delay="20m")
    bench.deployment.delayed.cancel(first.scheduled_id or "")
    bucket = Bucket.at(NEXT_HOUR_MS, 60)
    bench.timers.at(bench.clock.ms, bucket.name)  # started early
    bench.turn(20)
    record = owner_record(bench.deployment.context, bucket).load()
    assert record is not None
    assert record.value.wakes_ms <= NEXT_HOUR_MS + 20 * 60_000 - START_MS
    bench.send_later("relies", delay="21m")
    bench.turn(21 * 60 + 1)
    assert bodies(bench) == ["relies"]


def test_messages_close_together_keep_their_wheel_turning() -> None:
    bench = at_the_hour()
    for context in (bench.deployment.context,) * 2:
        keep_listening(context, True)
    for seconds in range(0, 100, 8):
        bench.send_later(str(seconds), delay=300 + seconds)
    ended = bench.turn(500)
    assert ended.count(WheelEnd.ASLEEP) == 1
    assert len(bodies(bench)) == 13


@pytest.mark.parametrize(
    ("due_ms", "announced_ms", "wakes_ms"),
    [
        (None, 0, 100_000),
        (50_000, 0, 50_000 - START_MS),
        (50_000, 10_000, 10_000),
        (None, 10_000, 10_000),
        (50_000, 1_000, 50_000 - START_MS),  # it has come
        (200_000, 0, 100_000),
    ],
)
def test_a_wheel_is_needed_again_before_its_next_message_or_when_others_rely_on_it(
    due_ms: int | None, announced_ms: int, wakes_ms: int
) -> None:
    starts = next_starts(due_ms=due_ms, minute_due_ms=None, end_ms=100_000, announced_ms=announced_ms, now_ms=2_000)
    assert starts == (wakes_ms, 0)


def test_a_wheel_that_took_long_to_open_rests_only_for_long() -> None:
    assert rest_for_ms(opening_ms=100, busy_turns=1, busy_ms=0, now_ms=50_000) == REST_MS
    assert rest_for_ms(opening_ms=2_000, busy_turns=1, busy_ms=0, now_ms=50_000) == 2_000 * READING_SHARE
    assert rest_for_ms(opening_ms=100, busy_turns=2, busy_ms=50_000 - REST_MS + 1, now_ms=50_000) is None
    assert rest_for_ms(opening_ms=100, busy_turns=2, busy_ms=50_000 - REST_MS, now_ms=50_000) == REST_MS
