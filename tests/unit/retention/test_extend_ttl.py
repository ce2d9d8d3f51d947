"""Rows are kept until they are archived, though the archive stays behind and the store removes rows by their time, as
DynamoDB does."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.logs.rows import Row, from_record, sort_of
from hourwheel.ports.storage import Key, Record, Refused, Table
from hourwheel.retention import extend_ttl
from hourwheel.retention.kinds import MESSAGES
from hourwheel.sweep.retention import LogRetention
from tests.support import Bench, CallByCall

HOUR = 3_600
LOG = "orders~1/0"
DAYS_STORED = 3


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Lets a call look at few rows, so that a test needs few."""
    monkeypatch.setattr(extend_ttl, "_MOST", 60)
    return 60


def fill(bench: Bench, rows: int, *, days: float = 2, log: str = LOG) -> None:
    """Appends rows of a retention of some days: the store removes them a day later."""
    now_ms = bench.clock.now_ms()
    row = Row(first_seq=0, count=1, at_ms=now_ms, expires_ms=now_ms + round(days * 24 * HOUR * 1_000))
    for _ in range(rows):
        bench.deployment.context.log(log).append(row)


def stored(bench: Bench) -> int:
    """Returns the remaining rows; the sweeper replaces missing ones by fillers."""
    rows = bench.store.scan(Table.CONSUME, LOG, limit=1_000_000)
    return sum(not from_record(record).filler for _, record in rows)


def spend(bench: Bench, days: int, sweep: Callable[[], object] | None = None) -> None:
    """Sweeps each hour, and lets the store remove its expired rows."""
    for _ in range(24 * days):
        bench.clock.pass_time(HOUR)
        (sweep or bench.deployment.sweeper.sweep)()
        bench.store.collect(Table.CONSUME, bench.clock.now_ms())


@pytest.fixture
def behind(bench: Bench) -> Bench:
    """Returns a subject whose archive never runs."""
    bench.deployment.subjects.put("orders")
    bench.deployment.sweeper.sweep()
    return bench


def test_no_row_of_a_log_with_many_rows_is_removed_unarchived(behind: Bench) -> None:
    fill(behind, 20_700)
    spend(behind, DAYS_STORED + 1)
    assert stored(behind) == 20_700


def test_rows_are_extended_again_and_again(behind: Bench, few: int) -> None:
    fill(behind, 5 * few)
    spend(behind, 5 * DAYS_STORED)
    assert stored(behind) == 5 * few


def test_each_call_goes_on_in_whichever_process(behind: Bench, few: int) -> None:
    fill(behind, 5 * few)
    spend(behind, 2 * DAYS_STORED, lambda: behind.another_process().sweeper.sweep())
    assert stored(behind) == 5 * few


def test_several_sweepers_share_the_work(behind: Bench, few: int) -> None:
    fill(behind, 5 * few)
    others = [behind.another_process() for _ in range(2)]
    spend(behind, 2 * DAYS_STORED, lambda: [deployment.sweeper.sweep() for deployment in (behind.deployment, *others)])
    assert stored(behind) == 5 * few


@pytest.mark.parametrize("step", [-3 * HOUR, 3 * HOUR])
def test_sweepers_whose_clocks_differ_share_the_work(behind: Bench, few: int, step: int) -> None:
    fill(behind, 5 * few)
    other = behind.another_process()

    def sweep() -> None:
        behind.clock.pass_time(step)
        other.sweeper.sweep()
        behind.clock.pass_time(-step)
        behind.deployment.sweeper.sweep()

    spend(behind, 2 * DAYS_STORED, sweep)
    assert stored(behind) == 5 * few


def test_rows_behind_those_of_a_longer_retention_are_extended(behind: Bench) -> None:
    fill(behind, 600, days=30)
    fill(behind, 10, days=1)
    spend(behind, DAYS_STORED)
    assert stored(behind) == 610


class CutOffNow(BaseException):
    """The process ends."""


class CutOff(CallByCall):
    """Ends the process after some writes to rows."""

    left = 0

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if key.table == Table.CONSUME and expect is not None:
            self.left -= 1
            if self.left < 0:
                raise CutOffNow
        return super().put(key, record, expect=expect)


def test_a_process_that_is_always_cut_off_gets_further_each_time(behind: Bench, few: int) -> None:
    store = CutOff(behind.store)
    behind.store = store
    fill(behind, 5 * few)

    def sweep() -> None:
        store.left = few // 2
        with suppress(CutOffNow):
            behind.another_process().sweeper.sweep()

    spend(behind, DAYS_STORED + 1, sweep)
    assert stored(behind) == 5 * few


