"""A delayed message with the precision minute comes within the minute after its time, for one coarse start."""

from dataclasses import replace
from typing import Any

import pytest

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import COARSE_MS, START_MS, ensure_wheel_by, lacks_wheel, owner_record
from hourwheel.errors import Rejected
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.model.messages import NewMessage
from hourwheel.times import rfc3339
from tests.support import Bench
from tests.unit.delay.test_precise_wheels import NEXT_HOUR_MS, at_the_hour, seconds_turned, swept
from tests.unit.delay.test_waiting import bodies

HALF_MS = NEXT_HOUR_MS + 30 * 60_000
BUCKET = Bucket.at(NEXT_HOUR_MS, 60)

_PROCESS_SECONDS = 1
"""The start of a function takes most of this."""

_TICK_SECONDS = 0.5


def send(bench: Bench, *bodies: str, delay: str = "30m") -> None:
    messages = [NewMessage(body=body, delay=delay, precision="minute") for body in bodies]
    bench.deployment.produce("orders", messages)


def orders(bench: Bench) -> list[int | str]:
    assert bench.precise is not None
    return bench.precise.orders


def test_it_needs_no_precise_timer_and_its_wheel_turns_for_two_seconds() -> None:
    bench = at_the_hour()
    send(bench, "alone")
    assert bench.timers.ordered == [(HALF_MS - START_MS, BUCKET.name)]
    assert seconds_turned(bench, 40 * 60) <= START_MS / 1_000 + 1
    assert bodies(bench) == ["alone"]
    assert orders(bench) == []


@pytest.mark.parametrize("fraction_ms", [0, 1, 500, 999])
def test_it_comes_within_its_minute_however_late_scheduler_starts_its_wheel(fraction_ms: int) -> None:
    due_ms = HALF_MS + fraction_ms
    bench = at_the_hour()
    bench.deployment.produce("orders", [NewMessage(body="alone", deliver_at=rfc3339(due_ms), precision="minute")])
    ((when_ms, name),) = bench.timers.ordered
    bench.timers.ordered.clear()
    # A schedule names a whole second, and fires within the minute that begins with it.
    bench.clock.ms = when_ms // 1_000 * 1_000 + COARSE_MS - 1
    bench.clock.pass_time(_PROCESS_SECONDS)
    bench.timers.at(bench.clock.ms, name)
    bench.turn(_TICK_SECONDS)
    assert bodies(bench) == ["alone"]
    assert bench.clock.ms <= due_ms + 60_000


def test_it_is_never_early() -> None:
    bench = at_the_hour()
    send(bench, "alone")
    bench.turn(30 * 60 - 0.001)
    assert bodies(bench) == []
    bench.turn(0.501)
    assert bodies(bench) == ["alone"]


def test_a_start_that_comes_late_hands_over_all_that_is_due_by_then() -> None:
    bench = at_the_hour()
    for seconds in (0, 20, 40, 75):
        send(bench, str(seconds), delay=f"{1_800 + seconds}s")
    ((_, name),) = bench.timers.ordered
    bench.timers.ordered.clear()
    bench.clock.pass_time(30 * 60 + 58)  # the last second in which Scheduler may start it
    bench.timers.at(bench.clock.ms, name)
    bench.turn(1)
    assert bodies(bench) == ["0", "20", "40"]
    assert [when_ms for when_ms, _ in bench.timers.ordered] == [HALF_MS + 75_000 - START_MS]


def test_what_a_wheel_meets_that_another_message_needs_comes_with_it() -> None:
    bench = at_the_hour()
    send(bench, "minute")
    bench.send_later("precise", delay=30 * 60 + 5)
    bench.timers.ordered[:] = [each for each in bench.timers.ordered if each[0] != HALF_MS - START_MS]
    bench.turn(30 * 60 + 6)
    assert sorted(bodies(bench)) == ["minute", "precise"]


def test_a_precise_message_does_not_wait_for_the_coarse_start_of_another() -> None:
    bench = at_the_hour()
    send(bench, "minute")
    assert orders(bench) == []
    bench.send_later("precise", delay=30 * 60 + 30)
    assert orders(bench) == ["relay"]


def test_a_wheel_stays_for_a_precise_message_that_follows_one_that_may_be_late() -> None:
    bench = at_the_hour()
    bench.send_later("first", delay=29 * 60)
    send(bench, "minute")
    bench.send_later("precise", delay=30 * 60 + 2)
    starts, turn = [], bench.deployment.turn_wheel

    def counted(*args: Any, **options: Any) -> Any:
        starts.append(bench.clock.ms)
        # The queue of precise timers is not read: a start for the precise message would come at once, again and again.
        assert len(starts) < 4
        return turn(*args, **options)

    object.__setattr__(bench.deployment, "turn_wheel", counted)
    bench.turn(30 * 60 + 10)
    assert sorted(bodies(bench)) == ["first", "minute", "precise"]


