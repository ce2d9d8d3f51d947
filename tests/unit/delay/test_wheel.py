"""The wheel of a bucket hands each message over once, even if it is cut off at any call, contested, relayed, or its
clock is set back."""

from contextlib import suppress
from random import Random

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.buckets.buckets import Bucket, bucket_record, register
from hourwheel.buckets.lease import LEASE_MS, owner_record
from hourwheel.context import Context, Settings
from hourwheel.delay.ownership import RENEW_MS, Fenced
from hourwheel.delay.wheel import Wheel, WheelEnd
from hourwheel.errors import Unavailable
from hourwheel.logs.entries import CancelMarker, encode_entry
from hourwheel.logs.log import GRACE_MS
from hourwheel.logs.rows import Row, filler
from hourwheel.model.messages import AddressedMessage, NewMessage
from hourwheel.times import parse_rfc3339, rfc3339
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.delay.test_changes import Failing
from tests.unit.delay.test_waiting import bodies, received


def bucket_of(bench: Bench, seconds: float = 0) -> Bucket:
    return Bucket.at(bench.clock.ms + round(seconds * 1_000), bench.settings.bucket_minutes)


def wheel_of(bench: Bench, bucket: Bucket, owner: str = "w", leaves_ms: int = 0) -> Wheel:
    deployment = bench.another_process()
    return Wheel(deployment.context, deployment.registry, bucket, owner, leaves_ms)


def turned(wheel: Wheel, *ticks: float, bench: Bench) -> WheelEnd:
    """Runs a wheel for this many pauses, each of this many seconds; the clock moves by them."""
    left = list(ticks)

    def pause(seconds: float) -> bool:
        if not left:
            return False
        bench.clock.pass_time(left.pop(0))
        return True

    return wheel.run(pause)


def hand_over_due(wheel: Wheel, bench: Bench) -> None:
    """Hands over what is due by the positions that the wheel has read before, without a look at the logs."""
    wheel._waiting.fall_due(bench.clock.now_ms())
    wheel._hand_over(bench.clock.now_ms())


@pytest.mark.parametrize("effect", [False, True])
def test_a_wheel_that_is_cut_off_at_any_call_is_replaced_and_every_message_comes_once(effect: bool) -> None:
    sent = [str(number) for number in range(12)]
    for cut in range(1, 200):
        store = Failing(effect=effect)
        bench = Bench(store)
        bench.deployment.subjects.put("orders", queues=2)
        for first in range(0, 12, 4):
            messages = [NewMessage(body=body, delay=1 + 2 * (int(body) % 3)) for body in sent[first : first + 4]]
            bench.deployment.produce("orders", messages)
        bucket = bucket_of(bench)
        store.count, store.fails_at = 0, cut
        try:
            turned(wheel_of(bench, bucket, "first"), 1, 1, 2, 2, bench=bench)
            whole = True
        except Unavailable:
            whole = False
        store.fails_at = 1 << 60
        bench.clock.pass_time(LEASE_MS / 1_000 + 1)
        turned(wheel_of(bench, bucket, "second"), 1, 1, 4_000, 2, 2, bench=bench)
        assert sorted(bodies(bench)) == sorted(sent), cut
        record = bucket_record(bench.deployment.context, bucket).load()
        assert record is not None
        assert record.value.closed_ms
        if whole:
            return
    raise AssertionError("it was cut off at each of 200 calls")


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("second_cut", [1, 2, 4, 6, 7, 8, 9, 10, 12, 15])
def test_a_second_wheel_that_is_cut_off_while_it_takes_over_changes_nothing(second_cut: int, effect: bool) -> None:
    sent = [str(number) for number in range(6)]
    for first_cut in range(4, 24):
        store = Failing(effect=effect)
        bench = Bench(store)
        bench.deployment.produce("orders", [NewMessage(body=body, delay=1) for body in sent])
        bucket = bucket_of(bench)
        for owner, cut in (("first", first_cut), ("second", second_cut)):
            store.count, store.fails_at = 0, cut
            with suppress(Unavailable):
                turned(wheel_of(bench, bucket, owner), 1, 1, bench=bench)
            store.fails_at = 1 << 60
            bench.clock.pass_time(LEASE_MS / 1_000 + 1)
        turned(wheel_of(bench, bucket, "third"), 1, 1, bench=bench)
        assert sorted(bodies(bench)) == sent, first_cut


