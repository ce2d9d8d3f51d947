"""A group has one pusher at a time, which holds no message longer than its lease."""

from typing import Any

import pytest

from hourwheel.errors import OutcomeUnknown
from hourwheel.model.groups import PushTarget
from hourwheel.model.pulls import PullRequest
from hourwheel.model.targets import DONE, Outcome, PushDelivery
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.push.decisions import PusherEnd
from tests.unit.push.pushing import bench_with, lag, overdue, push, woken


def test_a_group_has_one_pusher_at_a_time() -> None:
    bench = bench_with()
    bench.send("a")
    ended = []

    def answer(delivery: PushDelivery) -> Outcome:
        ended.append(push(bench, "p2"))
        assert woken(bench) == 0, "somebody pushes"
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert ended == [PusherEnd.BUSY]
    assert bench.targets.bodies == ["a"]


def test_a_lease_is_renewed_as_long_as_there_is_something_to_deliver() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*map(str, range(50)))

    def answer(delivery: PushDelivery) -> Outcome:
        bench.clock.pass_time(25)
        assert push(bench, "p2") is PusherEnd.BUSY
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert len(bench.targets.deliveries) == 50


def test_a_pusher_whose_time_is_over_leaves_the_rest_to_the_next_one() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*"abcd")

    def answer(delivery: PushDelivery) -> Outcome:
        bench.clock.pass_time(10)
        return DONE

    bench.targets.answer = answer
    assert push(bench, leaves_ms=bench.clock.ms + 15_000) is PusherEnd.LEFT
    assert bench.targets.bodies == ["a", "b"]
    assert push(bench, "p2") is PusherEnd.IDLE
    assert bench.targets.bodies == ["a", "b", "c", "d"]


def test_a_pusher_that_is_stopped_leaves_the_rest() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=2))
    bench.send(*"abcd")
    assert push(bench, stopping=lambda: len(bench.targets.deliveries) > 0) is PusherEnd.LEFT
    assert 1 <= len(bench.targets.deliveries) <= 2
    assert push(bench, "p2") is PusherEnd.IDLE
    assert sorted(map(str, bench.targets.bodies)) == list("abcd")


def test_a_lost_answer_of_the_lease_keeps_nobody_out_for_long() -> None:
    bench = bench_with()
    bench.send("a")
    slot_put = bench.store.put

    def lose(key: Any, record: Any, *, expect: bytes | None) -> Any:
        answer = slot_put(key, record, expect=expect)
        if key.partition == "pushes":
            raise OutcomeUnknown("lost")
        return answer

    bench.store.put = lose
    with pytest.raises(OutcomeUnknown):
        push(bench)
    bench.store.put = slot_put
    assert overdue(bench) == 0
    bench.clock.pass_time(121)
    assert overdue(bench) == 1
    assert push(bench, "p2") is PusherEnd.IDLE
    assert bench.targets.bodies == ["a"]


def test_a_consumer_that_pulls_beside_a_target_shares_the_work() -> None:
    bench = bench_with()
    bench.send("a")
    result = bench.deployment.pull("orders", "billing", PullRequest(consumer="c1"))
    bench.send("b")
    push(bench)
    assert (len(result.pulls), bench.targets.bodies) == (1, ["b"])
    assert all(
        log.group.push is not None
        for log in pull_logs(
            bench.deployment.context,
            bench.deployment.subjects.get("orders"),
            bench.deployment.groups.get("orders", "billing"),
        )
    )


def test_a_batch_that_is_delivered_in_parts_keeps_its_lease_until_the_last_of_them() -> None:
    bench = bench_with(PushTarget(kind="https", address="u", batch=64, concurrency=1))
    bench.send(*map(str, range(64)))
    other = bench.another_process()

    def answer(delivery: PushDelivery) -> Outcome:
        if len(delivery.messages) > 8:
            return Outcome(too_large=True, error="413")
        bench.clock.pass_time(25)
        other.sweeper.sweep()
        taken.extend(str(message.body) for message in delivery.messages)
        return DONE

    taken: list[str] = []
    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert taken == [*map(str, range(64))]
    assert lag(bench).waiting + lag(bench).retrying + lag(bench).in_flight + lag(bench).dead == 0


def test_the_rest_of_a_batch_whose_lease_has_ended_is_left_to_whoever_has_it_now() -> None:
    bench = bench_with(PushTarget(kind="https", address="u", batch=2, concurrency=1))
    bench.send("a", "b")
    other = bench.another_process()

    def answer(delivery: PushDelivery) -> Outcome:
        if len(bench.targets.deliveries) == 1:
            return Outcome(too_large=True, error="413")
        if len(bench.targets.deliveries) == 2:
            bench.clock.pass_time(70)
            other.sweeper.sweep()  # ends the lease of the batch
        taken.extend((str(message.body), message.attempt) for message in delivery.messages)
        return DONE

    taken: list[tuple[str, int]] = []
    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert taken == [("a", 1), ("a", 1), ("b", 1)]


def test_messages_of_many_queues_are_not_leased_before_their_turn() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=100, concurrency=1))
    bench.deployment.subjects.put("orders", queues=16)
    for number in range(64):
        bench.send(str(number), key=str(number))
    other = bench.another_process()

    def answer(delivery: PushDelivery) -> Outcome:
        bench.clock.pass_time(28)
        other.sweeper.sweep()
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert sorted(map(str, bench.targets.bodies)) == sorted(map(str, range(64)))
