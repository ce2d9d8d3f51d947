"""Leases are looked at only when one may be over."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Throttled
from hourwheel.ports.storage import Key, Record, Table
from hourwheel.pull_log.log_rows import checkpoint_key
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.settling.lease_watch import LeaseWatch
from tests.support import AT_ONCE, Bench, CallByCall


class Unread(dict[int, Any]):
    """Open leases that must not be scanned."""

    def values(self) -> Any:
        raise AssertionError

    def __iter__(self) -> Any:
        raise AssertionError


def test_a_look_at_leases_that_are_not_over_does_not_scan_them(bench: Bench) -> None:
    bench.send("a", "b", "c")
    held = [bench.pull(1, lease=30)[0] for _ in range(2)] + bench.pull(1, lease=60)
    bench.clock.pass_time(2)
    assert bench.pull(1) == []
    leases, directory = bench.deployment.leases, bench.deployment.registry
    subject = directory.subject("orders", create=False)
    group = directory.group(subject, "billing", create=False)
    log = next(log for log in pull_logs(bench.deployment.context, subject, group) if log.queue == 0)
    watch = leases._watches[log.partition]
    watch.open, seen = Unread(watch.open), watch.open
    assert not leases.due(log)
    bench.clock.pass_time(29)
    assert leases.due(log)
    watch.open = seen
    assert leases.expire(log, subject) == 2
    assert not leases.due(log)
    bench.clock.pass_time(30)
    assert leases.due(log)
    assert bench.settle(held[2]) == "settled"
    assert leases.expire(log, subject) == 0
    assert not leases.due(log)


def queue_of(bench: Bench) -> PullLog:
    subject = bench.deployment.registry.subject("orders")
    _, queue = pull_logs(bench.deployment.context, subject, bench.deployment.registry.group(subject, "billing"))
    return queue


def test_a_checkpoint_does_not_fall_when_its_sweeper_was_paused_for_minutes() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    for body in "abc":
        bench.send(body)
    pulls = [bench.pull(1)[0] for _ in "abc"]
    bench.settle(pulls[0])

    class Paused(CallByCall):
        """Once it knows the lowest open row, the sweeper pauses; the rest is settled and swept meanwhile."""

        armed = False

        def get(self, key: Key, *, consistent: bool = True) -> Record | None:
            if key.sort == "checkpoint" and self.armed:
                self.armed = False
                for pull in pulls[1:]:
                    bench.settle(pull)
                bench.deployment.sweeper.sweep()
                bench.clock.pass_time(120)
            return super().get(key, consistent=consistent)

    store = Paused(bench.store)
    paused = Bench(store, bench.blobs, bench.clock, settings=bench.settings)
    assert paused.deployment.leases.in_flight(queue_of(paused)) == 2
    store.armed = True
    paused.deployment.leases.checkpoint(queue_of(paused))
    assert bench.store.get(checkpoint_key("billing~1@orders~1/0")) is not None
    assert queue_of(bench).beginning().row_no == 3


def test_leases_that_run_are_not_read() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE))
    bench.send(*"abcdefgh")
    bench.pull(1, lease=30)
    bench.deployment.sweeper.end_busy_leases()
    for _ in range(4):
        bench.clock.pass_time(1)
        bench.pull(1, lease=30)
        store.calls.clear()
        assert bench.deployment.sweeper.end_busy_leases() == 0
        assert store.calls == []
    bench.clock.pass_time(27)
    assert bench.deployment.sweeper.end_busy_leases() == 2, "the first lease is over, and one that began a second later"


def test_a_pull_that_knows_all_leases_does_not_read_them_each_second() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE))
    bench.send(*"abcdefgh")
    bench.pull(1, lease=30)
    for seconds in (0, 1, 1, 1):
        bench.clock.pass_time(seconds)
        store.calls.clear()
        bench.pull(1, lease=30)
        scans = [call for call in store.calls if call == ("scan", Table.PULL)]
        assert len(scans) == 1, f"{seconds} seconds later: the claim reads the last row"


def test_a_pull_that_finds_a_row_of_another_process_looks_at_its_lease() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a", "b")
    bench.pull(1, lease=600)
    claim_in_another_process(bench)
    bodies = []
    for _ in range(4):
        bench.clock.pass_time(1)
        bodies += bench.bodies()
    assert bodies == ["b"]


def test_many_new_rows_are_read_though_no_lease_is_over() -> None:
    store = CallByCall(MemoryStore())
    bench = Bench(store, settings=Settings(retry=AT_ONCE))
    bench.send(*map(str, range(500)))
    bench.deployment.sweeper.end_busy_leases()
    for _ in range(300):
        [pull] = bench.pull(1, lease=30)
        bench.settle(pull)
    store.calls.clear()
    bench.deployment.sweeper.end_busy_leases()
    assert store.calls
    store.calls.clear()
    bench.deployment.sweeper.end_busy_leases()
    assert store.calls == [], "the rows are known now"


def claim_in_another_process(bench: Bench) -> None:
    other = Bench(bench.store, bench.blobs, bench.clock, settings=bench.settings)
    assert len(other.pull(1, lease=2)) == 1


def ended_by_second(bench: Bench, seconds: int) -> list[int]:
    """Returns the number of leases that each of the next seconds ends."""
    ended = []
    for _ in range(seconds):
        bench.clock.pass_time(1)
        ended.append(bench.deployment.sweeper.end_busy_leases())
    return ended


def test_the_lease_of_another_process_that_has_died_ends_a_few_seconds_later() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a", "b")
    bench.pull(1, lease=600)
    bench.deployment.sweeper.end_busy_leases()
    claim_in_another_process(bench)
    assert sum(ended_by_second(bench, 8)) == 1


def test_the_lease_of_another_process_ends_at_once_where_this_one_has_claimed_since() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a", "b", "c")
    bench.pull(1, lease=600)
    bench.deployment.sweeper.end_busy_leases()
    claim_in_another_process(bench)
    bench.pull(1, lease=600)
    assert ended_by_second(bench, 3) == [0, 1, 0]


def test_the_lease_of_another_process_ends_soon_though_the_clock_was_set_back() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a", "b")
    bench.pull(1, lease=6_000)
    bench.deployment.sweeper.end_busy_leases()
    bench.clock.ms -= 600_000
    claim_in_another_process(bench)
    assert sum(ended_by_second(bench, 8)) == 1


def test_a_lease_of_a_process_that_stood_still_since_its_claim_ends_in_its_next_second() -> None:
    """As a laptop that was closed: nobody has pulled for more than a minute."""
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    bench.send("a", "b")
    bench.pull(1, lease=1)
    bench.clock.pass_time(2)
    assert bench.deployment.sweeper.end_busy_leases() == 1
    bench.pull(1, lease=30)
    bench.clock.pass_time(1)
    bench.deployment.sweeper.end_busy_leases()
    bench.clock.pass_time(600)
    assert bench.deployment.sweeper.end_busy_leases() == 1


class Failing(CallByCall):
    """Fails scans of pull logs while ``fails`` is true."""

    fails = False

    def scan(self, table: Table, *where: Any, **how: Any) -> Any:
        if self.fails and table == Table.PULL:
            raise Throttled("the store is busy")
        return super().scan(table, *where, **how)


def test_a_look_that_fails_or_does_not_come_to_the_end_leaves_a_claim_that_was_missed_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Failing(MemoryStore())
    bench = Bench(store)
    bench.send(*"abcdef")
    for _ in "abc":
        bench.pull(1, lease=60)
    leases, log = bench.deployment.leases, queue_of(bench)
    leases.expire(log, bench.deployment.subjects.get("orders"))
    watch = leases._watches[log.partition]
    with watch.lock:
        bench.pull(1, lease=60)

    def needs_look() -> bool:
        return bool(leases.active_logs(bench.clock.now_ms()))

    assert needs_look()
    store.fails = True
    with pytest.raises(Throttled):
        leases.expire(log, bench.deployment.subjects.get("orders"))
    assert needs_look()
    store.fails = False
    monkeypatch.setattr("hourwheel.settling.leases._PAGE", 1)
    leases.expire(log, bench.deployment.subjects.get("orders"), pages=1)
    assert needs_look()
    monkeypatch.undo()
    leases.expire(log, bench.deployment.subjects.get("orders"))
    assert not needs_look()
    assert leases.in_flight(log) == 4


class Raced(LeaseWatch):
    """A view of which another thread misses a claim right after each time that ``missed`` is read."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__(name)
        if name == "missed":
            self.missed = True
        return value


def test_a_claim_that_is_missed_at_any_moment_of_a_look_is_left_to_the_next_one(bench: Bench) -> None:
    bench.send("a")
    bench.pull(1, lease=60)
    leases, log = bench.deployment.leases, queue_of(bench)
    leases.expire(log, bench.deployment.subjects.get("orders"))
    watch = leases._watches[log.partition]
    watch.missed = False
    watch.__class__ = Raced
    leases.in_flight(log)
    watch.__class__ = LeaseWatch
    assert watch.missed