def test_an_owner_that_was_only_paused_finds_itself_fenced_off() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.send_later("a", "b", delay=30)
    bucket = bucket_of(bench)
    first, second = wheel_of(bench, bucket, "first"), wheel_of(bench, bucket, "second")
    assert first._ownership.take()
    first.open()
    assert turned(second, bench=bench) is WheelEnd.BUSY
    bench.clock.pass_time(LEASE_MS / 1_000 + 1)
    assert second._ownership.take()
    second.open()
    bench.clock.pass_time(30)
    with pytest.raises(Fenced):
        first.turn()
    second.turn()
    assert bodies(bench) == ["a", "b"]


def test_an_owner_that_pauses_between_reading_and_handing_over_hands_nothing_over() -> None:
    """A cancel that the new owner has answered for must not be overtaken by the old one."""
    bench = Bench(CallByCall(MemoryStore()))
    (accepted,) = bench.send_later("a", delay=40)
    bucket = bucket_of(bench)
    first, second = wheel_of(bench, bucket, "first"), wheel_of(bench, bucket, "second")
    assert first._ownership.take()
    first.open()
    bench.clock.pass_time(LEASE_MS / 1_000 + 1)
    assert second._ownership.take()  # the lease of the first is over
    second.open()
    answers: list[str] = []
    bench.clock.sleeps = False
    context = bench.deployment.context
    second._reader.read()
    # The cancel marker is appended, then the second reads and publishes, then the first wakes up.
    bench.timers.ordered.clear()
    current = owner_record(context, bucket).load()
    assert current is not None
    deployment = bench.another_process()

    class Turning:
        def now_ms(self) -> int:
            return bench.clock.now_ms()

        def sleep(self, seconds: float) -> None:
            second.turn()

    object.__setattr__(deployment.context, "clock", Turning())
    answers.append(deployment.delayed.cancel(accepted.scheduled_id or "").state)
    assert answers == ["cancelled"]
    bench.clock.pass_time(10)
    with pytest.raises(Fenced):
        hand_over_due(first, bench)
    second.turn()
    assert bodies(bench) == []


def test_a_late_row_of_the_former_owner_is_finished_by_the_new_one() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.send_later("a", delay=5)
    bucket = bucket_of(bench)
    first, second = wheel_of(bench, bucket, "first"), wheel_of(bench, bucket, "second")
    assert first._ownership.take()
    first.open()
    bench.clock.pass_time(LEASE_MS / 1_000 + 1)
    assert second._ownership.take()
    second._reader.read_dispatched()
    hand_over_due(first, bench)  # lands before the fence
    second.open()
    assert second.waiting == 0
    assert bodies(bench) == ["a"]


def test_a_successor_tells_nobody_what_it_has_read_before_the_former_owner_is_fenced_off() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    (sent,) = bench.send_later("a", delay=5)
    bucket = bucket_of(bench)
    bench.deployment.delayed.cancel(sent.scheduled_id or "")  # somebody may wait for the reading of its marker
    bench.send_later("a", delay=5)
    first, second = wheel_of(bench, bucket, "first"), wheel_of(bench, bucket, "second")
    assert first._ownership.take()
    first.open()
    second._reader.read_dispatched()
    second._reader.read()
    bench.clock.pass_time(LEASE_MS / 1_000 + 1)
    assert second._ownership.take()
    bench.clock.pass_time(RENEW_MS / 1_000)
    hand_over_due(first, bench)
    second._reader.read_dispatched()
    current = owner_record(bench.deployment.context, bucket).load()
    assert current is not None
    assert (current.value.owner, current.value.read_below) == ("second", 0)
    second.open()
    current = owner_record(bench.deployment.context, bucket).load()
    assert current is not None
    assert current.value.read_below == 3


def test_a_wheel_that_opens_publishes_its_reading_only_if_somebody_may_wait_for_it() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.send_later("a", delay=5)
    bucket = bucket_of(bench)
    wheel = wheel_of(bench, bucket)
    assert wheel._ownership.take()
    wheel.open()
    record = owner_record(bench.deployment.context, bucket)
    current = record.load()
    assert current is not None
    assert current.value.read_below == 0
    bench.deployment.context.log(bucket.log).append(
        filler(bench.clock.ms, 0, encode_entry(CancelMarker(0, 0)))  # a turn reads it, and its caller gets an answer
    )
    wheel.turn()  # the first one follows the reading of the wheel that opens
    wheel.turn()
    current = record.load()
    assert current is not None
    assert current.value.read_below == 2


