"""Pushing for a group: delivering, settling by the answer, pausing a target, and not leaving messages behind."""

from collections.abc import Callable
from threading import Barrier
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.errors import OutcomeUnknown, Rejected, Unavailable
from hourwheel.logs.rows import Row
from hourwheel.model import KEEP_VERSION, Lag, PullRequest, PushTarget
from hourwheel.push.decisions import FAILURES, LONGEST_PAUSE_MS, PusherEnd
from hourwheel.push.pusher import Pusher
from hourwheel.push.state import PushState
from hourwheel.push.waking import drop_leftover, start_overdue, wake
from hourwheel.queueing.pull_log import pull_logs
from hourwheel.targets import DONE, Delivery, Outcome, failure, unreached
from tests.support import Bench, CallByCall
from tests.unit.delay.test_changes import Failing

TARGET = PushTarget(kind="lambda", address="arn:aws:lambda:eu-west-1:123456789012:function:bill", concurrency=1)
LOG = "orders~1/0"


def bench_with(target: PushTarget = TARGET, *, store: Any = None, **settings: Any) -> Bench:
    bench = Bench() if store is None else Bench(store)
    bench.cell.put_group("orders", "billing", push=target, **settings)
    return bench


def pusher(bench: Bench, owner: str = "p1", **how: Any) -> Pusher:
    cell = bench.another_process()
    return Pusher(cell, bench.targets, "orders", "billing", owner, **how)


def push(bench: Bench, owner: str = "p1", **how: Any) -> PusherEnd:
    return pusher(bench, owner, **how).run()


def overdue(bench: Bench) -> int:
    cell = bench.another_process()
    return start_overdue(cell.context, cell.registry)


def woken(bench: Bench, *logs: str) -> int:
    return wake(bench.another_process().context, logs or (LOG,))


def state(bench: Bench) -> PushState:
    return bench.cell.push_state("orders", "billing")[1]


def lag(bench: Bench) -> Lag:
    return bench.another_process().lag("orders", "billing")


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

    def answer(delivery: Delivery) -> Outcome:
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
    assert [message.body for message in bench.cell.dead("orders", "billing", after=None, limit=9).messages] == ["bad"]


def test_a_message_that_a_target_can_never_take_is_dead_at_once() -> None:
    bench = bench_with()
    bench.send("small", "huge")
    bench.targets.answer = lambda delivery: Outcome(dead=frozenset({1}), error="too large")
    assert push(bench) is PusherEnd.IDLE
    assert [message.body for message in bench.cell.dead("orders", "billing", after=None, limit=9).messages] == ["huge"]


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    bench = bench_with()
    bench.send("a", "b", "huge", "d", "e")

    def answer(delivery: Delivery) -> Outcome:
        size = sum(len(message.body or "") for message in delivery.messages)
        return Outcome(too_large=True, error="too large") if size > 2 else DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    taken = [d for d in bench.targets.deliveries if answer(d) is DONE]
    assert [message.body for delivery in taken for message in delivery.messages] == ["a", "b", "d", "e"]
    assert [message.body for message in bench.cell.dead("orders", "billing", after=None, limit=9).messages] == ["huge"]


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
    assert bench.cell.push_state("orders", "billing")[1].error == "connection refused"

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


def test_a_group_has_one_pusher_at_a_time() -> None:
    bench = bench_with()
    bench.send("a")
    ended = []

    def answer(delivery: Delivery) -> Outcome:
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

    def answer(delivery: Delivery) -> Outcome:
        bench.clock.pass_time(25)
        assert push(bench, "p2") is PusherEnd.BUSY
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert len(bench.targets.deliveries) == 50


def test_a_pusher_whose_time_is_over_leaves_the_rest_to_the_next_one() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*"abcd")

    def answer(delivery: Delivery) -> Outcome:
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


