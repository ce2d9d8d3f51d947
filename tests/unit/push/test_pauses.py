"""A target that fails is paused, and then one batch is tried."""

from threading import Barrier
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Unavailable
from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE, Outcome, PushDelivery, failure, unreached
from hourwheel.push.decisions import FAILURES, LONGEST_PAUSE_MS, PusherEnd
from hourwheel.push.state import PushState
from tests.support import CallByCall
from tests.unit.push.pushing import bench_with, lag, overdue, push, state, woken


def test_a_target_that_is_not_reached_costs_no_attempt_and_is_paused() -> None:
    bench = bench_with()
    bench.send(*"abc")
    bench.targets.answer = lambda _: unreached("connection refused")
    pauses = []
    for _ in range(12):
        assert push(bench) is PusherEnd.PAUSED
        pauses.append(state(bench).resumes_ms - bench.clock.ms)
        assert push(bench) is PusherEnd.PAUSED
        assert woken(bench) == 0
        assert overdue(bench) == 0
        bench.clock.ms = state(bench).resumes_ms
        assert overdue(bench) == 1
    assert pauses[:4] == [5_000, 10_000, 20_000, 40_000]
    assert pauses[-1] == LONGEST_PAUSE_MS
    assert len(bench.targets.deliveries) == 12
    assert bench.deployment.groups.push_state("orders", "billing")[1].error == "connection refused"

    bench.targets.answer = lambda _: DONE
    assert push(bench) is PusherEnd.IDLE
    assert sorted(map(str, bench.targets.bodies[-3:])) == ["a", "b", "c"]
    assert {message.attempt for message in bench.targets.deliveries[-1].messages} == {1}
    assert state(bench) == PushState()
    assert lag(bench).waiting + lag(bench).retrying + lag(bench).in_flight == 0


def test_a_target_may_say_how_long_it_is_to_be_paused() -> None:
    bench = bench_with()
    bench.send("a")
    bench.targets.answer = lambda _: unreached("429", 77)
    push(bench)
    assert state(bench).resumes_ms == bench.clock.ms + 77_000


def test_failures_in_a_row_make_a_pause_and_then_one_batch_is_tried() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=4), max_attempts=100)
    bench.send(*map(str, range(30)))
    bench.targets.answer = lambda delivery: failure(delivery, "500")
    assert push(bench) is PusherEnd.PAUSED
    before = len(bench.targets.deliveries)
    assert FAILURES <= before <= FAILURES + 3, "those that were under way are finished"
    assert state(bench).failures >= FAILURES
    bench.clock.ms = state(bench).resumes_ms
    assert push(bench) is PusherEnd.PAUSED
    assert len(bench.targets.deliveries) == before + 1
    bench.clock.ms = state(bench).resumes_ms
    bench.targets.answer = lambda _: DONE
    assert push(bench) is PusherEnd.IDLE
    assert {*map(str, range(30))} == {*bench.targets.bodies[before + 1 :]}
    assert state(bench) == PushState()


def test_a_day_without_a_target_costs_a_delivery_each_quarter_of_an_hour() -> None:
    bench = bench_with(max_attempts=1_000)
    bench.targets.answer = lambda delivery: failure(delivery, "500")
    bench.send(*map(str, range(100)))
    end_ms = bench.clock.ms + 86_400_000
    while bench.clock.ms < end_ms:
        if overdue(bench) or woken(bench):
            push(bench)
        bench.clock.pass_time(60)
    assert len(bench.targets.deliveries) <= FAILURES + 12 + 86_400_000 // LONGEST_PAUSE_MS
    bench.targets.answer = lambda _: DONE
    bench.clock.pass_time(900)
    taken = len(bench.targets.deliveries)
    assert push(bench) is PusherEnd.IDLE
    assert {*map(str, range(100))} == {*bench.targets.bodies[:]}
    assert lag(bench).waiting + lag(bench).retrying + lag(bench).dead == 0
    assert len(bench.targets.deliveries) > taken


def test_a_fault_makes_a_pause_that_grows_while_it_lasts() -> None:
    target = PushTarget(kind="lambda", address="f", timeout_seconds=300, concurrency=1)
    bench = bench_with(target, store=CallByCall(MemoryStore()))
    bench.send("a")
    put = bench.store.put

    def refuse(key: Any, record: Any, *, expect: bytes | None) -> Any:
        if key.table == "pull":
            raise Unavailable("for a moment")
        return put(key, record, expect=expect)

    bench.store.put = refuse
    for seconds in (5, 10, 20):
        with pytest.raises(Unavailable):
            push(bench)
        assert (woken(bench), overdue(bench)) == (0, 0)
        assert (state(bench).resumes_ms, state(bench).error) == (bench.clock.ms + seconds * 1_000, "Unavailable")
        bench.clock.ms = state(bench).resumes_ms
    bench.store.put = put
    assert overdue(bench) == 1
    assert push(bench, "p2") is PusherEnd.IDLE
    assert bench.targets.bodies == ["a"]
    assert state(bench) == PushState()


def test_deliveries_that_fail_side_by_side_make_one_pause_after_the_other() -> None:
    together = Barrier(8)

    def answer(delivery: PushDelivery) -> Outcome:
        if not bench.deployment.groups.push_state("orders", "billing")[1].pauses:
            together.wait(10)
        return unreached("down")

    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=8))
    bench.send(*map(str, range(20)))
    bench.targets.answer = answer
    pauses = []
    for _ in range(4):
        assert push(bench) is PusherEnd.PAUSED
        pauses.append(state(bench).resumes_ms - bench.clock.ms)
        bench.clock.ms = state(bench).resumes_ms
    assert pauses == [5_000, 10_000, 20_000, 40_000]
    assert len(bench.targets.deliveries) == 8 + 3


def test_a_notify_target_that_works_again_counts_no_failures() -> None:
    bench = bench_with(PushTarget(kind="notify", address="bus"))
    bench.send("a")
    announce, told = bench.targets.announce, unreached("denied")
    bench.targets.announce = lambda *_: told
    assert push(bench) is PusherEnd.PAUSED
    assert state(bench).failures == 1
    bench.clock.ms = state(bench).resumes_ms
    bench.targets.announce = announce
    assert push(bench) is PusherEnd.IDLE
    assert state(bench) == PushState()
