"""A waiting pull reads counters, looks only into logs with new rows, and gets every message that arrives meanwhile."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import NotFound
from hourwheel.groups.seeks import offsets
from hourwheel.logs.log import Reservation
from hourwheel.logs.rows import Row
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement
from hourwheel.ports.storage import Counter, Record, Store, Table
from hourwheel.registry.registry import Registry
from tests.support import AT_ONCE, NOON_MS, Bench, CallByCall, HandClock, NoWakeups

QUEUES = 64
SETTINGS = Settings(retry=AT_ONCE, registry_seconds=1)


class Watched(CallByCall):
    """Its calls in full: what a scan reads, and where a row was put."""

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        self.calls.append(("scan", f"{table} {partition}"))
        return self._store.scan(table, partition, **how)


class OutOfDate(CallByCall):
    """Many counters, read at once, are as they were when ``hold`` was called, until ``let_go``."""

    held: dict[str, Counter] | None = None

    def hold(self, names: Sequence[str]) -> None:
        self.held = {name: self._store.counter(name) for name in names}

    def let_go(self) -> None:
        self.held = None

    def counters(self, counters: Sequence[str], *, consistent: bool = False) -> dict[str, Counter]:
        return super().counters(counters, consistent=consistent) | (self.held or {})


@dataclass
class Ticks(NoWakeups):
    """Waits of a second each, or as ``pause`` has it. Before the n-th of them ends, ``then`` is called with n."""

    clock: HandClock = field(default_factory=HandClock)
    then: Callable[[int], object] = lambda tick: None
    ticks: int = 0
    pause: float = 1.0

    def wait(self, subject: str, group: str, *, since: int, tries: int, seconds: float) -> bool:
        self.clock.pass_time(min(seconds, self.pause))
        self.ticks += 1
        self.then(self.ticks)
        return True


def waiting_bench(store: Store, settings: Settings = SETTINGS) -> Bench:
    clock = HandClock()
    return Bench(store, clock=clock, wakeups=Ticks(clock=clock), settings=settings)


@pytest.fixture(params=["call by call", "transactions"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Returns a bench whose group has taken and settled messages of all queues."""
    store = MemoryStore()
    bench = waiting_bench(CallByCall(store) if request.param == "call by call" else store)
    bench.deployment.subjects.put("orders", queues=4)
    everywhere(bench, 4)
    for _ in range(3):
        for pull in bench.pull():
            bench.settle(pull)
        bench.clock.pass_time(2)
    return bench


def everywhere(bench: Bench, queues: int) -> None:
    """Sends a message to each queue."""
    empty = set(range(queues))
    while empty:
        (accepted,) = bench.send("old", key=f"{len(empty)} {bench.clock.ms} {id(empty)}")
        assert accepted.queue is not None
        empty.discard(accepted.queue)
        bench.clock.pass_time(0.001)


def wait(bench: Bench, then: Callable[[int], object] = lambda tick: None, *, seconds: float = 20) -> list[str | None]:
    """Returns the messages of a waiting pull; calls ``then`` in each second of its wait."""
    assert isinstance(bench.wakeups, Ticks)
    bench.wakeups.ticks, bench.wakeups.then = 0, then
    pulls = bench.deployment.pull("orders", "billing", PullRequest(consumer="waiting", wait_seconds=seconds)).pulls
    bench.wakeups.then = lambda tick: None
    return [message.body for pull in pulls for message in pull.messages]


def at(tick: int, act: Callable[[], object]) -> Callable[[int], object]:
    return lambda now: act() if now == tick else None


def log_of(bench: Bench, queue: int) -> Any:
    return bench.deployment.context.log(f"orders~1/{queue}")


def test_a_look_at_64_idle_queues_is_one_request() -> None:
    store = Watched(MemoryStore())
    bench = waiting_bench(store, Settings(retry=AT_ONCE, registry_seconds=60))
    bench.deployment.subjects.put("orders", queues=QUEUES)
    everywhere(bench, QUEUES)
    while pulls := bench.pull(1_000):
        for pull in pulls:
            bench.settle(pull)
    bench.clock.pass_time(1)
    bench.pull()  # sees that the leases are settled
    looks: list[list[str]] = []

    def look(tick: int) -> None:
        looks.append([verb for verb, _ in store.calls])
        store.calls.clear()

    store.calls.clear()
    assert wait(bench, look) == []
    assert len(looks) == 20
    assert looks == [["counters"]] * 20, "the first look, too"


