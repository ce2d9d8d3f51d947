"""The target, the group or the subject changes while the pusher works."""

from typing import Any

import msgspec
import pytest

from hourwheel.errors import Rejected
from hourwheel.model.groups import KEEP_VERSION, PushTarget
from hourwheel.model.targets import DONE, Outcome, PushDelivery, unreached
from hourwheel.push.decisions import PusherEnd
from hourwheel.push.pusher import Pusher
from hourwheel.push.state import PushState
from hourwheel.push.waking import drop_leftover
from tests.support import Bench
from tests.unit.push.pushing import TARGET, bench_with, lag, overdue, push, state, woken


def test_a_target_that_is_taken_away_meanwhile_gets_nothing_more() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*"abcd")

    def answer(delivery: PushDelivery) -> Outcome:
        bench.deployment.groups.put("orders", "billing", push=None)
        bench.clock.pass_time(3)
        return DONE

    bench.targets.answer = answer
    assert push(bench) in (PusherEnd.NO_TARGET, PusherEnd.BUSY)
    assert bench.targets.bodies == ["a"]
    assert lag(bench).waiting == 3
    assert push(bench) is PusherEnd.NO_TARGET
    assert overdue(bench) == woken(bench) == 0


def test_a_deleted_group_is_not_pushed_any_more_and_a_new_one_of_its_name_is() -> None:
    bench = bench_with()
    bench.send("a")
    bench.deployment.groups.delete("orders", "billing")
    assert push(bench) is PusherEnd.NO_TARGET
    assert overdue(bench) == woken(bench) == 0
    bench.deployment.groups.put("orders", "billing", push=TARGET)
    assert overdue(bench) == 1
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a"]


def test_a_new_target_gets_the_backlog() -> None:
    bench = Bench()
    bench.send("a")
    assert bench.bodies() == ["a"]
    bench.send("b")
    bench.deployment.groups.put("orders", "billing", push=TARGET)
    assert overdue(bench) == 1
    assert bench.pushes.started == [("orders", "billing")]
    push(bench)
    assert bench.targets.bodies == ["b"]
    bench.deployment.groups.put("orders", "billing", push=TARGET)
    assert overdue(bench) == 0, "it is the same target"


def test_another_target_is_tried_at_once() -> None:
    bench = bench_with()
    bench.send("a")
    bench.targets.answer = lambda _: unreached("no such function")
    assert push(bench) is PusherEnd.PAUSED
    bench.deployment.groups.put("orders", "billing", push=PushTarget(kind="lambda", address="g", concurrency=1))
    assert overdue(bench) == 1
    bench.targets.answer = lambda _: DONE
    assert push(bench) is PusherEnd.IDLE


def test_a_change_of_the_target_meanwhile_stops_nothing() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*map(str, range(20)))

    def answer(delivery: PushDelivery) -> Outcome:
        if len(bench.targets.deliveries) == 3:
            other = PushTarget(kind="lambda", address="f", batch=2, concurrency=1)
            bench.another_process().groups.put("orders", "billing", push=other)
        bench.clock.pass_time(5)
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == [*map(str, range(20))]
    assert state(bench) == PushState()
    bench.send("more")
    assert woken(bench) == 1
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies[-1] == "more"


def test_a_target_that_becomes_a_notify_target_is_notified_once() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*"abc")

    def answer(delivery: PushDelivery) -> Outcome:
        bench.deployment.groups.put("orders", "billing", push=PushTarget(kind="notify", address="bus"))
        bench.clock.pass_time(3)
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert (bench.targets.bodies, bench.targets.announced) == (["a"], [("orders", "billing")])
    assert sorted(map(str, bench.bodies())) == ["b", "c"]


@pytest.mark.parametrize("subject_too", [False, True])
def test_a_deleted_group_or_subject_is_not_created_again(subject_too: bool) -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*"abc")
    pusher_cell = bench.another_process()

    def answer(delivery: PushDelivery) -> Outcome:
        if subject_too:
            bench.deployment.subjects.delete("orders")
        else:
            bench.deployment.groups.delete("orders", "billing")
        bench.clock.pass_time(3)
        return DONE

    bench.targets.answer = answer
    courier = Pusher(pusher_cell, bench.targets, "orders", "billing", "p1")
    assert courier.run() in (PusherEnd.NO_TARGET, PusherEnd.BUSY)
    assert bench.targets.bodies == ["a"]
    subjects, _ = bench.another_process().subjects.page("", 10)
    if subject_too:
        assert subjects == []
    else:
        assert bench.another_process().groups.page("orders") == ([], None)


def test_a_record_that_was_left_of_a_target_goes_when_somebody_was_started_for_nothing() -> None:
    bench = bench_with()
    push(bench)
    deployment = bench.another_process()
    deployment.registry.change_group(
        deployment.subjects.get("orders"), "billing", lambda group: msgspec.structs.replace(group, push=None)
    )
    bench.send("a")
    assert woken(bench) == 1
    assert push(bench) is PusherEnd.NO_TARGET
    drop_leftover(deployment.context, deployment.registry, "orders", "billing")
    assert woken(bench) == 0


def test_a_secret_that_was_replaced_does_not_come_back() -> None:
    bench = Bench()

    def set_target(**how: Any) -> PushTarget | None:
        push = PushTarget(kind="https", address="https://example.org", **how)
        return bench.deployment.groups.put("orders", "billing", push=push).push

    def version(target: PushTarget | None) -> int:
        assert target is not None
        return target.secret_version

    assert version(set_target(secret_version=KEEP_VERSION)) == 1
    assert version(set_target(secret_version=3)) == 3
    assert version(set_target(secret_version=KEEP_VERSION, batch=20)) == 3
    bench.deployment.groups.put("orders", "billing", push=None)
    assert version(set_target(secret_version=KEEP_VERSION)) == 3
    with pytest.raises(Rejected, match="higher"):
        set_target(secret_version=2)
