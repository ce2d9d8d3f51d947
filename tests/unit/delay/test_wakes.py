"""No message is forgotten by wheels that sleep, when timers cannot be ordered, or when writers die."""

from contextlib import suppress
from dataclasses import dataclass

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context, Settings
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.dispatch import Dispatcher
from hourwheel.delay.wheel import Wheel, WheelEnd
from hourwheel.errors import Broken, Corrupt, Throttled, Unavailable
from hourwheel.handover.handover import Transfer
from hourwheel.logs.rows import Row
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, NOON_MS, Bench, CallByCall, HandClock, HandTimers
from tests.unit.delay.test_changes import Failing, later
from tests.unit.delay.test_waiting import bodies
from tests.unit.delay.test_wheel import noise

NEW_HOUR_MS = NOON_MS // 3_600_000 * 3_600_000 + 600_000


def delivered_after(bench: Bench, body: str, *, minutes: int) -> float:
    """Seconds until the message comes, with a sweep each minute."""
    began_ms = bench.clock.ms
    for _ in range(minutes):
        bench.turn(60)
        bench.deployment.sweeper.sweep()
        if body in bodies(bench):
            return (bench.clock.ms - began_ms) / 1_000
    raise AssertionError(f"{body} did not come within {minutes} minutes")


def test_a_wheel_does_not_rest_on_a_row_behind_one_that_never_came(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("first", delay="20s")
    rest = Wheel._rest
    stored: list[object] = []

    def stored_meanwhile(wheel: Wheel, now_ms: int) -> WheelEnd | None:
        if not stored and wheel._waiting.next_ms() is None and now_ms - wheel._opened_ms > 6_000:
            # A writer stalls, and another one, which sees the wheel turning, stores behind it.
            wheel.context.log(wheel.bucket.log).reserve(1)
            stored.append(bench.send_later("behind", delay="4m"))
        return rest(wheel, now_ms)

    monkeypatch.setattr(Wheel, "_rest", stored_meanwhile)
    bench.turn(60)
    assert stored
    assert bodies(bench) == ["first"]
    assert delivered_after(bench, "behind", minutes=10) <= 240


@dataclass
class FailingTimers(HandTimers):
    error: Exception | None = None

    def at(self, when_ms: int, bucket: str) -> None:
        if self.error is not None:
            raise self.error
        super().at(when_ms, bucket)


@pytest.mark.parametrize("error", [Throttled("busy"), Broken("AccessDenied")])
def test_where_no_timer_can_be_ordered_messages_are_accepted_once_and_the_sweeper_starts_the_wheel(
    error: Exception,
) -> None:
    timers = FailingTimers()
    bench = Bench(CallByCall(MemoryStore()), timers=timers)
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("first", delay=1)
    assert bench.turn(60) == [WheelEnd.ASLEEP]  # until the end of the hour
    timers.error = error
    bench.send_later("soon", delay="4m")
    bench.send_later("other", delay="2h")
    timers.error = None
    assert len([metric for metric in bench.meter.metrics if metric[0] == "WakesMissed"]) == 2
    assert delivered_after(bench, "soon", minutes=10) <= 300
    assert delivered_after(bench, "other", minutes=130) <= 7_260


def test_a_message_that_had_to_be_placed_again_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later(*["now"] * 5, delay="20s")
    bench.send_later(*["late"] * 5, delay="40m")
    put = Dispatcher._put
    filled: list[int] = []

    def put_late(self: Dispatcher, context: Context, transfer: Transfer, row: Row) -> bool:
        if not filled:
            filled.append(transfer.row_no)
            self.context.log(transfer.log).abandon(transfer.reservation, row)
        return put(self, context, transfer, row)

    monkeypatch.setattr(Dispatcher, "_put", put_late)
    bench.turn(60)
    assert filled
    assert bodies(bench) == ["now"] * 5
    assert [messages for _, messages in bench.deployment.delayed.pending("orders", hours=5)] == [5]


def test_a_move_that_cannot_be_finished_does_not_hold_the_others_up() -> None:
    for cut in range(6, 10):
        store = Failing()
        bench = Bench(store, settings=Settings(retry=AT_ONCE, inline_bytes=1_024))
        (damaged,) = bench.deployment.produce("orders", [NewMessage(body=noise(1), delay="20h")])
        (precious,) = later(bench, "precious", delay="21h")
        at = rfc3339(bench.clock.ms + 3_600_000 * 30)
        for scheduled_id in (damaged.scheduled_id or "", precious):
            store.count, store.fails_at = 0, cut
            with pytest.raises(Unavailable, match="cut off"):
                bench.deployment.delayed.reschedule(scheduled_id, deliver_at=at)
            store.fails_at = 1 << 60
        for key in bench.blobs.list("scheduled/"):
            bench.blobs.delete(key)
        bench.deployment.sweeper.sweep()
        bench.turn(3_600 * 31)
        assert "precious" in bodies(bench), cut


def test_a_row_of_a_clock_that_is_ahead_holds_nothing_up() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("first", delay="100s")
    bench.turn(30)
    bucket = Bucket.at(bench.clock.ms, 60)
    bench.deployment.context.log(bucket.log).reserve(1)  # its writer never comes
    ahead = bench.another_process()
    object.__setattr__(ahead.context, "clock", HandClock(bench.clock.ms + 25 * 60_000))
    ahead.produce("orders", [NewMessage(body="ahead", delay="30m")])
    bench.send_later("behind", delay="30s")
    assert delivered_after(bench, "behind", minutes=2) <= 60


def test_a_retry_is_not_forgotten_when_what_comes_after_it_fails() -> None:
    """Where there are no transactions nothing is put off until the rest has succeeded."""
    store = Failing()
    bench = Bench(store, settings=Settings())
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("first", delay=1)
    assert bench.turn(60)[-1] is WheelEnd.ASLEEP  # until the end of the hour
    for pull in bench.pull():
        bench.settle(pull)
    bench.send("a")
    (pull,) = bench.pull()
    store.count = 0
    settle = Settlement(receipt=pull.receipt, retry=[0])
    request = PullRequest(consumer="c1", settle=[settle])
    bench.another_process().pull("orders", "billing", PullRequest(consumer="c2"))
    store.count, calls = 0, 0
    while True:  # the claim is the last write: cut off just before it
        store.fails_at = calls = calls + 1
        store.count = 0
        try:
            bench.deployment.pull("orders", "billing", request)
        except Unavailable:
            store.fails_at = 1 << 60
            bench.turn(0.1)
            continue
        break
    store.fails_at = 1 << 60
    assert delivered_after(bench, "a", minutes=3) <= 60


@pytest.mark.parametrize("kind", ["look", "cancel"])
def test_a_damaged_message_still_has_an_answer(kind: str) -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, inline_bytes=1_024))
    (accepted,) = bench.deployment.produce("orders", [NewMessage(body=noise(1), delay=10)])
    for key in bench.blobs.list("scheduled/"):
        bench.blobs.delete(key)
    ask = bench.deployment.delayed.get if kind == "look" else bench.deployment.delayed.cancel
    assert ask(accepted.scheduled_id or "").state == ("waiting" if kind == "look" else "cancelled")
    bench.turn(20)
    assert ask(accepted.scheduled_id or "").state in ("dispatched", "cancelled")