def test_a_target_that_is_taken_away_meanwhile_gets_nothing_more() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*"abcd")

    def answer(delivery: Delivery) -> Outcome:
        bench.cell.put_group("orders", "billing", push=None)
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
    bench.cell.delete_group("orders", "billing")
    assert push(bench) is PusherEnd.NO_TARGET
    assert overdue(bench) == woken(bench) == 0
    bench.cell.put_group("orders", "billing", push=TARGET)
    assert overdue(bench) == 1
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["a"]


def test_a_new_target_gets_the_backlog() -> None:
    bench = Bench()
    bench.send("a")
    assert bench.bodies() == ["a"]
    bench.send("b")
    bench.cell.put_group("orders", "billing", push=TARGET)
    assert overdue(bench) == 1
    assert bench.pushes.started == [("orders", "billing")]
    push(bench)
    assert bench.targets.bodies == ["b"]
    bench.cell.put_group("orders", "billing", push=TARGET)
    assert overdue(bench) == 0, "it is the same target"


def test_another_target_is_tried_at_once() -> None:
    bench = bench_with()
    bench.send("a")
    bench.targets.answer = lambda _: unreached("no such function")
    assert push(bench) is PusherEnd.PAUSED
    bench.cell.put_group("orders", "billing", push=PushTarget(kind="lambda", address="g", concurrency=1))
    assert overdue(bench) == 1
    bench.targets.answer = lambda _: DONE
    assert push(bench) is PusherEnd.IDLE


def test_whoever_sends_wakes_the_groups_of_the_subject_and_no_others() -> None:
    bench = bench_with()
    push(bench)
    bench.cell.put_group("orders", "billing2", push=TARGET)
    bench.cell.put_group("orders", "pulls")
    bench.cell.put_group("orders.eu", "billing", push=TARGET)
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
    """Its sender wakes somebody, or whoever pushes now still finds it."""
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
            bench.cell.sweep()
            if overdue(bench) or woken(bench):
                push(bench, "p2")
        assert {*bench.targets.bodies} == {*"abc"}, cut
        standing = lag(bench)
        assert standing.waiting + standing.in_flight + standing.retrying == 0, cut
        if whole:
            return
    raise AssertionError("it was cut off at each of 200 calls")


def test_a_row_that_is_on_its_way_holds_nothing_up_for_longer_than_the_grace() -> None:
    """A row behind it is stored, and its sender found the pusher at work."""
    bench = bench_with()
    log = bench.cell.context.log(LOG)
    place = log.reserve(1)
    bench.send("behind")
    began_ms = bench.clock.ms
    assert push(bench) is PusherEnd.IDLE
    assert bench.targets.bodies == ["behind"]
    assert bench.clock.ms - began_ms <= 2_000
    assert place.row_no == 0


def test_a_row_that_never_comes_with_nothing_behind_it_is_nobodys_concern() -> None:
    bench = bench_with()
    bench.cell.context.log(LOG).reserve(1)
    assert push(bench) is PusherEnd.IDLE


def test_rows_without_messages_are_not_taken_for_messages() -> None:
    bench = bench_with()
    log = bench.cell.context.log(LOG)
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
    bench.targets.announce = lambda *_: unreached("no such bus")  # type: ignore[method-assign]
    assert push(bench) is PusherEnd.PAUSED
    bench.clock.ms = state(bench).resumes_ms
    assert overdue(bench) == 1


def test_a_lost_answer_of_the_lease_keeps_nobody_out_for_long() -> None:
    bench = bench_with()
    bench.send("a")
    slot_put = bench.store.put

    def lose(key: Any, record: Any, *, expect: bytes | None) -> Any:
        answer = slot_put(key, record, expect=expect)
        if key.partition == "pushes":
            raise OutcomeUnknown("lost")
        return answer

    bench.store.put = lose  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        push(bench)
    bench.store.put = slot_put  # type: ignore[method-assign]
    assert overdue(bench) == 0
    bench.clock.pass_time(121)
    assert overdue(bench) == 1
    assert push(bench, "p2") is PusherEnd.IDLE
    assert bench.targets.bodies == ["a"]


