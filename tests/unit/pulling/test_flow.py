"""No group leases more messages than its limits allow, whatever process pulls, and retries count."""

from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.deployment.deployment import Deployment
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, PullResult, Settlement
from hourwheel.ports.storage import CellStorage, Key, Record, Refused, Store, T, Table
from hourwheel.push.decisions import PusherEnd
from hourwheel.push.pusher import Pusher
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.pulling.test_waiting_pulls import Ticks, waiting_bench

DAY = 86_400


def limited(bench: Bench, *bodies: str, **limits: Any) -> Bench:
    bench.deployment.groups.put("orders", "billing", **limits)
    if bodies:
        bench.send(*bodies)
    return bench


def pulled(deployment: Deployment, most: int = 100, **how: Any) -> PullResult:
    return deployment.pull("orders", "billing", PullRequest(consumer="c1", max_messages=most, **how))


def size(result: PullResult) -> int:
    return sum(len(pull.messages) for pull in result.pulls)


def test_no_more_messages_are_leased_at_once_than_the_limit(bench: Bench) -> None:
    limited(bench, *"abcdefgh", max_in_flight=5)
    first, second, third = pulled(bench.deployment, 3), pulled(bench.deployment, 3), pulled(bench.deployment, 3)
    assert [size(first), size(second), size(third)] == [3, 2, 0]
    assert [each.limited_by for each in (first, second, third)] == [None, "max_in_flight", "max_in_flight"]
    bench.settle(first.pulls[0], ack=[0, 1])
    assert size(pulled(bench.deployment)) == 2
    bench.settle(second.pulls[0])
    last = pulled(bench.deployment)
    assert (size(last), last.limited_by) == (1, None)


def test_leases_of_other_processes_count_and_their_settlements_make_room(bench: Bench) -> None:
    limited(bench, *"abcdefgh", max_in_flight=5)
    other = bench.another_process()
    theirs = pulled(other, 4)
    assert size(pulled(bench.deployment)) == 1
    assert pulled(bench.deployment).limited_by == "max_in_flight"
    other.settle("orders", "billing", [Settlement(receipt=theirs.pulls[0].receipt)])
    assert size(pulled(bench.deployment)) == 3


def test_retries_count(bench: Bench) -> None:
    limited(bench, *"abcd", max_in_flight=2, retry_percent=100)
    (pull,) = pulled(bench.deployment).pulls
    bench.settle(pull, retry=[0, 1])
    again = pulled(bench.deployment)
    assert [message.attempt for pull in again.pulls for message in pull.messages] == [2, 2]
    assert (size(pulled(bench.deployment)), pulled(bench.deployment).limited_by) == (0, "max_in_flight")


def test_a_lease_that_ends_makes_room_for_its_retry(bench: Bench) -> None:
    limited(bench, *"abcd", max_in_flight=2, retry_percent=100)
    pulled(bench.deployment, lease_seconds=5)
    bench.deployment.sweeper.sweep()
    bench.clock.pass_time(6)
    again = [pulled(bench.deployment) for _ in range(3)]
    assert [message.attempt for each in again for pull in each.pulls for message in pull.messages] == [1, 1]
    assert again[-1].limited_by == "max_in_flight"


def test_a_pull_that_settles_makes_room_for_itself(bench: Bench) -> None:
    limited(bench, *"abcd", max_in_flight=2)
    (pull,) = pulled(bench.deployment).pulls
    following = pulled(bench.deployment, settle=[Settlement(receipt=pull.receipt)])
    assert following.settled is not None
    assert (following.settled[0].status, size(following)) == ("settled", 2)


