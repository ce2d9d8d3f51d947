"""The pusher of a group delivers its messages, and settles each by the answer of the target."""

from threading import Barrier

import pytest

from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE, Outcome, PushDelivery
from hourwheel.push.decisions import PusherEnd
from tests.unit.push.pushing import bench_with, lag, push


def test_a_batch_is_delivered_and_settled() -> None:
    bench = bench_with()
    bench.send("a", "b")
    bench.send("c")
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a", "b", "c"]
    assert (lag(bench).waiting, lag(bench).in_flight) == (0, 0)
    (delivery,) = bench.targets.deliveries
    assert (delivery.subject, delivery.group, delivery.queue) == ("orders", "billing", 0)


def test_no_delivery_is_larger_than_the_batch_of_the_target() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=3, concurrency=1))
    bench.send(*"abcdefgh")
    push(bench)
    assert [len(delivery.messages) for delivery in bench.targets.deliveries] == [3, 3, 2]


def test_batches_are_delivered_side_by_side_up_to_the_concurrency_of_the_target() -> None:
    together = Barrier(3)

    def answer(delivery: PushDelivery) -> Outcome:
        together.wait(10)  # breaks, and fails the test, unless three deliveries are under way
        return DONE

    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=3))
    bench.targets.answer = answer
    bench.send(*"abcdef")
    assert push(bench) is PusherEnd.IDLE
    assert sorted(map(str, bench.targets.bodies)) == list("abcdef")
    assert lag(bench).waiting == 0


def test_messages_that_the_target_names_are_retried_and_the_rest_is_settled() -> None:
    bench = bench_with()
    bench.send("a", "b", "c")
    bench.targets.answer = lambda delivery: Outcome(
        failed=frozenset({1}) if len(bench.targets.deliveries) == 1 else frozenset()
    )
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a", "b", "c", "b"]
    assert [delivery.queue for delivery in bench.targets.deliveries] == [0, "retry"]
    assert [message.attempt for message in bench.targets.deliveries[1].messages] == [2]


def test_a_message_that_always_fails_ends_in_the_dead_letters() -> None:
    bench = bench_with(max_attempts=3)
    bench.send("bad", "good")
    bench.targets.answer = lambda delivery: Outcome(
        failed=frozenset(index for index, message in enumerate(delivery.messages) if message.body == "bad")
    )
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["bad", "good", "bad", "bad"]
    assert [
        message.body
        for message in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == ["bad"]


def test_a_message_that_a_target_can_never_take_is_dead_at_once() -> None:
    bench = bench_with()
    bench.send("small", "huge")
    bench.targets.answer = lambda delivery: Outcome(dead=frozenset({1}), error="too large")
    assert push(bench) is PusherEnd.IDLE
    assert [
        message.body
        for message in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == ["huge"]


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    bench = bench_with()
    bench.send("a", "b", "huge", "d", "e")

    def answer(delivery: PushDelivery) -> Outcome:
        size = sum(len(message.body or "") for message in delivery.messages)
        return Outcome(too_large=True, error="too large") if size > 2 else DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    taken = [d for d in bench.targets.deliveries if answer(d) is DONE]
    assert [message.body for delivery in taken for message in delivery.messages] == ["a", "b", "d", "e"]
    assert [
        message.body
        for message in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == ["huge"]


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_pusher_keeps_its_lease_while_suspects_and_new_messages_wait(ordered: bool, concurrency: int) -> None:
    target = PushTarget(kind="lambda", address="f", batch=1, concurrency=concurrency)
    bench = bench_with(target, ordered=ordered, retry_percent=10)
    for body in ("lost 0", "lost 1", "lost 2"):
        bench.send(body, key=body)
    bench.pull()
    bench.clock.pass_time(31)
    bench.deployment.sweeper.sweep()
    for number in range(40):
        bench.send(f"new {number}", key=str(number))
    before_ms = bench.clock.now_ms()
    assert push(bench) is PusherEnd.IDLE
    assert sorted(bench.targets.bodies)[:3] == ["lost 0", "lost 1", "lost 2"]
    assert len(bench.targets.bodies) == 43
    assert bench.clock.now_ms() == before_ms, "a pusher that gives its lease up and takes it again pauses before"