def test_a_consumer_that_pulls_beside_a_target_shares_the_work() -> None:
    bench = bench_with()
    bench.send("a")
    result = bench.cell.pull("orders", "billing", PullRequest(consumer="c1"))
    bench.send("b")
    push(bench)
    assert (len(result.pulls), bench.targets.bodies) == (1, ["b"])
    assert all(
        log.group.push is not None
        for log in pull_logs(bench.cell.context, bench.cell.subject("orders"), bench.cell.group("orders", "billing"))
    )


def test_a_batch_that_is_delivered_in_parts_keeps_its_lease_until_the_last_of_them() -> None:
    bench = bench_with(PushTarget(kind="https", address="u", batch=64, concurrency=1))
    bench.send(*map(str, range(64)))
    other = bench.another_process()

    def answer(delivery: Delivery) -> Outcome:
        if len(delivery.messages) > 8:
            return Outcome(too_large=True, error="413")
        bench.clock.pass_time(25)
        other.sweep()
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

    def answer(delivery: Delivery) -> Outcome:
        if len(bench.targets.deliveries) == 1:
            return Outcome(too_large=True, error="413")
        if len(bench.targets.deliveries) == 2:
            bench.clock.pass_time(70)
            other.sweep()  # ends the lease of the batch
        taken.extend((str(message.body), message.attempt) for message in delivery.messages)
        return DONE

    taken: list[tuple[str, int]] = []
    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert taken == [("a", 1), ("a", 2), ("b", 2)]


def test_messages_of_many_queues_are_not_leased_before_their_turn() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=100, concurrency=1))
    bench.cell.put_subject("orders", queues=16)
    for number in range(64):
        bench.send(str(number), key=str(number))
    other = bench.another_process()

    def answer(delivery: Delivery) -> Outcome:
        bench.clock.pass_time(28)
        other.sweep()
        return DONE

    bench.targets.answer = answer
    assert push(bench) is PusherEnd.IDLE
    assert sorted(map(str, bench.targets.bodies)) == sorted(map(str, range(64)))


def test_a_change_of_the_target_meanwhile_stops_nothing() -> None:
    bench = bench_with(PushTarget(kind="lambda", address="f", batch=1, concurrency=1))
    bench.send(*map(str, range(20)))

    def answer(delivery: Delivery) -> Outcome:
        if len(bench.targets.deliveries) == 3:
            other = PushTarget(kind="lambda", address="f", batch=2, concurrency=1)
            bench.another_process().put_group("orders", "billing", push=other)
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

    def answer(delivery: Delivery) -> Outcome:
        bench.cell.put_group("orders", "billing", push=PushTarget(kind="notify", address="bus"))
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

    def answer(delivery: Delivery) -> Outcome:
        if subject_too:
            bench.cell.delete_subject("orders")
        else:
            bench.cell.delete_group("orders", "billing")
        bench.clock.pass_time(3)
        return DONE

    bench.targets.answer = answer
    courier = Pusher(pusher_cell, bench.targets, "orders", "billing", "p1")
    assert courier.run() in (PusherEnd.NO_TARGET, PusherEnd.BUSY)
    assert bench.targets.bodies == ["a"]
    subjects, _ = bench.another_process().subjects("", 10)
    if subject_too:
        assert subjects == []
    else:
        assert bench.another_process().groups("orders") == ([], None)


def test_a_fault_makes_a_pause_that_grows_while_it_lasts() -> None:
    target = PushTarget(kind="lambda", address="f", timeout_seconds=300, concurrency=1)
    bench = bench_with(target, store=CallByCall(MemoryStore()))
    bench.send("a")
    put = bench.store.put

    def refuse(key: Any, record: Any, *, expect: bytes | None) -> Any:
        if key.table == "pull":
            raise Unavailable("for a moment")
        return put(key, record, expect=expect)

    bench.store.put = refuse  # type: ignore[method-assign]
    for seconds in (5, 10, 20):
        with pytest.raises(Unavailable):
            push(bench)
        assert (woken(bench), overdue(bench)) == (0, 0)
        assert (state(bench).resumes_ms, state(bench).error) == (bench.clock.ms + seconds * 1_000, "Unavailable")
        bench.clock.ms = state(bench).resumes_ms
    bench.store.put = put  # type: ignore[method-assign]
    assert overdue(bench) == 1
    assert push(bench, "p2") is PusherEnd.IDLE
    assert bench.targets.bodies == ["a"]
    assert state(bench) == PushState()


