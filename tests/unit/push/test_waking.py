"""A stored message starts the pusher of its group, also after any failure."""

from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import Unavailable
from hourwheel.logs.rows import Row
from hourwheel.model.groups import PushTarget
from hourwheel.model.targets import DONE, Outcome, PushDelivery, unreached
from hourwheel.push.decisions import PusherEnd
from tests.support import Bench, CallByCall
from tests.unit.delay.test_changes import Failing
from tests.unit.push.pushing import LOG, TARGET, bench_with, lag, overdue, push, state, woken


def test_whoever_sends_wakes_the_groups_of_the_subject_and_no_others() -> None:
    bench = bench_with()
    push(bench)
    bench.deployment.groups.put("orders", "billing2", push=TARGET)
    bench.deployment.groups.put("orders", "pulls")
    bench.deployment.groups.put("orders.eu", "billing", push=TARGET)
    bench.pushes.started.clear()
    assert woken(bench, "orders~1/3", "orders~1/0") == 2
    assert bench.pushes.started == [("orders", "billing"), ("orders", "billing2")]
    bench.pushes.started.clear()
    assert woken(bench, "orders~1/retry/billing~1") == 1
    assert bench.pushes.started == [("orders", "billing")]
    assert woken(bench, "orders~1/dead/billing~1", "orders~2/0", "order~1/0", "nonsense", "") == 0


class Interrupting(CallByCall):
    """Runs ``action`` before the call of that number."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.count = 0
        self.at = 1 << 60
        self.action: Callable[[], object] = lambda: None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in {"add", "seal", "counter", "get", "put", "delete", "scan"}:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self.count += 1
            if self.count == self.at:
                self.action()
            return found(*args, **kwargs)

        return call


@pytest.mark.parametrize("target", [TARGET, PushTarget(kind="notify", address="bus", concurrency=1)])
def test_a_message_that_is_stored_at_any_moment_is_pushed_without_the_sweeper(target: PushTarget) -> None:
    """Its sender starts a pusher, or the running pusher still finds it."""
    for at in range(1, 200):
        store = Interrupting()
        bench = bench_with(target, store=store)
        bench.send("first")
        sent: list[int] = []

        def send(bench: Bench = bench, sent: list[int] = sent) -> None:
            bench.send("second")
            bench.targets.announced.clear()
            sent.append(woken(bench))

        store.count, store.at, store.action = 0, at, send
        push(bench)
        if not sent:
            return
        for _ in range(sent[0]):
            push(bench, "p2")
        if target.kind == "notify":
            assert bench.targets.announced, at
        else:
            assert bench.targets.bodies == ["first", "second"], at
    raise AssertionError("it was interrupted at each of 200 calls")


@pytest.mark.parametrize("effect", [False, True])
def test_a_pusher_that_is_cut_off_at_any_call_is_replaced(effect: bool) -> None:
    for cut in range(1, 200):
        store = Failing(effect=effect)
        bench = bench_with(store=store)
        bench.send(*"abc")
        store.count, store.fails_at = 0, cut
        try:
            whole = push(bench) is PusherEnd.IDLE
        except Unavailable:
            whole = False
        store.fails_at = 1 << 60
        for _ in range(10):
            bench.clock.pass_time(60)
            bench.deployment.sweeper.sweep()
            if overdue(bench) or woken(bench):
                push(bench, "p2")
        assert {*bench.targets.bodies} == {*"abc"}, cut
        backlog = lag(bench)
        assert backlog.waiting + backlog.in_flight + backlog.retrying == 0, cut
        if whole:
            return
    raise AssertionError("it was cut off at each of 200 calls")


def test_a_row_that_is_on_its_way_holds_nothing_up_for_longer_than_the_grace() -> None:
    """A row behind it is stored, and its sender found the pusher at work."""
    bench = bench_with()
    log = bench.deployment.context.log(LOG)
    position = log.reserve(1)
    bench.send("behind")
    began_ms = bench.clock.ms
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["behind"]
    assert bench.clock.ms - began_ms <= 2_000
    assert position.row_no == 0


def test_a_row_that_never_comes_with_nothing_behind_it_is_nobodys_concern() -> None:
    bench = bench_with()
    bench.deployment.context.log(LOG).reserve(1)
    assert push(bench) is PusherEnd.IDLE


def test_rows_without_messages_are_not_taken_for_messages() -> None:
    bench = bench_with()
    log = bench.deployment.context.log(LOG)
    for _ in range(3):
        log.abandon(
            log.reserve(1), Row(first_seq=-1, count=0, at_ms=bench.clock.ms, expires_ms=bench.clock.ms + 60_000)
        )
    assert push(bench) is PusherEnd.IDLE


def test_waiting_messages_are_announced_once() -> None:
    bench = bench_with(PushTarget(kind="notify", address="bus"))
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.announced == []
    bench.send("a")
    assert woken(bench) == 1
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.announced == [("orders", "billing")]
    assert bench.targets.deliveries == []
    assert bench.bodies() == ["a"]


def test_an_announcement_that_fails_is_repeated_later() -> None:
    bench = bench_with(PushTarget(kind="notify", address="bus"))
    bench.send("a")
    bench.targets.announce = lambda *_: unreached("no such bus")
    assert push(bench) is PusherEnd.PAUSED
    bench.clock.ms = state(bench).resumes_ms
    assert overdue(bench) == 1


def test_a_message_for_which_the_gateway_answers_that_nobody_is_there_holds_up_nobody_for_ever() -> None:
    bench = bench_with(max_attempts=3)
    bench.send("poison", *map(str, range(30)))

    def answer(delivery: PushDelivery) -> Outcome:
        poisoned = any(message.body == "poison" for message in delivery.messages)
        return unreached("status 503", answered=True) if poisoned else DONE

    bench.targets.answer = answer
    for _ in range(100):
        if push(bench) is PusherEnd.IDLE:
            break
        bench.clock.ms = max(bench.clock.ms + 1, state(bench).resumes_ms)
    taken = [d for d in bench.targets.deliveries if answer(d) is DONE]
    bodies = [message.body for delivery in taken for message in delivery.messages]
    assert sorted(map(str, bodies)) == sorted(map(str, range(30)))
    assert [
        message.body
        for message in bench.deployment.dead_letters("orders", "billing").page(after=None, limit=9).messages
    ] == ["poison"]


def test_a_start_that_is_refused_does_not_end_a_sweep() -> None:
    bench = bench_with()
    bench.send("a")
    bench.deployment.groups.put("orders", "other", push=TARGET)

    def refuse(subject: str, group: str) -> None:
        raise Unavailable("too many requests")

    bench.pushes.start = refuse
    report = bench.another_process().sweeper.sweep()
    assert (report.subjects, report.groups, report.started_pushes) == (1, 2, 0)
    assert ("WakesMissed", 1) in bench.meter.metrics