def test_a_wheel_calls_its_successor_and_leaves_it_the_bucket() -> None:
    bench = Bench()
    bench.send_later("a", delay=60)
    bench.send_later("b", delay=200)
    bucket = bucket_of(bench)
    leaves_ms = bench.clock.ms + 120_000
    first = wheel_of(bench, bucket, "first", leaves_ms)
    bench.timers.ordered.clear()
    assert turned(first, *[1] * 130, bench=bench) is WheelEnd.LEFT
    assert [name for _, name in bench.timers.ordered] == [bucket.name]
    assert bodies(bench) == ["a"]
    bench.clock.pass_time(-30)
    current = owner_record(bench.deployment.context, bucket).load()
    assert current is not None
    assert current.value.left
    assert turned(wheel_of(bench, bucket, "second"), *[1] * 130, bench=bench) is WheelEnd.ASLEEP
    assert bodies(bench) == ["b"]


def test_a_successor_reads_the_bucket_before_it_has_it() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.send_later(*[str(number) for number in range(50)], delay=70)
    bench.send_later("early", delay=40)
    bucket = bucket_of(bench)
    first = wheel_of(bench, bucket, "first", bench.clock.ms + 50_000)
    second = wheel_of(bench, bucket, "second")
    assert first._ownership.take()
    first.open()
    ended: list[WheelEnd | None] = []

    def pause(seconds: float) -> bool:
        bench.clock.pass_time(1)
        if not ended or ended[-1] is None:
            ended.append(first.turn())
        return bench.clock.ms < first.leaves_ms + 40_000

    assert second.run(pause) is WheelEnd.ASLEEP
    assert ended[-1] is WheelEnd.LEFT
    assert sorted(bodies(bench)) == sorted(["early", *[str(number) for number in range(50)]])


def test_a_successor_that_is_stopped_while_it_waits_says_so_and_leaves_the_owner_alone() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.send_later("a", delay=30)
    bucket = bucket_of(bench)
    first = wheel_of(bench, bucket, "first", bench.clock.ms + 50_000)
    assert first._ownership.take()
    first.open()
    assert turned(wheel_of(bench, bucket, "second"), 1, 1, bench=bench) is WheelEnd.STOPPED
    bench.clock.pass_time(30)
    first.turn()
    assert bodies(bench) == ["a"]


def test_a_row_that_was_given_out_before_the_seal_lands_or_is_filled() -> None:
    for lands in (True, False):
        bench = Bench(CallByCall(MemoryStore()))
        bench.send_later("a", delay=5)
        bucket = bucket_of(bench)
        log = bench.deployment.context.log(bucket.log)
        source = log.get(0)
        assert source is not None
        wheel = wheel_of(bench, bucket)
        seconds = (bucket.end_ms - bench.clock.ms) / 1_000
        assert turned(wheel, 4, 2, 0, 0, bench=bench) is WheelEnd.ASLEEP
        given_out = log.reserve(1)
        bench.clock.pass_time(seconds)
        assert turned(wheel_of(bench, bucket), bench=bench) is WheelEnd.STOPPED
        if lands:
            log.put(given_out, source, b"t" * 16)
        bench.clock.pass_time(GRACE_MS / 1_000)
        assert turned(wheel_of(bench, bucket), *[1] * 4, bench=bench) is WheelEnd.CLOSED
        assert bodies(bench) == (["a", "a"] if lands else ["a"])
        row = log.get(given_out.row_no)
        assert row is not None
        assert row.filler is not lands


def test_a_clock_that_is_set_back_an_hour_makes_nothing_early_lost_or_double() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, bucket_minutes=5))
    bench.send_later("a", delay=30)
    bench.send_later("b", delay=90)
    bench.turn(40)
    assert bodies(bench) == ["a"]
    bench.clock.pass_time(-3_600)
    bench.send_later("c", delay=60)
    bench.turn(30)
    assert bodies(bench) == []
    bench.turn(40)
    bench.deployment.sweeper.sweep()
    assert bodies(bench) == ["c"]
    for _ in range(70):
        bench.turn(60)
        bench.deployment.sweeper.sweep()
    assert bodies(bench) == ["b"]