def test_the_limit_holds_over_all_queues(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", queues=8)
    limited(bench, max_in_flight=5)
    for key in map(str, range(40)):
        bench.send("x", key=key)
    taken = 0
    for _ in range(8):
        taken += size(pulled(bench.deployment, 2))
    assert taken == 5


class Between(CallByCall):
    """Does something else in the middle of a pull: behind one of its scans of pull logs."""

    act: Any = None
    scans_before = 0

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        rows = super().scan(table, partition, **how)
        if self.act is not None and table == Table.PULL:
            self.scans_before -= 1
            if self.scans_before < 0:
                act, self.act = self.act, None
                act()
        return rows


@pytest.mark.parametrize("limit", ["max_in_flight", "messages_per_second"])
@pytest.mark.parametrize("first", [1, 3, 4])
def test_the_limit_holds_over_the_parts_of_a_queue(first: int, limit: str) -> None:
    bench = Bench(cells={"two": CellStorage(MemoryStore(), MemoryBlobs())})
    bench.deployment.cells.add("two")
    bench.deployment.subjects.put("orders", queues=1)
    limited(bench, *"abcd"[:first], **{limit: 5})
    bench.deployment.routes.move("orders", 0, "two")
    bench.send(*"efghijkl")
    result = pulled(bench.deployment)
    assert ([len(pull.messages) for pull in result.pulls], result.limited_by) == ([first, 5 - first], limit)
    assert size(pulled(bench.deployment)) == 0


@pytest.mark.parametrize("scans_before", range(6))
def test_a_claim_that_comes_in_between_is_counted(scans_before: int) -> None:
    store = Between(MemoryStore())
    bench = limited(Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=0)), *"abcdefgh", max_in_flight=5)
    other = bench.another_process()
    theirs: list[PullResult] = []
    store.act, store.scans_before = lambda: theirs.append(pulled(other, 4)), scans_before
    mine = pulled(bench.deployment)
    store.act = None
    assert size(mine) + sum(map(size, theirs)) == 5


class BeforeTransaction(MemoryStore):
    """Lets something else happen just before the transaction that comes after ``transactions_before`` others. Each call
    outside of a transaction is one of its own."""

    act: Callable[[], object] | None = None
    transactions_before = 0

    def transact(self, work: Callable[[Store], T]) -> T:
        self.transactions_before -= 1
        if self.act is not None and self.transactions_before < 0:
            act, self.act = self.act, None
            act()
        return super().transact(work)


@pytest.mark.parametrize("limit", ["max_in_flight", "messages_per_second"])
@pytest.mark.parametrize(("cells", "away"), [(False, False), (True, False), (True, True)])
def test_a_claim_from_another_queue_of_the_cell_is_counted(limit: str, *, cells: bool, away: bool) -> None:
    there = BeforeTransaction()
    others = {"two": CellStorage(there, MemoryBlobs())} if cells else {}
    bench = Bench(home := BeforeTransaction(), settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=others)
    bench.deployment.subjects.put("orders", queues=8)
    limited(bench, **{limit: 5})
    if cells:
        bench.deployment.cells.add("two")
        for queue in range(8 if away else 0):
            bench.deployment.routes.move("orders", queue, "two")
    for queue in range(8):
        bench.deployment.produce("orders", [NewMessage(body=body, queue=queue) for body in map(str, range(30))])
    other, theirs = bench.another_process(), list[PullResult]()
    store = there if away else home
    for transactions_before in range(40):
        store.transactions_before = transactions_before
        store.act = lambda: theirs.append(pulled(other, 5))
        mine = pulled(bench.deployment, 5)
        store.act = None
        assert size(mine) + sum(map(size, theirs)) == 5
        for pull in [*mine.pulls, *(pull for each in theirs for pull in each.pulls)]:
            bench.settle(pull)
        theirs.clear()
        bench.clock.pass_time(2)


class LosesARace(CallByCall):
    """A store in which another claim takes the pull row just before the first put into this partition."""

    rival: Callable[[], object] | None = None
    partition = ""

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if self.rival is not None and key.partition == self.partition:
            rival, self.rival = self.rival, None
            rival()
        return super().put(key, record, expect=expect)


