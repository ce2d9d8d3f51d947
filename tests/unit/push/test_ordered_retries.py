"""Retries of ordered groups that are pushed: they stay in their places, so that no wheel hands them over."""

from typing import Any

import pytest

from hourwheel.model.groups import RetryPolicy
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.model.targets import Outcome, PushDelivery
from hourwheel.push.decisions import PusherEnd
from tests.support import HandClock
from tests.unit.push.pushing import Bench, bench_with, push


def ordered(first_seconds: int, **settings: Any) -> Bench:
    return bench_with(ordered=True, retry=RetryPolicy(first_seconds=first_seconds), **settings)


def send(bench: Bench, *names: str) -> None:
    """Sends messages of which the first letter is the key."""
    bench.deployment.produce("orders", [NewMessage(body=name, key=name[0]) for name in names])


def failing_first(*names: str) -> Any:
    """Returns answers of a target that fails these messages at their first attempt."""

    def answer(delivery: PushDelivery) -> Outcome:
        return Outcome(
            failed=frozenset(
                index
                for index, message in enumerate(delivery.messages)
                if message.body in names and message.attempt == 1
            )
        )

    return answer


def test_a_pusher_waits_for_a_retry_that_is_due_soon() -> None:
    bench = ordered(20)
    bench.targets.answer = failing_first("a1")
    send(bench, "a1", "b1", "a2")
    began_ms = bench.clock.ms
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a1", "b1", "a2", "a1", "a2"]
    assert bench.clock.ms - began_ms == 20_000


def test_a_pusher_that_waits_for_a_retry_delivers_new_messages_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ordered(20)
    bench.targets.answer = failing_first("a1")
    send(bench, "a1")
    real = HandClock.sleep

    def sleep(clock: HandClock, seconds: float) -> None:
        if len(bench.targets.deliveries) == 1:
            send(bench, "c1")
        real(clock, seconds)

    monkeypatch.setattr(HandClock, "sleep", sleep)
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a1", "c1", "a1"]


def test_the_sweeper_starts_a_pusher_shortly_before_a_later_retry() -> None:
    bench = ordered(150)
    bench.targets.answer = failing_first("a1")
    send(bench, "a1", "a2")
    began_ms = bench.clock.ms
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a1", "a2"]
    for _ in range(2):
        assert bench.pushes.started == []
        bench.clock.pass_time(60)
        bench.deployment.sweeper.sweep()
    assert bench.pushes.started == [("orders", "billing")]
    assert push(bench) is PusherEnd.IDLE
    assert (bench.targets.bodies[2:], bench.clock.ms - began_ms) == (["a1", "a2"], 150_000)


def test_the_sweeper_starts_no_pusher_for_messages_behind_a_key_that_has_stopped() -> None:
    bench = ordered(1, max_attempts=1, when_dead="stop")
    bench.targets.answer = failing_first("a1")
    send(bench, "a1", "a2")
    assert push(bench) is PusherEnd.IDLE
    send(bench, "a3", "b1")
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a1", "a2", "b1"]
    bench.clock.pass_time(60)
    bench.deployment.sweeper.sweep()
    assert bench.pushes.started == []
    assert ("WaitingMessages", 2) in bench.meter.metrics


def test_the_sweeper_starts_a_pusher_once_a_key_is_free() -> None:
    bench = ordered(1)
    send(bench, "a1", "b1")
    request = PullRequest(consumer="c1", max_messages=1)
    (other,) = bench.deployment.pull("orders", "billing", request).pulls
    send(bench, "a2")
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["b1"]
    send(bench, "c1")
    assert push(bench) is PusherEnd.IDLE  # it parks the second message of key a
    bench.deployment.sweeper.sweep()
    assert bench.pushes.started == []
    bench.deployment.settle("orders", "billing", [Settlement(receipt=other.receipt)])
    bench.deployment.sweeper.sweep()
    assert bench.pushes.started == [("orders", "billing")]
