"""The overview shows subjects and groups with their numbers side by side."""

import threading
from collections import Counter
from functools import partial
from typing import Any, cast

import pytest
from msgspec import UNSET

from hourwheel.adapters.memory import MemoryStore
from hourwheel.delay.lists.pending_counts import Address
from hourwheel.errors import Rejected
from hourwheel.groups.numbers import GroupNumbers, SubjectNumbers
from hourwheel.groups.seeks import offsets
from hourwheel.model.groups import RetryPolicy
from hourwheel.model.overview import OverviewSort, SubjectOverview
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.model.subjects import Subject
from hourwheel.operations.overview import OverviewRequest
from hourwheel.operations.refresh_share import RefreshShare
from tests.support import Bench, CallByCall


def shown(bench: Bench, **how: Any) -> list[SubjectOverview]:
    return bench.deployment.overview.page(OverviewRequest(**how)).subjects


def names(bench: Bench, **how: object) -> list[str]:
    return [subject.subject for subject in shown(bench, **how)]


def furnish(bench: Bench) -> None:
    """Leaves a message in each state to the group billing: of eight, three are pulled."""
    bench.deployment.groups.put("orders", "billing", retry=RetryPolicy(delays_seconds=(60,)), max_attempts=2)
    bench.send(*"abcde")
    (pull,) = bench.pull(3)
    bench.settle(pull, ack=[], retry=[0], dead=[1])
    bench.send_later("later", delay="2h")
    bench.send_later("at last", delay="400d")


def test_the_numbers_of_a_subject_are_those_of_the_lags_of_its_groups(bench: Bench) -> None:
    furnish(bench)
    bench.deployment.groups.put("orders", "mail")
    (numbers,) = shown(bench)
    lags = [bench.deployment.groups.lag("orders", group) for group in ("billing", "mail")]
    for number in ("waiting", "in_flight", "retrying", "backing_off", "dead"):
        assert getattr(numbers, number) == sum(getattr(lag, number) for lag in lags), number
    assert (numbers.waiting, numbers.in_flight, numbers.backing_off, numbers.dead) == (2 + 5, 1, 1, 1)
    assert (numbers.groups, numbers.end, numbers.settled, numbers.delayed) == (2, 5, 3, 2)
    assert numbers.oldest_at == min(lag.oldest_at for lag in lags if lag.oldest_at)
    assert numbers.complete


def test_the_groups_of_a_subject_stand_side_by_side(bench: Bench) -> None:
    furnish(bench)
    bench.deployment.groups.put("orders", "mail")
    bench.deployment.groups.pause("orders", "mail", paused=True)
    page = bench.deployment.overview.groups("orders", "", 100)
    found = {group.group: (group.waiting, group.in_flight, group.dead, group.settled) for group in page.groups}
    assert found == {"billing": (2, 1, 1, 3), "mail": (5, 0, 0, 0)}
    assert [group.paused for group in page.groups] == [False, True]
    (queue,) = page.queues
    assert (queue.start, queue.end, page.delayed) == (0, 5, 2)
    assert queue.produced_per_second == round(5 / 60, 3)
    assert queue.bytes is not None
    assert queue.bytes > 0
    first = bench.deployment.overview.groups("orders", "", 1)
    assert ([group.group for group in first.groups], first.next) == (["billing"], "billing")
    rest = bench.deployment.overview.groups("orders", "billing", 1)
    assert ([group.group for group in rest.groups], rest.next) == (["mail"], None)


def test_a_quiet_minute_makes_the_rate_zero_and_a_busy_one_is_searched(bench: Bench) -> None:
    for _ in range(30):
        bench.send("old")
        bench.clock.pass_time(10)
    (queue,) = bench.deployment.overview.groups("orders", "", 1).queues
    assert queue.produced_per_second == 0.1
    for _ in range(60):
        bench.send("new", "too")
        bench.clock.pass_time(0.5)
    (queue,) = bench.deployment.overview.groups("orders", "", 1).queues
    assert queue.produced_per_second == (120 + 3) / 60
    bench.clock.pass_time(61)
    (queue,) = bench.deployment.overview.groups("orders", "", 1).queues
    assert queue.produced_per_second == 0