class Slow(CallByCall):
    """A write takes a second."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.store)
        self._clock = bench.clock

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        self._clock.pass_time(1)
        return super().put(key, record, expect=expect)


def test_a_pass_takes_the_time_of_a_sweep_at_most_and_the_next_sweep_goes_on(bench: Bench) -> None:
    fill(bench, 100, days=0.5)
    bench.deployment.sweeper.sweep()
    bench.clock.pass_time(18 * HOUR)
    slow = Bench(store=Slow(bench), settings=bench.settings, clock=bench.clock)
    slow.deployment.subjects.put("orders")
    began_ms = bench.clock.now_ms()
    slow.deployment.sweeper.sweep()
    assert 45_000 <= bench.clock.now_ms() - began_ms <= 47_000
    for _ in range(4):
        slow.deployment.sweeper.sweep()
    records = [record for _, record in bench.store.scan(Table.CONSUME, LOG, limit=100)]
    assert all(record.expires_ms and record.expires_ms > began_ms + 24 * HOUR * 1_000 for record in records)


def test_many_logs_take_turns_and_no_subject_waits_for_their_passes(bench: Bench) -> None:
    names = [f"s{number}" for number in range(20)]
    for name in names:
        bench.deployment.subjects.put(name)
        fill(bench, 20, days=0.5, log=f"{name}~1/0")
    bench.deployment.sweeper.sweep()
    bench.clock.pass_time(18 * HOUR)
    slow = Bench(store=Slow(bench), settings=bench.settings, clock=bench.clock)
    soon_ms = bench.clock.now_ms() + 24 * HOUR * 1_000
    passes = 0
    while any(
        record.expires_ms is not None and record.expires_ms < soon_ms
        for name in names
        for _, record in bench.store.scan(Table.CONSUME, f"{name}~1/0", limit=100)
    ):
        began_ms = bench.clock.now_ms()
        assert slow.deployment.sweeper.sweep().subjects == 20
        assert bench.clock.now_ms() - began_ms <= 47_000
        passes += 1
    # Each of the 400 rows takes a second, and so does each of the records of passes that go on.
    assert passes <= 15


@pytest.mark.parametrize(("subjects", "queues"), [(1, 20), (20, 2)])
def test_extending_takes_a_third_of_a_sweep_with_any_number_of_threads(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, subjects: int, queues: int
) -> None:
    for number in range(subjects):
        bench.deployment.subjects.put(f"s{number}", queues=queues)
        for queue in range(queues):
            fill(bench, 20, days=0.5, log=f"s{number}~1/{queue}")
    bench.deployment.sweeper.sweep()
    bench.clock.pass_time(18 * HOUR)
    slow = Bench(store=Slow(bench), settings=bench.settings, clock=bench.clock, threads=16)
    monkeypatch.setattr(LogRetention, "extend_further", lambda *_: None)
    began_ms = bench.clock.now_ms()
    assert slow.deployment.sweeper.sweep().subjects == subjects
    # The clock adds the seconds of all threads, each of which ends soon after the time is over.
    assert 15_000 <= bench.clock.now_ms() - began_ms <= 15_000 + min(subjects, 16) * 2_000 + 2_000


def test_a_subject_does_not_rest_before_all_its_rows_were_looked_at(few: int, bench: Bench) -> None:
    settings = msgspec.structs.replace(bench.settings, sweep_rest_seconds=3_600)
    resting = Bench(CallByCall(MemoryStore()), settings=settings)
    resting.deployment.subjects.put("orders")
    fill(resting, 12 * few)
    spend(resting, DAYS_STORED + 1)
    assert stored(resting) == 12 * few


def test_what_expired_and_waits_for_the_archive_is_not_read_by_each_sweep(behind: Bench) -> None:
    fill(behind, 500, days=0.1)
    behind.clock.pass_time(5 * HOUR)
    behind.deployment.sweeper.sweep()
    store = CallByCall(behind.store)
    behind.store = store
    again = behind.another_process()
    again.sweeper.sweep()
    assert store.calls.count(("scan", Table.CONSUME)) < 5


class RemovedMeanwhile(CallByCall):
    """Removes the first row as soon as it was read."""

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        found = super().scan(table, partition, **how)
        for sort, record in found:
            if (table, partition, sort) == (Table.CONSUME, LOG, sort_of(0)):
                super().delete(Key(table, partition, sort), expect=record.token)
        return found


def test_a_row_that_is_removed_meanwhile_does_not_come_back(behind: Bench) -> None:
    fill(behind, 3, days=0.1)
    store, behind.store = behind.store, RemovedMeanwhile(behind.store)
    behind.clock.pass_time(7 * HOUR)
    extend_ttl.extend_ttl(behind.another_process().context, MESSAGES, LOG, behind.clock.now_ms() + 5_000)
    assert [sort for sort, _ in store.scan(Table.CONSUME, LOG, limit=9)] == [sort_of(1), sort_of(2)]