def emptied() -> tuple[Bench, Watched]:
    """Returns a bench whose 64 queues had messages, all of which this process has pulled, and its store."""
    store = Watched(MemoryStore())
    bench = waiting_bench(store, Settings(retry=AT_ONCE, registry_seconds=60))
    bench.deployment.subjects.put("orders", queues=QUEUES)
    everywhere(bench, QUEUES)
    while bench.pull(1_000):
        bench.clock.pass_time(1)
    bench.clock.pass_time(1)
    bench.pull()
    return bench, store


def test_a_pull_of_one_busy_queue_of_64_reads_that_queue_alone() -> None:
    bench, store = emptied()
    (accepted,) = bench.send("new", key="k")
    store.calls.clear()
    assert bench.bodies() == ["new"]
    pull_log = f"billing~1@orders~1/{accepted.queue}"
    read = [name for verb, name in store.calls if verb == "scan"]
    assert set(read) == {f"pull {pull_log}", f"consume orders~1/{accepted.queue}"}
    assert [verb for verb, _ in store.calls if verb != "scan"] == ["counters", "put"]
    assert len(read) <= 3


def test_a_queue_that_this_process_has_emptied_is_not_read_again() -> None:
    bench, store = emptied()
    bench.send("new", key="k")
    assert bench.bodies() == ["new"]
    assert bench.bodies() == []
    store.calls.clear()
    assert bench.bodies() == []
    assert [verb for verb, _ in store.calls] == ["counters"], "its own claim is no other process's"


def test_after_a_claim_of_all_that_was_there_the_next_pull_reads_counters_alone() -> None:
    store = Watched(MemoryStore())
    bench = waiting_bench(store, Settings(retry=AT_ONCE, registry_seconds=60))
    bench.send("old")
    assert bench.bodies() == ["old"]
    bench.clock.pass_time(2)
    assert bench.bodies() == []  # looks for leases
    bench.send("new")
    assert bench.bodies() == ["new"]
    store.calls.clear()
    assert bench.bodies() == []
    assert [verb for verb, _ in store.calls] == ["counters"]


def test_a_claim_that_left_messages_behind_is_followed_by_the_next_one() -> None:
    bench = waiting_bench(MemoryStore(), Settings(retry=AT_ONCE, registry_seconds=60))
    for body in ("a", "b", "c"):
        bench.send(body)
    assert [bench.bodies(1) for _ in range(4)] == [["a"], ["b"], ["c"], []]


def test_the_lease_of_a_claim_that_no_look_has_read_ends_in_time() -> None:
    bench = waiting_bench(MemoryStore(), Settings(retry=AT_ONCE, registry_seconds=60))
    bench.send("a")
    assert bench.bodies(lease=30) == ["a"]
    assert bench.bodies() == bench.bodies() == []
    bench.clock.pass_time(31)
    assert bench.bodies() == ["a"]


def test_a_message_that_comes_during_the_wait_ends_it(bench: Bench) -> None:
    assert wait(bench, at(3, lambda: bench.send("new"))) == ["new"]
    assert bench.clock.ms - NOON_MS < 60_000


def test_a_row_that_is_given_out_long_before_it_is_stored_is_not_passed_over(bench: Bench) -> None:
    log = log_of(bench, 2)
    reservations: list[Reservation] = []

    def writer(tick: int) -> None:
        if tick == 2:
            reservations.append(log.reserve(1))
        if tick == 9:
            (row,) = (row for _, row in log.read(0, 1, consistent=True))
            late = Row(first_seq=-1, count=row.count, at_ms=bench.clock.ms, expires_ms=row.expires_ms, block=row.block)
            log.put(reservations[0], late, bench.deployment.context.ids.token())

    assert wait(bench, writer) == ["old"]
    assert bench.wakeups.ticks == 9