def test_a_claim_that_lost_a_race_is_not_made_in_another_log_within_the_limits_of_before() -> None:
    bench = Bench(store := LosesARace(MemoryStore()), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    limited(bench, "retried", max_in_flight=1, retry_percent=100)
    bench.settle(pulled(bench.deployment).pulls[0], retry=[0])
    bench.send("new")
    other = bench.another_process()
    store.partition = "billing~1@orders~1/retry/billing~1"
    theirs: list[PullResult] = []
    store.rival = lambda: theirs.append(pulled(other))
    mine = pulled(bench.deployment)
    assert [size(result) for result in theirs] == [1]
    assert (size(mine), mine.limited_by) == (0, "max_in_flight")


def test_a_second_has_no_more_messages_than_the_rate_and_an_unused_one_is_not_saved_up(bench: Bench) -> None:
    limited(bench, *map(str, range(40)), messages_per_second=4)
    other = bench.another_process()
    assert [size(pulled(bench.deployment)), size(pulled(other))] == [4, 0]
    counts = []
    for _ in range(8):
        bench.clock.pass_time(0.5)
        counts.append(size(pulled(other)) + size(pulled(bench.deployment)))
    assert counts == [2] * 8
    bench.clock.pass_time(20)
    result = pulled(bench.deployment)
    assert (size(result), result.limited_by) == (4, "messages_per_second")
    assert bench.deployment.groups.lag("orders", "billing").limited_by == "messages_per_second"


def test_a_rate_below_one_message_per_second(bench: Bench) -> None:
    limited(bench, *"abc", messages_per_second=0.1)
    assert size(pulled(bench.deployment)) == 1
    bench.clock.pass_time(9)
    assert size(pulled(bench.deployment)) == 0
    bench.clock.pass_time(1)
    assert size(pulled(bench.deployment)) == 1


def test_retries_count_towards_the_rate(bench: Bench) -> None:
    limited(bench, "a", messages_per_second=1)
    bench.settle(pulled(bench.deployment).pulls[0], retry=[0])
    assert pulled(bench.deployment).limited_by == "messages_per_second"
    bench.clock.pass_time(1)
    assert size(pulled(bench.deployment)) == 1


def test_a_clock_that_was_set_back_does_not_stop_the_group(bench: Bench) -> None:
    limited(bench, *"abcdef", messages_per_second=1)
    pulled(bench.deployment)
    bench.clock.pass_time(-3_600)
    assert size(pulled(bench.deployment)) == 1
    assert size(pulled(bench.deployment)) == 0
    bench.clock.pass_time(1)
    assert size(pulled(bench.deployment)) == 1


@pytest.mark.parametrize("transactions", [False, True])
def test_a_waiting_pull_gets_messages_once_the_rate_leaves_some(transactions: bool) -> None:
    store = MemoryStore()
    bench = waiting_bench(store if transactions else CallByCall(store))
    limited(bench, *"abcd", messages_per_second=2)
    assert size(pulled(bench.deployment)) == 2
    assert isinstance(bench.wakeups, Ticks)
    bench.wakeups.pause = 60.0
    began_ms = bench.clock.ms
    assert size(pulled(bench.deployment, wait_seconds=20)) == 1
    assert bench.clock.ms - began_ms == 500


def test_a_settlement_announces_that_there_is_room_and_so_does_a_higher_limit(bench: Bench) -> None:
    limited(bench, *"abcd", max_in_flight=1)
    (pull,) = pulled(bench.deployment).pulls
    bench.wakeups.announced.clear()
    bench.settle(pull)
    assert bench.wakeups.announced == [("orders", "billing")]
    bench.wakeups.announced.clear()
    bench.deployment.groups.put("orders", "billing", max_in_flight=0)
    assert bench.wakeups.announced == [("orders", "billing")]
    assert size(pulled(bench.deployment)) == 3


def test_a_group_without_limits_makes_no_call_more() -> None:
    def calls(**limits: Any) -> int:
        store = CallByCall(MemoryStore())
        bench = Bench(store, settings=Settings(retry=AT_ONCE, registry_seconds=60))
        limited(bench, "a", "b", **limits)
        pulled(bench.deployment, 1)
        store.calls.clear()
        pulled(bench.deployment, 1)
        return len(store.calls)

    assert calls(max_in_flight=50, messages_per_second=50) == calls() + 2, "one for each pull log"


def test_a_pusher_stays_while_a_limit_keeps_messages_back() -> None:
    bench = Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0))
    target = PushTarget(kind="lambda", address="f", batch=10, concurrency=1)
    bench.deployment.groups.put("orders", "billing", push=target, messages_per_second=2, max_in_flight=2)
    bench.send(*"abcdef")
    began_ms = bench.clock.ms
    deployment = bench.another_process()
    assert Pusher(deployment, bench.targets, "orders", "billing", "p1").run() is PusherEnd.IDLE
    assert bench.targets.bodies == list("abcdef")
    assert bench.clock.ms - began_ms >= 2_000