def test_deliveries_that_fail_side_by_side_make_one_pause_after_the_other() -> None:
    together = Barrier(8)

    def answer(delivery: Delivery) -> Outcome:
        if not bench.cell.push_state("orders", "billing")[1].pauses:
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
    bench.targets.announce = lambda *_: told  # type: ignore[method-assign]
    assert push(bench) is PusherEnd.PAUSED
    assert state(bench).failures == 1
    bench.clock.ms = state(bench).resumes_ms
    bench.targets.announce = announce  # type: ignore[method-assign]
    assert push(bench) is PusherEnd.IDLE
    assert state(bench) == PushState()


def test_a_record_that_was_left_of_a_target_goes_when_somebody_was_started_for_nothing() -> None:
    bench = bench_with()
    push(bench)
    cell = bench.another_process()
    cell.registry.change_group(
        cell.subject("orders"), "billing", lambda group: msgspec.structs.replace(group, push=None)
    )
    bench.send("a")
    assert woken(bench) == 1
    assert push(bench) is PusherEnd.NO_TARGET
    drop_leftover(cell.context, cell.registry, "orders", "billing")
    assert woken(bench) == 0


def test_a_message_for_which_the_gateway_answers_that_nobody_is_there_holds_up_nobody_for_ever() -> None:
    bench = bench_with(max_attempts=3)
    bench.send("poison", *map(str, range(30)))

    def answer(delivery: Delivery) -> Outcome:
        poisoned = any(message.body == "poison" for message in delivery.messages)
        return unreached("status 503", answered=True) if poisoned else DONE

    bench.targets.answer = answer
    for _ in range(30):
        if push(bench) is PusherEnd.IDLE:
            break
        bench.clock.ms = max(bench.clock.ms + 1, state(bench).resumes_ms)
    taken = [d for d in bench.targets.deliveries if answer(d) is DONE]
    bodies = [message.body for delivery in taken for message in delivery.messages]
    assert sorted(map(str, bodies)) == sorted(map(str, range(30)))
    assert [message.body for message in bench.cell.dead("orders", "billing", after=None, limit=9).messages] == [
        "poison"
    ]


def test_a_secret_that_was_replaced_does_not_come_back() -> None:
    bench = Bench()

    def set_target(**how: Any) -> PushTarget | None:
        push = PushTarget(kind="https", address="https://example.org", **how)
        return bench.cell.put_group("orders", "billing", push=push).push

    def version(target: PushTarget | None) -> int:
        assert target is not None
        return target.secret_version

    assert version(set_target(secret_version=KEEP_VERSION)) == 1
    assert version(set_target(secret_version=3)) == 3
    assert version(set_target(secret_version=KEEP_VERSION, batch=20)) == 3
    bench.cell.put_group("orders", "billing", push=None)
    assert version(set_target(secret_version=KEEP_VERSION)) == 3
    with pytest.raises(Rejected, match="higher"):
        set_target(secret_version=2)


def test_a_start_that_is_refused_does_not_end_a_sweep() -> None:
    bench = bench_with()
    bench.send("a")
    bench.cell.put_group("orders", "other", push=TARGET)

    def refuse(subject: str, group: str) -> None:
        raise Unavailable("too many requests")

    bench.pushes.start = refuse  # type: ignore[method-assign]
    report = bench.another_process().sweep()
    assert (report.subjects, report.groups, report.started_pushes) == (1, 2, 0)
    assert ("WakesMissed", 1) in bench.meter.figures