def test_a_coarse_start_that_is_lost_costs_about_another_minute() -> None:
    bench = at_the_hour()
    send(bench, "alone")
    bench.timers.ordered.clear()
    swept(bench, 31)
    assert bodies(bench) == [], "Scheduler may still come"
    swept(bench, 2)
    bench.turn(3)
    assert bodies(bench) == ["alone"]


def test_a_cancelled_one_is_not_sent() -> None:
    bench = at_the_hour()
    (sent,) = bench.deployment.produce("orders", [NewMessage(body="no", delay="30m", precision="minute")])
    send(bench, "yes")
    bench.deployment.delayed.cancel(sent.scheduled_id or "")
    bench.turn(31 * 60)
    assert bodies(bench) == ["yes"]


def test_a_moved_one_keeps_its_precision() -> None:
    bench = at_the_hour()
    (sent,) = bench.deployment.produce("orders", [NewMessage(body="moved", delay="50m", precision="minute")])
    bench.deployment.delayed.reschedule(sent.scheduled_id or "", delay="30m")
    assert orders(bench) == []
    bench.turn(31 * 60)
    assert bodies(bench) == ["moved"]


def test_a_batch_of_both_becomes_a_row_of_each() -> None:
    bench = at_the_hour()
    both = [
        NewMessage(body="minute", delay="30m", precision="minute"),
        NewMessage(body="precise", delay="31m"),
        NewMessage(body="minute too", delay="32m", precision="minute"),
    ]
    bench.deployment.produce("orders", both)
    entries = [decode_entry(row.meta) for _, row in bench.deployment.context.log(BUCKET.log).rows(0)]
    assert [(entry.minute, len(entry.after_ms) or 1) for entry in entries if isinstance(entry, DueTimes)] == [
        (False, 1),
        (True, 2),
    ]
    bench.turn(33 * 60)
    assert sorted(bodies(bench)) == ["minute", "minute too", "precise"]


def test_its_lateness_counts_from_the_end_of_its_minute() -> None:
    bench = at_the_hour()
    send(bench, "alone")
    ((_, name),) = bench.timers.ordered
    bench.timers.ordered.clear()
    bench.clock.pass_time(30 * 60 + 58)
    bench.timers.at(bench.clock.ms, name)
    bench.turn(1)
    assert [value for metric, value in bench.meter.metrics if metric == "DispatchLateness"] == [0]


def test_the_state_of_its_wheel_is_not_overdue_before_the_minute_is_over() -> None:
    bench = at_the_hour()
    send(bench, "alone")
    bench.timers.ordered.clear()
    for seconds, state in ((30 * 60 + 50, "asleep"), (30, "overdue")):
        bench.clock.pass_time(seconds)
        assert [wheel.state for wheel in bench.deployment.background.wheels().wheels] == [state]


def test_a_row_of_an_older_version_is_precise() -> None:
    entry = decode_entry(b"\x96\x01\xa1s\x01\xc0\x05\x90")
    assert entry == DueTimes("s", 1, None, 5)


def test_on_one_machine_it_comes_at_its_time() -> None:
    bench = Bench()
    bench.clock.ms = NEXT_HOUR_MS
    send(bench, "alone", delay="5s")
    bench.turn(6)
    assert bodies(bench) == ["alone"]


def test_only_a_delayed_message_has_a_precision() -> None:
    bench = Bench()
    with pytest.raises(Rejected, match="only a message with delay or deliver_at has a precision") as refused:
        bench.deployment.produce("orders", [NewMessage(body="now"), NewMessage(body="now", precision="minute")])
    assert refused.value.field == "messages[1].precision"


def test_a_start_for_which_none_is_recorded_before_is_recorded_and_cleared() -> None:
    bench = at_the_hour()
    send(bench, "alone")
    record = owner_record(bench.deployment.context, BUCKET)
    current = record.load()
    assert current is not None
    assert (current.value.wakes_ms, current.value.minute_ms) == (BUCKET.end_ms, HALF_MS - START_MS)
    bench.turn(31 * 60)
    current = record.load()
    assert current is not None
    assert (current.value.wakes_ms, current.value.minute_ms) == (BUCKET.end_ms, 0)


def test_a_start_that_was_lost_is_seen_by_the_sweeper_though_precise_timers_were_turned_off_meanwhile() -> None:
    bench = at_the_hour()
    send(bench, "alone")
    without = replace(bench.deployment.context, precise_timers=None)
    ensure_wheel_by(without, BUCKET, HALF_MS + 20 * 60_000)
    current = owner_record(without, BUCKET).load()
    assert current is not None
    assert not lacks_wheel(current.value, BUCKET, HALF_MS)
    assert lacks_wheel(current.value, BUCKET, HALF_MS + COARSE_MS + 10_000)