def test_a_process_that_dies_with_its_clock_ahead_keeps_nobody_out() -> None:
    bench = Bench()
    bench.send_later("a", delay=30)
    bucket = bucket_of(bench)
    bench.clock.pass_time(7_200)
    assert wheel_of(bench, bucket, "ahead")._ownership.take()
    bench.clock.pass_time(-7_200)
    assert wheel_of(bench, bucket, "second")._ownership.take()


def test_what_waits_for_a_deleted_subject_goes_to_its_dead_log_and_is_reported() -> None:
    bench = Bench()
    bench.send_later("a", "b", delay=30)
    bench.send_later("other", delay=30, subject="bills")
    bench.deployment.subjects.delete("orders")
    bench.send("new")
    bench.turn(40)
    assert bodies(bench) == ["new"]
    page = bench.deployment.delayed.orphans("orders", after=None, limit=1)
    assert [message.body for message in page.messages] == ["a"]
    assert page.messages[0].reason == "subject-deleted"
    assert page.messages[0].died_at is not None
    died_ms = parse_rfc3339(page.messages[0].died_at, "died_at")
    assert 0 <= bench.clock.now_ms() - died_ms <= 10_000, "it died when it was due, 30 s after it was sent"
    page = bench.deployment.delayed.orphans("orders", after=page.next, limit=10)
    assert ([message.body for message in page.messages], page.next) == (["b"], None)
    assert ("OrphanedMessages", 2) in bench.meter.metrics
    assert bench.bodies(subject="bills") == ["other"]
    bench.turn(7_200)
    bench.clock.pass_time(31 * 86_400)
    bench.deployment.sweeper.sweep()
    bench.deployment.sweeper.sweep()
    assert bench.deployment.delayed.orphans("orders", after=None, limit=10).messages == []


def test_retries_of_a_deleted_group_are_dropped_and_hold_nobody_up() -> None:
    bench = Bench(settings=Settings())
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0])
    bench.deployment.groups.delete("orders", "billing")
    bench.send_later("b", delay=10)
    bench.turn(12)
    assert bench.bodies(group="audit") == ["a", "b"]
    assert [message.attempt for message in bench.take()] == [1, 1]


def noise(seed: int) -> str:
    """Returns a text that does not compress."""
    return Random(seed).randbytes(2_000).hex()


def test_a_message_that_cannot_be_read_is_reported_and_the_others_come() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, inline_bytes=1_024))
    bench.deployment.produce("orders", [NewMessage(body=noise(n), delay=10) for n in range(3)])
    bench.send_later("fine", delay=10)
    for key in bench.blobs.list("scheduled/"):
        bench.blobs.delete(key)
    bench.turn(12)
    assert [message.body for message in received(bench)] == ["fine"]
    assert ("UnreadableMessages", 3) in bench.meter.metrics
    bucket = bucket_of(bench)
    bench.turn(2 * 3_600)
    bench.clock.pass_time(10 * 86_400)
    assert bench.deployment.sweeper.sweep().dropped_buckets == 0  # an operator may still repair it
    assert bench.deployment.context.log(bucket.log).get(0) is not None
    bench.clock.pass_time(25 * 86_400)
    assert bench.deployment.sweeper.sweep().dropped_buckets == 1


def test_a_bucket_whose_registration_was_taken_back_is_registered_by_the_next_one() -> None:
    bench = Bench()

    def work(context: Context) -> None:
        register(context, Bucket.at(bench.clock.ms + 86_400_000, 60))
        raise Unavailable("the transaction failed")

    with pytest.raises(Unavailable):
        bench.deployment.context.atomically(work)
    assert bench.timers.ordered == []
    bench.send_later("a", delay="1d")
    assert len(bench.timers.ordered) == 1
    bench.turn(86_405)
    assert bodies(bench) == ["a"]