def test_a_broadcast_group_has_the_numbers_of_all_its_consumers(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    bench.send("a", "b")
    for consumer in ("hall", "desk"):
        bench.deployment.pull("orders", "screens", PullRequest(consumer=consumer, max_messages=1))
    (group,) = bench.deployment.overview.groups("orders", "", 100).groups
    assert (group.group, group.broadcast, group.waiting, group.in_flight) == ("screens", True, 2, 2)
    (subject,) = shown(bench)
    assert (subject.groups, subject.waiting, subject.in_flight) == (1, 2, 2)


def test_parked_messages_of_an_ordered_group_count_as_in_its_lag(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "ledger", ordered=True, retry=RetryPolicy(delays_seconds=(60,)))
    bench.send("1", "2", key="k")
    (pull,) = bench.pull(1, group="ledger")
    bench.settle(pull, group="ledger", retry=[0])
    bench.pull(group="ledger")
    lag = bench.deployment.groups.lag("orders", "ledger")
    (group,) = bench.deployment.overview.groups("orders", "", 100).groups
    assert (group.waiting, group.backing_off) == (lag.waiting, lag.backing_off)
    assert lag.backing_off == 1


def test_held_and_stopped_keys_of_ordered_groups_are_counted(bench: Bench) -> None:
    bench.deployment.groups.put(
        "orders",
        "ledger",
        ordered=True,
        max_attempts=1,
        when_dead="stop",
        retry=RetryPolicy(delays_seconds=(60,)),
    )
    bench.deployment.groups.put("orders", "mail", ordered=True, retry=RetryPolicy(delays_seconds=(60,)))
    for key in "ab":
        bench.send(key, key=key)
    for group, retried in (("ledger", [0]), ("mail", [0, 1])):
        (pull,) = bench.pull(2, group=group)
        bench.settle(pull, group=group, retry=retried)
    stopping, mail = bench.deployment.overview.groups("orders", "", 100).groups
    assert (stopping.group, stopping.held, stopping.stopped) == ("ledger", 1, 1)
    assert (mail.group, mail.held, mail.stopped) == ("mail", 2, 0)
    (subject,) = shown(bench)
    assert (subject.held, subject.stopped) == (3, 1)
    held = bench.deployment.groups.lag("orders", "ledger").held
    assert held is not UNSET
    assert held.stopped == 1


def test_the_overview_reads_no_message_of_a_held_key() -> None:
    store = CallByCall(Bench().store)
    bench = Bench(store=store)
    bench.deployment.groups.put("orders", "ledger", ordered=True, retry=RetryPolicy(delays_seconds=(3_600,)))
    for key in range(40):
        bench.send("x", key=f"key-{key}")
    (pull,) = bench.pull(40, group="ledger")
    bench.settle(pull, group="ledger", retry=list(range(40)))
    bench.deployment.overview.groups("orders", "", 100)
    store.calls.clear()
    (group,) = bench.deployment.overview.groups("orders", "", 100).groups
    assert group.held == 40
    assert len(store.calls) < 30


def test_what_was_settled_no_longer_counts_as_in_flight(bench: Bench) -> None:
    bench.send("a")
    (pull,) = bench.pull()
    assert shown(bench)[0].in_flight == 1
    bench.settle(pull)
    bench.clock.pass_time(2)
    assert shown(bench)[0].in_flight == 0


class NotedLock:
    """A lock that notes when a thread has to wait for it."""

    def __init__(self, noted: threading.Event) -> None:
        self._lock = threading.Lock()
        self._noted = noted

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._noted.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class DeletionBetween:
    """Reads numbers; another thread deletes a subject meanwhile, and ends or waits for the lock."""

    def __init__(self, bench: Bench, name: str) -> None:
        overview, self._went_on = bench.deployment.overview, threading.Event()
        self._numbers = overview.numbers
        self._delete = partial(bench.deployment.subjects.delete, name)
        self.thread = threading.Thread(target=self._run)
        self.seen_pulls = overview.numbers.seen_pulls
        overview.numbers = cast(GroupNumbers, self)
        overview._lock = cast(threading.Lock, NotedLock(self._went_on))

    def _run(self) -> None:
        self._delete()
        self._went_on.set()

    def read(self, subject: Subject, pending: Counter[Address]) -> SubjectNumbers:
        if self.thread.ident is None:
            self.thread.start()
            assert self._went_on.wait(30)
        return self._numbers.read(subject, pending)


def test_a_subject_may_be_deleted_while_others_are_read(bench: Bench) -> None:
    for subject in "abc":
        bench.send("x", subject=subject)
    bench.deployment.overview.concerns()
    bench.clock.pass_time(2)
    between = DeletionBetween(bench, "c")
    concerns = bench.deployment.overview.concerns()
    assert (concerns.concerns, concerns.complete) == ([], True)
    between.thread.join()
    bench.clock.pass_time(30)
    assert names(bench, sort="waiting", order="desc") == ["b", "a"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("waiting", ["b", "c", "a"]),
        ("in_flight", ["a", "c", "b"]),
        ("dead", ["c", "b", "a"]),
        ("delayed", ["c", "b", "a"]),
        ("oldest", ["b", "c", "a"]),
    ],
)
def test_subjects_are_sorted_by_a_number_the_largest_first(
    bench: Bench, sort: OverviewSort, expected: list[str]
) -> None:
    for subject, count in (("b", 3), ("a", 2), ("c", 4)):
        bench.send(*"wxyz"[:count], subject=subject)
        bench.clock.pass_time(1)
    bench.pull(2, subject="a")
    (pull,) = bench.pull(2, subject="c")
    bench.settle(pull, subject="c", dead=[0], ack=[])
    bench.deployment.groups.put("b", "billing")
    bench.send_later("later", delay="3d", subject="c")
    assert names(bench, sort=sort, order="desc") == expected
    assert names(bench, sort=sort, order="asc") == expected[::-1]
    page = bench.deployment.overview.page(OverviewRequest("", 2, "", sort, "desc"))
    assert [subject.subject for subject in page.subjects] == expected[:2]
    assert page.next is not None
    assert names(bench, after=page.next, limit=2, sort=sort, order="desc") == expected[2:]


