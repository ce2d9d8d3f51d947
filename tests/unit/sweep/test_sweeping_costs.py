"""The cost of sweeps where each read is paid for, and the work that they still do each minute."""

import collections
import logging
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Unavailable
from hourwheel.model.groups import PushTarget
from hourwheel.ports.storage import Counter, Key, Record, Table
from hourwheel.sweep.report import SweepReport
from tests.support import AT_ONCE, Bench, CallByCall

REST_SECONDS = 1_920
SUBJECTS, GROUPS = 10, 3
READ_UNITS_A_SWEEP = 13.0
"""With a sweep each minute $0.07 a month at $0.125 a million."""


class PricedStore(CallByCall):
    """Counts read units as DynamoDB does: 4 KB, half where it may be out of date, one for nothing."""

    units = 0.0

    def counter(self, counter: str) -> Counter:
        self.units += 1
        return super().counter(counter)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        found = super().get(key, consistent=consistent)
        self._charge([] if found is None else [(key.sort, found)], consistent)
        return found

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        found = super().scan(table, partition, **how)
        self._charge(found, how.get("consistent", True))
        return found

    def _charge(self, found: list[tuple[str, Record]], consistent: bool) -> None:
        size = sum(len(sort) + len(record.value) + 100 for sort, record in found)
        self.units += max(1, -(-size // 4_096)) * (1 if consistent else 0.5)


def thrifty(rest_seconds: int = REST_SECONDS) -> Bench:
    settings = Settings(retry=AT_ONCE, registry_seconds=0, sweep_rest_seconds=rest_seconds)
    return Bench(PricedStore(MemoryStore()), settings=settings)


def minutes(bench: Bench, count: int) -> list[SweepReport]:
    """Sweeps each minute."""
    reports = []
    for _ in range(count):
        bench.clock.pass_time(60)
        reports.append(bench.deployment.sweeper.sweep())
    return reports


def metrics(bench: Bench, name: str) -> list[float]:
    return [value for metric, value in bench.meter.metrics if metric == name]


@pytest.fixture
def idle() -> Bench:
    """Returns a subject with one group, where nothing has moved for hours."""
    bench = thrifty()
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull)
    assert minutes(bench, 240)[-1].resting == 1
    # So that the rest has just begun.
    while minutes(bench, 1)[0].resting:
        pass
    bench.meter.metrics.clear()
    return bench


def test_an_idle_cell_costs_seven_cents_a_month() -> None:
    bench = thrifty()
    for subject in (f"s{number}" for number in range(SUBJECTS)):
        bench.send(*"abc", subject=subject)
        for group in (f"g{number}" for number in range(GROUPS)):
            for pull in bench.pull(subject=subject, group=group):
                bench.settle(pull, subject=subject, group=group)
    bench.deployment = bench.another_process()
    store = bench.store
    assert isinstance(store, PricedStore)
    store.units = 0
    store.calls.clear()
    reports = minutes(bench, 1_440)
    assert (reports[-1].subjects, reports[-1].groups) == (SUBJECTS, SUBJECTS * GROUPS)
    assert store.units / 1_440 <= READ_UNITS_A_SWEEP
    # A checkpoint for each group; and the first sweep of a new process stores its position, and removes it.
    assert collections.Counter(store.writes) == {("put", Table.META): SUBJECTS * GROUPS + 1, ("delete", Table.META): 1}


def test_rests_double_up_to_the_longest() -> None:
    bench = thrifty(rest_seconds=240)
    bench.send("a")
    for pull in bench.pull():
        bench.settle(pull)
    resting = [report.resting for report in minutes(bench, 16)]
    # A look that finds something new, one that does not, the next after 1, 2, 4 and 4 minutes.
    assert resting == [0, 0, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]


def test_without_the_setting_nothing_rests() -> None:
    bench = thrifty(rest_seconds=0)
    bench.send("a")
    assert {report.resting for report in minutes(bench, 90)} == {0}


def test_a_new_process_looks_at_everything(idle: Bench) -> None:
    assert minutes(idle, 1)[0].resting == 1
    idle.deployment = idle.another_process()
    assert minutes(idle, 1)[0].resting == 0


def test_what_waits_is_told_after_a_rest_at_the_latest_and_then_each_minute(idle: Bench) -> None:
    idle.send("b", "c")
    minutes(idle, REST_SECONDS // 60)
    assert metrics(idle, "WaitingMessages") == [2]
    reports = minutes(idle, 90)
    assert {report.resting for report in reports} == {0}
    assert metrics(idle, "WaitingMessages") == [2] * 91
    assert metrics(idle, "OldestMessageSeconds")[-1] > 90 * 60


def test_a_group_that_is_made_or_changed_is_looked_at_by_the_next_sweep(idle: Bench) -> None:
    idle.deployment.groups.put("orders", "billing", max_attempts=3)
    assert minutes(idle, 4)[0].resting == 0
    idle.deployment.groups.put("orders", "audit")
    assert minutes(idle, 1)[0].resting == 0
    assert metrics(idle, "WaitingMessages") == [1]


def test_a_lease_is_ended_within_a_minute_however_long_it_was() -> None:
    bench = thrifty()
    bench.send("a")
    bench.pull(lease=3 * 3_600)
    bench.deployment = bench.another_process()
    ended = [report.ended_leases for report in minutes(bench, 181)]
    assert (sum(ended), ended[179]) == (1, 1)


def test_a_lease_that_began_in_a_rest_is_ended_after_it(idle: Bench) -> None:
    idle.send("b")
    # By a process of its own, as everywhere but on one machine.
    sweeping, idle.deployment = idle.deployment, idle.another_process()
    idle.pull(lease=30)
    idle.deployment = sweeping
    assert sum(report.ended_leases for report in minutes(idle, REST_SECONDS // 60)) == 1


def test_a_retry_that_lost_its_store_in_a_rest_is_finished_after_it(idle: Bench) -> None:
    (dead,) = idle.send("b")
    for pull in idle.pull():
        idle.settle(pull, dead=[0])
    minutes(idle, 200)
    store = idle.store
    put = store.put

    def cut(key: Key, record: Record, *, expect: bytes | None) -> Any:
        if key.table is Table.CONSUME and "/retry/" in key.partition:
            raise Unavailable("cut off")
        return put(key, record, expect=expect)

    store.put = cut
    with pytest.raises(Unavailable):
        idle.deployment.dead_letters("orders", "billing").redrive(lambda position, died_ms: True)
    store.put = put
    minutes(idle, REST_SECONDS // 60)
    assert [message.id for message in idle.take()] == [dead.id]


@pytest.mark.parametrize("what", ["subject", "group"])
def test_a_deletion_that_was_cut_off_is_finished_by_the_next_sweep(idle: Bench, what: str) -> None:
    store = idle.store
    trim = store.trim

    def cut(table: Table, partition: str, *, below: str) -> None:
        raise Unavailable("cut off")

    store.trim = cut
    delete = (
        idle.deployment.subjects.delete
        if what == "subject"
        else lambda name: idle.deployment.groups.delete(name, "billing")
    )
    with pytest.raises(Unavailable):
        delete("orders")
    store.trim = trim
    partition = "billing~1@orders~1/0"
    assert store.scan(Table.PULL, partition, limit=1)
    minutes(idle, 1)
    assert not store.scan(Table.PULL, partition, limit=1)


def test_a_wheel_that_is_missing_is_started_while_all_rests(idle: Bench) -> None:
    idle.send_later("b", delay=100)
    idle.timers.ordered.clear()
    reports = minutes(idle, 3)
    assert reports[2].resting == 1
    assert sum(report.started_wheels for report in reports) >= 1


def test_rows_of_a_resting_subject_are_trimmed_before_they_vanish() -> None:
    bench = thrifty()
    bench.deployment.subjects.put("orders", retention_seconds=3_600)
    bench.send("a")
    for pull in bench.pull():
        bench.settle(pull)
    minutes(bench, 60 + 12 * 60 + REST_SECONDS // 60)
    assert bench.deployment.context.log("orders~1/0").trimmed() == 1


def test_each_group_that_is_behind_has_a_line_the_largest_first(caplog: pytest.LogCaptureFixture) -> None:
    bench = thrifty()
    bench.send("a", "b", "c")
    for number in range(120):
        bench.deployment.groups.put("orders", f"g{number:03d}")
    bench.pull(1, group="g007")
    for pull in bench.pull(group="g003"):
        bench.settle(pull, group="g003")
    (pull,) = bench.pull(group="g005")
    bench.settle(pull, group="g005", retry=[0])
    bench.clock.pass_time(30)
    with caplog.at_level(logging.INFO, "hourwheel"):
        bench.deployment.sweeper.sweep()
    lines = [vars(entry) for entry in caplog.records if entry.message == "lag"]
    assert len(lines) == 100
    waiting = [line["waiting"] + line["retrying"] for line in lines]
    assert waiting == sorted(waiting, reverse=True)
    assert "g003" not in {line["group"] for line in lines}
    assert {line["subject"] for line in lines} == {"orders"}
    assert {line["oldest_seconds"] for line in lines} == {30.0}
    assert metrics(bench, "WaitingMessages") == [117 * 3 + 2 + 1]
    assert metrics(bench, "OldestMessageSeconds") == [30.0]


def test_a_sweep_with_nothing_to_tell_tells_nothing(idle: Bench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "hourwheel"):
        minutes(idle, 3)
    assert (caplog.records, idle.meter.metrics) == ([], [])


def test_a_subject_that_is_pushed_is_looked_at_each_minute_and_tended_seldom(idle: Bench) -> None:
    target = PushTarget(kind="sqs", address="arn:aws:sqs:us-east-1:123456789012:orders")
    idle.deployment.groups.put("orders", "billing", push=target)
    assert {report.resting for report in minutes(idle, 60)} == {0}
    store = idle.store
    assert isinstance(store, PricedStore)
    store.units = 0
    minutes(idle, 60)
    assert store.units / 60 <= 12
    idle.send("b")
    idle.pushes.started.clear()
    minutes(idle, 1)
    assert set(idle.pushes.started) == {("orders", "billing")}