def test_a_later_message_does_not_hide_from_the_sweeper_that_a_wheel_is_overdue() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("first", delay=1)
    bench.send_later("soon", delay="10m")
    assert bench.turn(60)[-1] is WheelEnd.ASLEEP  # until shortly before the second one
    bench.timers.ordered.clear()  # its timer is lost
    bench.clock.pass_time(8 * 60)
    bench.send_later("late", delay="30m")
    assert delivered_after(bench, "soon", minutes=5) <= 180


def test_a_wheel_that_was_stopped_is_missed_whatever_is_stored_next() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("soon", delay="60s")
    assert bench.turn(10) == [WheelEnd.STOPPED]
    bench.timers.ordered.clear()  # the process that stopped is gone, another one goes on
    bench.send_later("late", delay="40m")
    assert delivered_after(bench, "soon", minutes=3) <= 120


def test_a_bucket_whose_own_timer_was_lost_is_opened_by_the_first_who_stores_in_it() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("soon", delay="60m")  # ten minutes into the next hour
    bench.timers.ordered.clear()
    bench.clock.pass_time(55 * 60)
    bench.send_later("late", delay="50m")
    assert delivered_after(bench, "soon", minutes=10) <= 360


def test_a_wheel_that_finds_a_row_after_it_has_left_is_missed_though_no_timer_can_be_ordered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = FailingTimers()
    bench = Bench(CallByCall(MemoryStore()), timers=timers)
    bench.clock.ms = NEW_HOUR_MS
    bench.send_later("first", delay=1)
    rest = Wheel._rest
    stored: list[object] = []

    def stored_meanwhile(wheel: Wheel, now_ms: int) -> WheelEnd | None:
        if not stored and wheel._waiting.next_ms() is None and now_ms - wheel._opened_ms >= 5_000:
            stored.append(bench.send_later("behind", delay="4m"))  # it sees the wheel turning
            timers.error = Throttled("busy")
        return rest(wheel, now_ms)

    monkeypatch.setattr(Wheel, "_rest", stored_meanwhile)
    assert bench.turn(30) == [WheelEnd.ASLEEP]
    assert stored
    timers.error = None
    assert delivered_after(bench, "behind", minutes=10) <= 300


class LateTimers(HandTimers):
    """Each timer fires as late as timers may."""

    def at(self, when_ms: int, bucket: str) -> None:
        super().at(when_ms + 60_000, bucket)


def test_what_is_due_when_its_bucket_begins_comes_in_time_though_the_timer_is_a_minute_late() -> None:
    bench = Bench(timers=LateTimers())
    bench.clock.ms = NOON_MS
    bench.send_later("a", delay=2 * 3_600)
    assert Bucket.at(NOON_MS + 7_200_000, 60).start_ms == NOON_MS + 7_200_000
    bench.turn(7_201)
    assert bodies(bench) == ["a"]


def test_a_bucket_is_kept_as_long_as_a_move_out_of_it_cannot_be_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    for cut in range(1, 60):
        store = Failing()
        bench = Bench(store)
        (one,) = later(bench, "a", delay="20m")
        at = rfc3339(bench.clock.ms + 86_400_000 * 4)
        moved = False
        store.count, store.fails_at = 0, cut
        with suppress(Unavailable):
            moved = bench.deployment.delayed.reschedule(one, deliver_at=at).state == "moved"
        store.fails_at = 1 << 60
        if moved:
            return
        with monkeypatch.context() as patch:
            # The service that the move needs fails, day after day.
            patch.setattr(ScheduledMessages, "_finish_listed", out_of_order)
            bench.turn(7_200)
            came = bodies(bench)
            bench.clock.pass_time(86_400)
            bench.deployment.sweeper.sweep()
        bench.deployment.sweeper.sweep()
        bench.turn(4 * 86_400)
        assert came + bodies(bench) == ["a"], cut
    raise AssertionError("it never finished")


def out_of_order(*of: object) -> None:
    raise Corrupt("out of order")