def test_pages_by_name_follow_one_another_and_have_the_prefix(bench: Bench) -> None:
    for name in ("a", "order", "order-1", "order-2", "orders", "p"):
        bench.deployment.subjects.put(name)
    assert names(bench, prefix="order") == ["order", "order-1", "order-2", "orders"]
    page = bench.deployment.overview.page(OverviewRequest("", 2, "order"))
    assert page.next == "order-1"
    assert names(bench, prefix="order", after="order-1") == ["order-2", "orders"]
    assert names(bench, prefix="order", sort="waiting", order="asc") == ["order", "order-1", "order-2", "orders"]
    assert names(bench, prefix="q") == []


def test_numbers_are_read_again_and_settings_are_those_of_now(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "billing")
    bench.send("a")
    assert shown(bench)[0].waiting == 1
    bench.send("b")
    bench.deployment.subjects.put("orders", read_only=True)
    assert [(each.waiting, each.read_only) for each in shown(bench)] == [(1, True)]
    assert [(each.waiting, each.read_only) for each in shown(bench, sort="dead", order="desc")] == [(1, True)]
    bench.clock.pass_time(1.5)
    assert shown(bench)[0].waiting == 2


def test_a_subject_that_was_deleted_and_made_again_has_none_of_the_former_numbers(bench: Bench) -> None:
    bench.send("a", "b")
    bench.pull(1)
    assert shown(bench, sort="waiting", order="desc")[0].waiting == 1
    bench.deployment.subjects.delete("orders")
    assert names(bench) == names(bench, sort="waiting", order="desc") == []
    bench.send("c")
    assert [(each.groups, each.end) for each in shown(bench)] == [(0, 1)]


def test_where_each_read_costs_money_only_names_are_sorted() -> None:
    bench = Bench(store=CallByCall(Bench().store))
    bench.send("a")
    assert names(bench) == ["orders"]
    for request in (OverviewRequest(sort="dead", order="desc"), OverviewRequest(order="desc")):
        with pytest.raises(Rejected, match="sort is name"):
            bench.deployment.overview.page(request)


def test_an_idle_subject_costs_few_reads() -> None:
    store = CallByCall(Bench().store)
    bench = Bench(store=store)
    for group in range(10):
        bench.deployment.groups.put("orders", f"g{group}")
    bench.send("a")
    for group in range(10):
        (pull,) = bench.pull(group=f"g{group}")
        bench.settle(pull, group=f"g{group}")
    shown(bench)
    bench.clock.pass_time(2)
    store.calls.clear()
    shown(bench)
    # The list of subjects and its shards, the subject, the groups, the counters of 21 logs, the pull rows of groups.
    assert len(store.calls) == 2 + 1 + 1 + 1 + 10


def test_counts_stop_at_their_limits_and_say_so() -> None:
    bench = Bench(CallByCall(MemoryStore()))  # where each read costs money
    bench.deployment.groups.put("orders", "billing")
    for _ in range(60):
        bench.send("a")
        bench.pull(1)
    (group,) = bench.deployment.overview.groups("orders", "", 1).groups
    assert (group.in_flight, group.complete) == (60, False)


