"""Delayed messages from sending to delivery, on one cell with a clock that only the test moves."""

import random

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Settings
from hourwheel.delay.wheel import WheelEnd
from hourwheel.errors import NotFound, Rejected, TooLarge
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import Message, NewMessage
from hourwheel.model.pulls import RetryLater
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.times import rfc3339
from tests.support import AT_ONCE, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def received(bench: Bench, limit: int = 1_000) -> list[Message]:
    """Pulls, acknowledges and returns the messages."""
    pulls = bench.pull(limit)
    for pull in pulls:
        assert bench.settle(pull) == "settled"
    return [message for pull in pulls for message in pull.messages]


def bodies(bench: Bench) -> list[str | None]:
    return [message.body for message in received(bench)]


def test_a_delayed_message_is_delivered_at_its_time_and_not_before(bench: Bench) -> None:
    (accepted,) = bench.send_later("boo", delay="20m")
    assert accepted.scheduled == rfc3339(bench.clock.ms + 20 * 60_000)
    assert accepted.queue is None
    bench.turn(20 * 60 - 1)
    assert received(bench) == []
    bench.turn(1.5)
    (message,) = received(bench)
    assert (message.body, message.id, message.due_at) == ("boo", accepted.id, accepted.scheduled)


def test_immediate_and_delayed_messages_share_a_batch(bench: Bench) -> None:
    messages = [NewMessage(body="a"), NewMessage(body="b", delay=30), NewMessage(body="c", delay=0)]
    accepted = bench.deployment.produce("orders", messages)
    assert [position.offset for position in accepted] == [0, None, 1]
    assert bodies(bench) == ["a", "c"]
    bench.turn(31)
    assert bodies(bench) == ["b"]


def test_a_time_in_the_past_is_now(bench: Bench) -> None:
    (accepted,) = bench.send_later("late", deliver_at="2001-01-01T00:00:00Z")
    assert accepted.offset == 0
    assert bodies(bench) == ["late"]


def test_a_year_away_no_wheel_turns_until_then(bench: Bench) -> None:
    bench.send_later("far", delay="365d")
    assert len(bench.timers.ordered) == 1
    ended = bench.turn(364 * 86_400)
    assert ended == []
    assert received(bench) == []
    bench.turn(86_401)
    assert bodies(bench) == ["far"]


def test_a_bucket_that_is_over_is_closed_and_removed_a_day_later(bench: Bench) -> None:
    bench.send_later("x", delay=5)
    ended = bench.turn(2 * 3_600)
    assert ended[-1] is WheelEnd.CLOSED
    assert bodies(bench) == ["x"]
    bench.clock.pass_time(86_400)
    assert bench.deployment.sweeper.sweep().dropped_buckets == 1
    assert bench.deployment.sweeper.sweep().dropped_buckets == 0


def test_a_message_for_a_bucket_that_is_closed_already_comes_at_once(bench: Bench) -> None:
    bench.send_later("x", delay=5)
    bench.turn(2 * 3_600)
    received(bench)
    bench.clock.pass_time(-3_600)
    bench.send_later("y", delay=1)
    bench.turn(3_700)
    assert bodies(bench) == ["y"]


def test_a_message_for_a_bucket_that_is_closed_already_waits_in_the_next_one(bench: Bench) -> None:
    bench.send_later("x", delay=5)
    over = Bucket.at(bench.clock.ms + 5_000, bench.settings.bucket_minutes)
    bench.turn(2 * 3_600)
    assert bodies(bench) == ["x"]
    bench.clock.pass_time(-2 * 3_600)
    bench.send_later("y", delay=1)
    assert bench.deployment.context.log(over.following.log).totals().rows == 1


def test_of_a_batch_in_an_open_bucket_the_first_message_has_the_wheel_started(bench: Bench) -> None:
    bench.clock.ms = bench.clock.ms // 3_600_000 * 3_600_000
    bench.send_later("first", delay=1)
    bench.send_later("far", delay="50m")
    assert bench.turn(30 * 60) == [WheelEnd.ASLEEP]
    assert bodies(bench) == ["first"]
    bench.deployment.produce("orders", [NewMessage(body="soon", delay="10m"), NewMessage(body="then", delay="18m")])
    bench.turn(10 * 60 + 1)
    assert bodies(bench) == ["soon"]


def test_the_wheel_sleeps_when_nothing_is_due_soon(bench: Bench) -> None:
    bench.clock.ms = bench.clock.ms // 3_600_000 * 3_600_000
    bench.send_later("first", delay=1)
    bench.send_later("x", delay="50m")
    assert bench.turn(30 * 60) == [WheelEnd.ASLEEP]
    assert bodies(bench) == ["first"]
    bench.send_later("y", delay="10m")
    bench.turn(10 * 60 + 1)
    assert bodies(bench) == ["y"]
    bench.turn(10 * 60 + 1)
    assert bodies(bench) == ["x"]


