"""Cancelling, rescheduling and looking up: an answer is definite, and stays true."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.lease import WheelOwner, owner_record
from hourwheel.errors import NotFound, Rejected, Unavailable
from hourwheel.logs.log import Log, Reservation
from hourwheel.logs.rows import filler
from hourwheel.model.messages import NewMessage, ScheduledMessage, SendResult
from hourwheel.ports.storage import Key, Record, Refused
from hourwheel.times import parse_rfc3339, rfc3339
from tests.support import NOON_MS, Bench, CallByCall
from tests.unit.delay.test_waiting import bodies, received


@pytest.fixture(params=["transactions", "call by call"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench() if request.param == "transactions" else Bench(CallByCall(MemoryStore()))


def later(bench: Bench, *names: str, delay: str = "20m") -> list[str]:
    """Sends delayed messages; their scheduled ids."""
    return [accepted.scheduled_id or "" for accepted in bench.send_later(*names, delay=delay)]


def test_what_waits_can_be_looked_at_and_what_was_sent_says_where_it_is(bench: Bench) -> None:
    accepted: list[SendResult] = bench.send_later("a", "b", delay="20m")
    known = bench.deployment.delayed.get(accepted[1].scheduled_id or "")
    assert (known.state, known.id, known.subject, known.deliver_at) == (
        "waiting",
        accepted[1].id,
        "orders",
        accepted[1].scheduled,
    )
    bench.send("first")
    bench.turn(1_201)
    known = bench.deployment.delayed.get(accepted[1].scheduled_id or "")
    assert (known.state, known.queue, known.offset) == ("dispatched", 0, 2)
    assert parse_rfc3339(known.dispatched_at or "", "") >= parse_rfc3339(known.deliver_at, "")
    assert [message.offset for message in received(bench) if message.body == "b"] == [2]


def test_far_ahead_of_its_time_a_cancel_is_certain_at_once(bench: Bench) -> None:
    first, second = later(bench, "a", "b", delay="90d")
    began_ms = bench.clock.ms
    assert bench.deployment.delayed.cancel(first).state == "cancelled"
    assert bench.clock.ms == began_ms
    assert bench.deployment.delayed.cancel(first).state == "cancelled"
    assert bench.deployment.delayed.get(first).state == "cancelled"
    assert bench.deployment.delayed.get(second).state == "waiting"
    bench.turn(91 * 86_400)
    assert bodies(bench) == ["b"]


def test_a_cancel_that_comes_too_late_says_so(bench: Bench) -> None:
    (one,) = later(bench, "a", delay="5s")
    bench.turn(7)
    assert bench.deployment.delayed.cancel(one).state == "dispatched"
    assert bodies(bench) == ["a"]


def test_a_wheel_that_turns_honours_a_cancel_before_it_answers(bench: Bench) -> None:
    (one, _) = later(bench, "a", "b", delay="60s")
    bench.turn(30)
    answers: list[str] = []

    def asks() -> None:
        answers.append(bench.deployment.delayed.cancel(one).state)

    bench.turn(5, beside=asks)
    assert answers == ["cancelled"]
    bench.turn(60)
    assert bodies(bench) == ["b"]


def test_an_owner_that_went_without_a_word_leaves_the_answer_open(bench: Bench) -> None:
    (one,) = later(bench, "a", delay="20m")
    bucket = Bucket.at(bench.clock.ms + 1_200_000, 60)
    record = owner_record(bench.deployment.context, bucket)
    record.swap(record.load(), WheelOwner(owner="gone", until_ms=bench.clock.ms - 1))
    bench.timers.ordered.clear()
    with pytest.raises(Unavailable, match="send the request again"):
        bench.deployment.delayed.cancel(one)
    assert [bucket for _, bucket in bench.timers.ordered] == [bucket.name]  # the next wheel was asked for
    bench.turn(1)
    assert bench.deployment.delayed.cancel(one).state == "cancelled"
    bench.turn(1_300)
    assert bodies(bench) == []


@pytest.mark.parametrize("delay", ["1h", "90d", "30s"])
def test_a_message_moves_to_another_time_earlier_or_later(bench: Bench, delay: str) -> None:
    (one, _) = later(bench, "a", "b", delay="20h")
    moved = bench.deployment.delayed.reschedule(one, delay=delay)
    assert (moved.state, moved.scheduled_id != one) == ("moved", True)
    # The old id still leads to it.
    assert bench.deployment.delayed.get(one) == msgspec.structs.replace(moved, state="waiting")
    due_ms = parse_rfc3339(moved.deliver_at, "")
    bench.turn((due_ms - bench.clock.ms) / 1_000 - 1)
    assert "a" not in bodies(bench)
    bench.turn(2)
    (message,) = [message for message in received(bench) if message.body == "a"]
    assert message.due_at == moved.deliver_at
    assert message.produced_at == rfc3339(NOON_MS)


def test_a_repeated_move_moves_once_and_chains_are_followed(bench: Bench) -> None:
    (one,) = later(bench, "a", delay="20h")
    at = rfc3339(bench.clock.ms + 3_600_000 * 30)
    first = bench.deployment.delayed.reschedule(one, deliver_at=at)
    assert bench.deployment.delayed.reschedule(one, deliver_at=at) == first
    second = bench.deployment.delayed.reschedule(one, delay="40h")
    assert second.scheduled_id not in (one, first.scheduled_id)
    back = bench.deployment.delayed.reschedule(one, deliver_at=at)
    assert (back.state, back.deliver_at) == ("moved", at)
    assert bench.deployment.delayed.cancel(first.scheduled_id).state == "cancelled"
    for known in (one, first.scheduled_id, second.scheduled_id, back.scheduled_id):
        assert bench.deployment.delayed.get(known).state == "cancelled"
        assert bench.deployment.delayed.reschedule(known, delay="1h").state == "cancelled"
    bench.turn(86_400 * 3)
    assert bodies(bench) == []


def test_a_move_to_a_time_that_has_come_says_that_it_moved(bench: Bench) -> None:
    (one,) = later(bench, "a", delay="20h")
    answers: list[ScheduledMessage] = []

    def asks() -> None:
        at = rfc3339(bench.clock.ms + 3_000)
        answers.append(bench.deployment.delayed.reschedule(one, deliver_at=at))
        bench.clock.sleep(10)
        answers.append(bench.deployment.delayed.reschedule(one, deliver_at=at))

    bench.turn(15, beside=asks)
    moved, again = answers
    assert (moved.state, moved.dispatched_at) == ("moved", None)
    assert (again.state, again.scheduled_id, again.offset) == ("moved", moved.scheduled_id, 0)
    assert bench.deployment.delayed.get(one).state == "dispatched"
    assert bench.deployment.delayed.reschedule(one, delay="1h").state == "dispatched"


def test_a_sent_message_does_not_move(bench: Bench) -> None:
    (one,) = later(bench, "a", delay="5s")
    bench.turn(7)
    assert bench.deployment.delayed.reschedule(one, delay="1h").state == "dispatched"
    bench.turn(2 * 3_600)
    assert bodies(bench) == ["a"]


def test_ids_of_others_are_refused_and_those_of_removed_buckets_unknown(bench: Bench) -> None:
    (one,) = later(bench, "a", delay="5s")
    other = Bench()
    for wrong in (one[:-1] + ("0" if one[-1] != "0" else "1"), "x", "", one.replace("-", "_"), "é" * 9, one + "-"):
        with pytest.raises(Rejected, match="not the id"):
            bench.deployment.delayed.get(wrong)
    with pytest.raises(Rejected, match="not the id"):
        other.deployment.delayed.cancel(one)
    bench.turn(3 * 3_600)
    assert bench.deployment.delayed.cancel(one).state == "dispatched"
    bench.clock.pass_time(86_400)
    bench.deployment.sweeper.sweep()
    for ask in (bench.deployment.delayed.get, bench.deployment.delayed.cancel):
        with pytest.raises(NotFound, match="more than a day ago"):
            ask(one)


@dataclass
class Failing(CallByCall):
    """A store whose calls end with an error from the chosen one on, before or after its effect."""

    fails_at: int = 1 << 60
    effect: bool = False
    count: int = 0
    inner: MemoryStore = field(default_factory=MemoryStore)

    def __post_init__(self) -> None:
        super().__init__(self.inner)

    def __getattribute__(self, name: str) -> Any:
        found: Any = super().__getattribute__(name)
        if name not in {"add", "put", "delete", "seal", "get", "scan", "counter"}:
            return found

        def call(*values: Any, **named: Any) -> Any:
            self.count += 1
            if self.count < self.fails_at:
                return found(*values, **named)
            if self.count == self.fails_at and self.effect:
                found(*values, **named)
            raise Unavailable("cut off")

        return call


def test_a_batch_can_be_cancelled_message_by_message(bench: Bench) -> None:
    accepted = bench.deployment.produce("orders", [NewMessage(body=str(n), delay=600 + n) for n in range(20)])
    for one in accepted[::2]:
        bench.deployment.delayed.cancel(one.scheduled_id or "")
    bench.turn(700)
    assert bodies(bench) == [str(n) for n in range(1, 20, 2)]


def test_a_closed_bucket_answers_though_its_last_owner_went_without_a_word() -> None:
    bench = Bench(CallByCall(MemoryStore()))
    (one,) = later(bench, "a", delay="20m")
    bucket = Bucket.at(bench.clock.ms + 1_200_000, 60)
    context = bench.deployment.context
    record = owner_record(context, bucket)
    current = record.load()
    silent = record.swap(current, WheelOwner(owner="silent", until_ms=1)).current
    assert silent is not None
    at = rfc3339(bench.clock.ms + 86_400_000)
    with pytest.raises(Unavailable):
        bench.deployment.delayed.reschedule(one, deliver_at=at)  # cancelled, and not decided
    bench.turn(7_200)
    current = record.load()
    assert current is not None
    record.swap(current, WheelOwner(owner="silent", until_ms=1))
    bench.clock.pass_time(3_600)
    assert bench.deployment.delayed.reschedule(one, deliver_at=at).state == "moved"
    bench.turn(86_400)
    assert bodies(bench) == ["a"]


class ReadersFirst(CallByCall):
    """A store in which a reader fills the next ``times`` rows of a log, each right before its writer comes."""

    log: Log
    times = 0

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if self.times and key.partition == self.log.name:
            left, self.times = self.times - 1, 0  # the filler is put by this call too
            self.log.abandon(Reservation(key.partition, int(key.sort), 0), filler(self.log.clock.now_ms(), 0))
            self.times = left
        return super().put(key, record, expect=expect)


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("then", ["wait", "cancel", "cancel by the old id", "move"])
def test_a_moved_message_is_found_where_it_is_after_readers_filled_its_reserved_row(then: str, times: int) -> None:
    store = ReadersFirst(MemoryStore())
    bench = Bench(store)
    (one,) = later(bench, "a", delay="2h")
    due_ms = bench.clock.ms + 3_600_000 * 5
    store.log, store.times = bench.deployment.context.log(Bucket.at(due_ms, 60).log), times
    moved = bench.deployment.delayed.reschedule(one, deliver_at=rfc3339(due_ms))
    assert (moved.state, moved.deliver_at, store.times) == ("moved", rfc3339(due_ms), 0)
    assert store.log.totals().rows == times + 1
    for each in (one, moved.scheduled_id):
        known = bench.deployment.delayed.get(each)
        assert (known.state, known.scheduled_id, known.deliver_at) == ("waiting", moved.scheduled_id, rfc3339(due_ms))
    if then == "move":
        due_ms += 3_600_000
        assert bench.deployment.delayed.reschedule(moved.scheduled_id, deliver_at=rfc3339(due_ms)).state == "moved"
    elif then != "wait":
        assert bench.deployment.delayed.cancel(moved.scheduled_id if then == "cancel" else one).state == "cancelled"
    bench.turn((due_ms - bench.clock.ms) / 1_000 - 1)
    assert bodies(bench) == []
    bench.turn(3)
    assert bodies(bench) == ([] if "cancel" in then else ["a"])