def test_delayed_messages_that_were_cancelled_or_sent_no_longer_count(bench: Bench) -> None:
    near, far = bench.send_later("near", delay="3h"), bench.send_later("far", delay="300d")
    bench.send_later("other", delay="300d", subject="other")
    assert {each.subject: each.delayed for each in shown(bench)} == {"orders": 2, "other": 1}
    bench.deployment.delayed.cancel(far[0].scheduled_id or "")
    bench.clock.pass_time(5)
    assert {each.subject: each.delayed for each in shown(bench)} == {"orders": 1, "other": 1}
    bench.turn(4 * 3_600)
    assert bench.deployment.delayed.get(near[0].scheduled_id or "").state == "dispatched"
    assert {each.subject: each.delayed for each in shown(bench)} == {"orders": 0, "other": 1}


def test_delayed_messages_that_are_not_all_read_make_the_numbers_incomplete(
    monkeypatch: pytest.MonkeyPatch, bench: Bench
) -> None:
    monkeypatch.setattr("hourwheel.operations.overview._DELAYED_ROWS", 2)
    for _ in range(3):
        bench.send_later("a", delay="3h")
    assert [(each.delayed, each.complete) for each in shown(bench)] == [(2, False)]
    bench.clock.pass_time(5)
    assert [(each.delayed, each.complete) for each in shown(bench)] == [(3, True)]


def test_the_refresh_share_allows_two_thirds_of_a_hundredth_of_the_time() -> None:
    share, spent_ms = RefreshShare(), 0
    for now_ms in range(1_000_000, 2_000_000, 1_000):
        while share.allows(now_ms):
            share.spend(40)
            spent_ms += 40
    assert 6_660 <= spent_ms <= 6_670 + 300 + 40


def test_a_dry_run_counts_what_the_seek_then_does(bench: Bench) -> None:
    for _ in range(4):
        bench.send("a", "b")
        bench.clock.pass_time(10)
    bench.deployment.subjects.put("orders", queues=2)
    bench.take(5)
    seeks = bench.deployment.seeks(dry_run=True)
    before = bench.deployment.groups.lag("orders", "billing")
    assert seeks.seek("orders", "billing", "start") == {0: (0, 5, 0), 1: (0, 0, 0)}
    assert seeks.seek("orders", "billing", "end") == {0: (8, 0, 3), 1: (0, 0, 0)}
    assert seeks.seek_offset("orders", "billing", 0, 3) == {0: (3, 2, 0)}
    assert seeks.seek_time("orders", "billing", bench.clock.ms - 10_000)[0] == (6, 0, 1)
    assert bench.deployment.groups.lag("orders", "billing") == before
    assert bench.deployment.groups.get("orders", "billing").seeks == 0
    assert offsets(bench.deployment.seeks().seek("orders", "billing", to="start")) == {0: 0, 1: 0}
    assert bench.deployment.groups.lag("orders", "billing").waiting == before.waiting + 5
    with pytest.raises(Rejected, match="beyond the queue's end"):
        seeks.seek_offset("orders", "billing", 0, 9)


def test_a_dry_run_of_a_broadcast_group_counts_for_each_consumer(bench: Bench) -> None:
    bench.deployment.groups.put("orders", "screens", broadcast=True)
    bench.send("a", "b")
    for consumer, count in (("hall", 1), ("desk", 2)):
        bench.deployment.pull("orders", "screens", PullRequest(consumer=consumer, max_messages=count))
    assert bench.deployment.seeks(dry_run=True).seek("orders", "screens", "start") == {0: (0, 3, 0)}
    assert bench.deployment.seeks(dry_run=True).seek("orders", "screens", "end") == {0: (2, 0, 1)}


def test_settled_tells_how_far_the_groups_have_come(bench: Bench) -> None:
    bench.send("a", "b", "c")
    (pull,) = bench.pull(2)
    bench.deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt)])
    assert [(each.end, each.settled) for each in shown(bench)] == [(3, 2)]


def test_a_subject_that_another_process_has_deleted_since_it_was_listed_has_no_groups(bench: Bench) -> None:
    bench.send("a", "b")
    bench.pull(1)
    assert shown(bench, sort="waiting", order="desc")[0].groups == 1
    bench.another_process().subjects.delete("orders")
    bench.deployment.leases._watches.clear()  # as if this process had seen no pull
    bench.clock.pass_time(1.5)
    assert names(bench, sort="waiting", order="desc") == []