def test_a_row_that_is_never_stored_holds_up_what_follows_for_a_moment_only(bench: Bench) -> None:
    (accepted,) = bench.send("to find the queue", key="k")
    assert wait(bench) == ["to find the queue"]
    assert accepted.queue is not None
    log_of(bench, accepted.queue).reserve(1)
    assert wait(bench, at(2, lambda: bench.send("behind it", key="k"))) == ["behind it"]
    assert bench.wakeups.ticks <= 4


@pytest.mark.parametrize("seconds", [1, 7])
def test_a_counter_that_is_out_of_date_delays_a_message_and_no_more(seconds: int) -> None:
    store = OutOfDate(MemoryStore())
    bench = waiting_bench(store)
    bench.deployment.subjects.put("orders", queues=2)
    bench.send("old", key="a")
    assert bench.bodies() == ["old"]
    assert wait(bench, seconds=3) == []
    store.hold(["orders~1/0", "orders~1/1"])

    def service(tick: int) -> None:
        if tick == 2:
            bench.send("new", key="a")
        if tick == 2 + seconds:
            store.let_go()

    assert wait(bench, service) == ["new"]
    assert bench.wakeups.ticks == 2 + seconds


def test_a_lease_of_another_process_that_ends_during_the_wait_is_served(bench: Bench) -> None:
    other = bench.another_process()
    bench.send("taken and left")
    request = PullRequest(consumer="other", lease_seconds=10)
    assert len(other.pull("orders", "billing", request).pulls) == 1
    assert wait(bench) == ["taken and left"]
    assert 9 <= bench.wakeups.ticks <= 12


def test_a_lease_that_another_process_takes_during_the_wait_is_seen_and_ended(bench: Bench) -> None:
    other = bench.another_process()

    def consumer(tick: int) -> None:
        if tick == 3:
            bench.send("taken and left")
            assert other.pull("orders", "billing", PullRequest(consumer="other", lease_seconds=5)).pulls

    assert wait(bench, consumer) == ["taken and left"]
    assert 8 <= bench.wakeups.ticks <= 10


def test_a_lease_that_begins_between_two_looks_of_a_second_is_seen_and_ended(bench: Bench) -> None:
    other = bench.another_process()
    bench.wakeups.pause = 0.2

    def consumer(tick: int) -> None:
        if tick <= 2:
            bench.send(f"taken and left {tick}", key="one queue")
            assert other.pull("orders", "billing", PullRequest(consumer="other", lease_seconds=6 - tick)).pulls

    assert wait(bench, consumer) == ["taken and left 2"]


def test_a_lease_that_is_made_longer_during_the_wait_holds(bench: Bench) -> None:
    other = bench.another_process()
    bench.send("taken")
    (pull,) = other.pull("orders", "billing", PullRequest(consumer="other", lease_seconds=5)).pulls
    assert wait(bench, at(3, lambda: bench.settle(pull, extend_seconds=60))) == []


def test_a_message_that_another_process_asks_to_retry_is_served(bench: Bench) -> None:
    other = bench.another_process()
    bench.send("failed")
    (pull,) = other.pull("orders", "billing", PullRequest(consumer="other")).pulls
    assert wait(bench, at(4, lambda: bench.settle(pull, retry=[0]))) == ["failed"]
    assert bench.wakeups.ticks == 4


def test_a_retry_that_comes_with_the_pull_is_served_by_it(bench: Bench) -> None:
    bench.send("failed")
    (pull,) = bench.pull()
    request = PullRequest(consumer="c1", settle=[Settlement(receipt=pull.receipt, retry=[0])])
    (again,) = bench.deployment.pull("orders", "billing", request).pulls
    assert (again.queue, again.messages[0].body) == ("retry", "failed")


def test_a_group_that_an_operator_moves_back_is_served_again(bench: Bench) -> None:
    other = bench.another_process()
    assert wait(bench, at(5, lambda: offsets(other.seeks().seek("orders", "billing", to="start"))))[:1] == ["old"]
    assert 5 <= bench.wakeups.ticks <= 7