def outlasting(bench: Bench, *bodies: str, ordered: bool, retried: bool) -> PullResult:
    """Leases these messages for longer than they are retained, as first attempts or as retries."""
    bench.deployment.subjects.put("orders", retention_seconds=600)
    limited(bench, max_in_flight=2, ordered=ordered, retry_percent=100)
    for body in bodies:
        bench.send(body, key=body)
    if retried:
        for pull in pulled(bench.deployment).pulls:
            bench.settle(pull, retry=[*range(len(pull.messages))])
    return pulled(bench.deployment, lease_seconds=3_600)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("retried", [False, True])
def test_leases_of_messages_that_have_expired_do_not_count(bench: Bench, *, ordered: bool, retried: bool) -> None:
    assert size(outlasting(bench, *"ab", ordered=ordered, retried=retried)) == 2
    bench.clock.pass_time(300)
    bench.send("c", key="c")
    assert (size(pulled(bench.deployment)), pulled(bench.deployment).limited_by) == (0, "max_in_flight")
    bench.clock.pass_time(301)
    for deployment in (bench.deployment, bench.another_process()):
        deployment.sweeper.sweep()
        fresh = pulled(deployment, lease_seconds=1)
        assert [message.body for pull in fresh.pulls for message in pull.messages] == ["c"]
        assert bench.deployment.groups.lag("orders", "billing").limited_by is None
        deployment.settle("orders", "billing", [Settlement(receipt=pull.receipt, release=[0]) for pull in fresh.pulls])


def test_of_a_pull_only_the_messages_that_are_still_retained_count(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=600)
    limited(bench, "a", max_in_flight=2)
    bench.clock.pass_time(500)
    bench.send("b")
    assert size(pulled(bench.deployment, lease_seconds=3_600)) == 2
    bench.send(*"cde")
    assert size(pulled(bench.deployment)) == 0
    bench.clock.pass_time(101)
    assert size(pulled(bench.deployment)) == 1
    assert size(pulled(bench.deployment)) == 0


def test_a_new_process_counts_claims_that_the_checkpoint_has_passed(bench: Bench) -> None:
    limited(bench, *"abcdefghij", messages_per_second=4)
    taken = pulled(bench.deployment)
    assert size(taken) == 4
    for pull in taken.pulls:
        bench.settle(pull)
    bench.deployment.sweeper.sweep()
    other = bench.another_process()
    assert (size(pulled(other)), pulled(other).limited_by) == (0, "messages_per_second")
    bench.clock.pass_time(1)
    assert size(pulled(bench.another_process())) == 4


def test_a_rate_lets_a_group_go_on_whose_last_pull_row_expired_before_an_earlier_one(bench: Bench) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=30 * DAY)
    limited(bench, *"abcdefghijkl", messages_per_second=4)
    for _ in range(2):
        for pull in pulled(bench.deployment).pulls:
            bench.settle(pull)
        bench.clock.pass_time(70)
        bench.deployment.sweeper.sweep()
    partition = "billing~1@orders~1/0"
    _, (sort, last) = bench.store.scan(Table.PULL, partition, limit=9)
    bench.clock.pass_time(20 * DAY)
    assert bench.store.delete(Key(Table.PULL, partition, sort), expect=last.token) is None
    assert size(pulled(bench.another_process())) == 4


@pytest.mark.parametrize("scans_before", range(6))
def test_a_claim_that_comes_while_a_slow_process_reads_counts_for_the_rate(scans_before: int) -> None:
    store = Between(MemoryStore())
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = limited(Bench(store, settings=settings), *"abcdefgh", messages_per_second=5)
    other = bench.another_process()
    theirs: list[PullResult] = []

    def between() -> None:
        bench.clock.pass_time(5)
        theirs.append(pulled(other, 4))

    store.act, store.scans_before = between, scans_before
    mine = pulled(bench.deployment)
    store.act = None
    assert 0 < size(mine) + sum(map(size, theirs)) <= 5  # 4 where the claim lost its race