def test_the_same_key_again_gives_the_same_answer_and_one_message(bench: Bench) -> None:
    key = IdempotencyKey("k", b"d" * 16)

    def send() -> list[object]:
        return list(bench.deployment.produce("orders", [NewMessage(body="a", delay=60), NewMessage(body="b")], key))

    first = send()
    bench.clock.pass_time(20)
    assert msgspec.to_builtins(send()) == msgspec.to_builtins(first)
    bench.turn(60)
    assert sorted(body or "" for body in bodies(bench)) == ["a", "b"]


def test_a_retry_waits_as_the_policy_says() -> None:
    bench = Bench(settings=Settings())
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0])
    bench.turn(4.4)
    assert received(bench) == []
    bench.turn(1.2)
    (pull,) = bench.pull()
    assert pull.messages[0].attempt == 2
    assert pull.messages[0].due_at is None
    bench.settle(pull, retry=[0])
    bench.turn(9)
    assert received(bench) == []
    bench.turn(2)
    assert [message.attempt for message in received(bench)] == [3]


@pytest.mark.parametrize(("ours", "servers"), [(60, 1), (1, 60)])
def test_a_group_with_a_policy_of_its_own_waits_as_that_says(ours: float, servers: float) -> None:
    bench = Bench(settings=Settings(retry=RetryPolicy(first_seconds=servers)))
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(first_seconds=ours))
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0])
    bench.turn(ours * 0.9)
    assert received(bench) == []
    bench.turn(ours * 0.1 + 1.2)
    assert [message.attempt for message in received(bench)] == [2]


class Fading(MemoryBlobs):
    """Blobs that can be read this many times, and are missing afterwards."""

    reads = 1 << 60

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.reads -= 1
        if self.reads < 0:
            raise NotFound("blob-not-found", f"there is no object {key}")
        return super().get(key, offset=offset, length=length)


def test_of_retries_with_delays_of_their_own_the_rest_keeps_its_times_when_one_cannot_be_read_any_more() -> None:
    blobs = Fading()
    bench = Bench(blobs=blobs, settings=Settings(inline_bytes=1_024))
    bench.send("x" * 10 + random.Random(1).randbytes(4_000).hex())
    bench.send("rest", "of it")
    (pull,) = bench.pull()
    blobs.reads = 1  # once when the retries are decided on, not when they are carried out
    delays = [RetryLater(index=0, delay="10s"), RetryLater(index=1, delay="40s"), RetryLater(index=2, delay="20s")]
    bench.settle(pull, retry=delays)
    assert blobs.reads < 0
    came = []
    for _ in range(5):
        bench.turn(10)
        came.append([message.body for message in received(bench)])
    assert came == [[], [], ["of it"], [], ["rest"]]


def test_too_far_ahead_is_refused_unless_the_subject_clamps(bench: Bench) -> None:
    with pytest.raises(Rejected, match="two years"):
        bench.send_later("x", delay="733d")
    bench.deployment.subjects.put("orders", clamp_delays=True)
    (accepted,) = bench.send_later("x", delay="733d")
    assert accepted.scheduled == rfc3339(bench.clock.ms + 732 * 86_400_000)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("minutes", [5, 60])
def test_many_messages_at_scattered_times_come_each_once_in_time(minutes: int, shards: int) -> None:
    bench = Bench(settings=Settings(bucket_minutes=minutes, shards=shards, retry=AT_ONCE))
    began_ms = bench.clock.ms
    due = {}
    for batch in range(40):
        delays = [(batch * 37 + index * 811) % 7_000 for index in range(25)]
        messages = [NewMessage(body=f"{batch}-{index}", delay=seconds) for index, seconds in enumerate(delays)]
        due |= {message.body: began_ms + seconds * 1_000 for message, seconds in zip(messages, delays, strict=True)}
        bench.deployment.produce("orders", messages)
    seen = {}
    while bench.clock.ms < began_ms + 7_200_000:
        bench.turn(10)
        for message in received(bench):
            assert message.body not in seen
            seen[message.body] = bench.clock.ms
    assert seen.keys() == due.keys()
    for body, at_ms in seen.items():
        assert due[body] <= at_ms <= due[body] + 11_000


def test_a_batch_that_is_due_in_too_many_buckets_is_refused_whole() -> None:
    bench = Bench(settings=Settings(batch_buckets=3, retry=AT_ONCE))
    hours = [NewMessage(body=str(hour), delay=hour * 3_600) for hour in range(5)]
    with pytest.raises(TooLarge, match="these fall due in 4: split the batch"):
        bench.deployment.produce("orders", hours)
    assert len(bench.deployment.produce("orders", hours[:4])) == 4
    assert bodies(bench) == ["0"]