def cut_off_seek(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends the process when all rows of the seek are written."""

    def cut_off(self: Registry, *of: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Registry, "end_seek", cut_off)
        with pytest.raises(KeyboardInterrupt):
            bench.another_process().seeks().seek("orders", "billing", to="start")


def test_a_seek_that_was_cut_off_is_seen_as_soon_as_the_record_is_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off_seek(bench, monkeypatch)
    bench.clock.pass_time(bench.settings.registry_seconds)
    assert bench.bodies()[:1] == ["old"]


def test_a_seek_that_was_cut_off_is_ended_by_the_sweeper_once_no_request_may_carry_it_out(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_off_seek(bench, monkeypatch)
    seeks = bench.another_process().groups.get("orders", "billing").seeks
    sweeping = bench.another_process()
    for seconds, ended in ((30, 0), (30, 1), (60, 1)):
        bench.clock.pass_time(seconds)
        sweeping.sweeper.sweep()
        group = bench.another_process().groups.get("orders", "billing")
        assert (group.seeks - seeks, group.seeking_ms == 0) == (ended, bool(ended))


def test_of_two_seeks_at_once_the_first_to_end_leaves_the_other_under_way(bench: Bench) -> None:
    owner, group = bench.deployment.subjects.get("orders"), bench.deployment.groups.get("orders", "billing")
    first = bench.deployment.registry.begin_seek(owner, group)
    bench.clock.pass_time(1)
    second = bench.deployment.registry.begin_seek(owner, group)
    for began_ms, left_ms in ((first, second), (second, 0)):
        bench.deployment.registry.end_seek(owner, group, began_ms)
        assert bench.deployment.groups.get("orders", "billing").seeking_ms == left_ms


def test_a_group_that_was_deleted_meanwhile_is_not_made_again_by_a_seek(bench: Bench) -> None:
    other = bench.another_process()
    owner, group = other.subjects.get("orders"), other.groups.get("orders", "billing")
    bench.deployment.groups.delete("orders", "billing")
    with pytest.raises(NotFound):
        other.registry.begin_seek(owner, group)
    assert bench.deployment.groups.page("orders") == ([], None)


def test_a_queue_that_is_added_during_the_wait_is_looked_at(bench: Bench) -> None:
    other = bench.another_process()

    def operator(tick: int) -> None:
        if tick == 2:
            other.subjects.put("orders", queues=8)
        if tick == 4:
            for number in range(40):
                accepted = other.produce("orders", [NewMessage(body="new", key=str(number))])[0]
                if accepted.queue == 7:
                    return

    assert set(wait(bench, operator)) == {"new"}


def test_a_subject_that_was_made_again_during_the_wait_is_served(bench: Bench) -> None:
    other = bench.another_process()

    def operator(tick: int) -> None:
        if tick == 2:
            other.subjects.delete("orders")
        if tick == 6:
            other.produce("orders", [NewMessage(body="new")])

    assert wait(bench, operator) == ["new"]


def test_letters_that_are_sent_again_during_the_wait_are_served(bench: Bench) -> None:
    bench.send("poison")
    (pull,) = bench.pull()
    bench.settle(pull, dead=[0])
    other = bench.another_process()
    assert wait(
        bench, at(3, lambda: other.dead_letters("orders", "billing").redrive(lambda position, at_ms: True))
    ) == ["poison"]
    assert bench.wakeups.ticks == 3


def test_a_group_far_behind_what_expired_is_idle_as_well() -> None:
    store = Watched(MemoryStore())
    bench = waiting_bench(store, Settings(retry=AT_ONCE, registry_seconds=60))
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.deployment.groups.put("orders", "billing")
    for _ in range(5):
        bench.send("short")
    bench.clock.pass_time(61)
    bench.deployment.sweeper.sweep()
    assert bench.bodies() == []
    bench.clock.pass_time(1)
    bench.pull()
    store.calls.clear()
    bench.pull()
    assert [verb for verb, _ in store.calls] == ["counters"]