def test_a_filler_in_a_schedule_log_never_expires() -> None:
    """A row that is stored after its filler was removed would have no reader."""
    bench = Bench(CallByCall(MemoryStore()))
    bucket = bucket_of(bench, 86_400)
    log = bench.deployment.context.log(bucket.log)
    log.reserve(1)
    bench.send_later("a", delay="1d")
    bench.clock.pass_time(2)
    rows = log.read(0, 10, consistent=True)
    assert [row.filler for _, row in rows] == [True, False]
    assert isinstance(rows[0][1], Row)
    assert rows[0][1].expires_ms == 0


@pytest.mark.parametrize("hours", [1, 3, 744])
def test_as_many_hours_are_listed_as_were_asked_for_the_one_under_way_being_the_first(hours: int) -> None:
    bench = Bench()
    bench.clock.pass_time(900)
    first_ms = bench.clock.ms - 900_000
    for hour in (0, 1, hours - 1, hours):
        bench.send_later("a", deliver_at=rfc3339(first_ms + hour * 3_600_000 + 1_800_000))
    found = [hour_ms for hour_ms, _ in bench.deployment.delayed.pending("orders", hours=hours)]
    assert found == [first_ms + hour * 3_600_000 for hour in sorted({0, 1, hours - 1}) if hour < hours]


def test_what_is_overdue_counts_in_the_hour_under_way() -> None:
    bench = Bench()
    bench.send_later("a", delay="10m")
    bench.clock.pass_time(2 * 3_600)
    assert bench.deployment.delayed.pending("orders", hours=1) == [(bench.clock.ms, 1)]


def test_hours_are_counted_by_subject() -> None:
    bench = Bench()
    bench.send_later("a", "b", delay="30m")
    (c,) = bench.send_later("c", delay="90m")
    bench.send_later("x", delay="30m", subject="bills")
    bench.send_later("far", delay="400d")
    hour = bench.clock.ms // 3_600_000 * 3_600_000
    assert bench.deployment.delayed.pending("orders", hours=72) == [(hour, 2), (hour + 3_600_000, 1)]
    bench.deployment.delayed.cancel(c.scheduled_id or "")
    assert bench.deployment.delayed.pending("orders", hours=72) == [(hour, 2)]
    bench.turn(31 * 60)
    assert bench.deployment.delayed.pending("orders", hours=72) == []
    assert bench.deployment.delayed.pending("bills", hours=72) == []


def test_lag_counts_what_backs_off() -> None:
    bench = Bench(settings=Settings())
    bench.send("a", "b")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0], ack=[1])
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.backing_off, lag.retrying, lag.in_flight) == (1, 0, 0)
    bench.turn(6)
    lag = bench.deployment.groups.lag("orders", "billing")
    assert (lag.backing_off, lag.retrying) == (0, 1)


def test_a_cancel_behind_a_row_that_never_came_is_read_before_anything_is_sent() -> None:
    """A caller that finds no owner answers at once: the next owner must not stop reading before the cancel marker."""
    bench = Bench(CallByCall(MemoryStore()))
    (accepted,) = bench.send_later("a", delay=3)
    bucket = bucket_of(bench)
    bench.deployment.context.log(bucket.log).reserve(1)
    bench.timers.ordered.clear()
    bench.clock.pass_time(3)
    assert bench.deployment.delayed.cancel(accepted.scheduled_id or "").state == "cancelled"
    turned(wheel_of(bench, bucket), 0.3, 0.5, 0.5, 0.5, bench=bench)
    assert bodies(bench) == []


def test_a_row_that_never_came_holds_nothing_up_for_longer_than_the_grace() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    bench.send_later("a", delay=3)
    bucket = bucket_of(bench)
    bench.deployment.context.log(bucket.log).reserve(1)
    turned(wheel_of(bench, bucket), *[0.5] * 8, bench=bench)
    assert bodies(bench) == ["a"]


def test_messages_for_thousands_of_subjects_that_are_due_at_once_all_come() -> None:
    """One dispatch row could not name this many targets."""
    bench = Bench()
    names = [f"{number:04d}".ljust(100, "s") for number in range(1_500)]
    for first in range(0, len(names), 500):
        messages = [AddressedMessage(subject=name, body=name[:4], delay=10) for name in names[first : first + 500]]
        bench.deployment.produce_many(messages)
    bench.turn(12)
    assert [bench.bodies(subject=name, group="g" * 100) for name in names] == [[name[:4]] for name in names]
