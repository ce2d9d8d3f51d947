"""No subject, log, bucket or record ends a sweep: the sweep goes on, and says at its end what it left."""

import logging
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.context import Settings
from hourwheel.errors import Throttled
from hourwheel.ports.storage import Counter, Key, Record, Refused, Table
from hourwheel.registry.records import SUBJECT_SORT
from hourwheel.sweep.retention import LogRetention
from tests.support import AT_ONCE, Bench, CallByCall, SeededIds

SUBJECTS = ("a", "b", "c")
DAY_SECONDS = 86_400


class ThrottledPartitions(CallByCall):
    """Refuses each call of a partition or counter that contains ``hot``."""

    hot = "no partition"
    refused = 0

    def _check(self, name: str) -> None:
        if self.hot in name:
            self.refused += 1
            raise Throttled("busy")

    def counter(self, counter: str) -> Counter:
        self._check(counter)
        return super().counter(counter)

    def counters(self, counters: Any, *, consistent: bool = False) -> dict[str, Counter]:
        for counter in counters:
            self._check(counter)
        return super().counters(counters, consistent=consistent)

    def get(self, key: Key, *, consistent: bool = True) -> Record | None:
        self._check(f"{key.partition} {key.sort}")
        return super().get(key, consistent=consistent)

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        self._check(f"{key.partition} {key.sort}")
        return super().put(key, record, expect=expect)

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        self._check(partition)
        return super().scan(table, partition, **how)


@pytest.fixture(params=[1, 4], ids=["one after the other", "four threads"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """Returns three subjects, each with a message under a lease that is over, and a delayed message that is due."""
    settings = Settings(retry=AT_ONCE, registry_seconds=0)
    bench = Bench(ThrottledPartitions(MemoryStore()), settings=settings, threads=request.param)
    for subject in SUBJECTS:
        bench.send("x", subject=subject)
        assert bench.pull(subject=subject)
    bench.send_later("later", delay=100, subject="a")
    bench.timers.ordered.clear()
    bench.clock.pass_time(120)
    bench.deployment = bench.another_process()
    return bench


def hot(bench: Bench) -> ThrottledPartitions:
    assert isinstance(bench.store, ThrottledPartitions)
    return bench.store


def spoil(bench: Bench, partition: str, name: str) -> None:
    key = Key(Table.META, partition, name)
    before = bench.store.get(key)
    bench.store.put(key, Record(b"\xc1", b"x" * 16), expect=before and before.token)


def metric(bench: Bench, name: str) -> float:
    return sum(value for metric, value in bench.meter.metrics if metric == name)


@pytest.mark.parametrize(
    "partition",
    ["subject/a", "a~1/0", "billing~1@a~1/0", "a~1/retry/billing~1", "a~1/dead/billing~1"],
    ids=["its records", "queue", "pull log", "retries", "dead letters"],
)
def test_a_subject_that_is_throttled_ends_no_sweep(
    bench: Bench, partition: str, caplog: pytest.LogCaptureFixture
) -> None:
    hot(bench).hot = partition
    report = bench.deployment.sweeper.sweep()
    assert hot(bench).refused
    assert (report.subjects, report.started_wheels) == (2 if partition == "subject/a" else 3, 1)
    assert report.ended_leases == 2
    assert metric(bench, "SweepLeft") == report.left >= 1
    (line,) = [record.getMessage() for record in caplog.records if "the store refused" in record.getMessage()]
    assert "Throttled" in line
    hot(bench).hot = "no partition"
    again = bench.deployment.sweeper.sweep()
    assert (again.ended_leases + report.ended_leases, again.left) == (3, 0)


def test_a_throttled_queue_does_not_hold_up_the_other_queues_of_its_subject(bench: Bench) -> None:
    bench.deployment.subjects.put("wide", queues=4)
    for key in "abcdefgh":
        bench.send("x", subject="wide", key=key)
    leased = len(bench.pull(subject="wide"))
    assert leased > 1
    bench.clock.pass_time(120)
    bench.deployment = bench.another_process()
    hot(bench).hot = "billing~1@wide~1/0"
    report = bench.deployment.sweeper.sweep()
    assert report.ended_leases >= leased - 1 + 3


def test_a_subject_that_is_refused_takes_three_calls_of_five_seconds_at_most(bench: Bench) -> None:
    bench.deployment.subjects.put("wide", queues=16)
    bench.deployment.groups.put("wide", "billing")
    for number in range(200):
        bench.send("x", subject="wide", key=str(number))
    store = hot(bench)
    bench.store = RetryingStore(store, bench.clock, SeededIds())
    bench.deployment = bench.another_process()
    store.hot = "@wide~1/"
    began_ms = bench.clock.now_ms()
    assert bench.deployment.sweeper.sweep().ended_leases == 3
    assert bench.clock.now_ms() - began_ms <= 3 * 5_000


@pytest.mark.parametrize(("name", "words"), [(SUBJECT_SORT, "subject a"), ("billing", "group billing of a")])
def test_a_record_that_cannot_be_decoded_is_reported_and_set_aside(
    bench: Bench, name: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(bench, "subject/a", name)
    report = bench.deployment.sweeper.sweep()
    assert (report.ended_leases, report.started_wheels, report.left) == (2, 1, 0)
    assert metric(bench, "Faults") == 1
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert words in line
    assert "Corrupt" in line


def test_other_groups_of_the_subject_are_tended_beside_one_that_cannot_be_decoded(bench: Bench) -> None:
    bench.deployment.groups.put("a", "audit")
    assert bench.pull(subject="a", group="audit", lease=1)
    bench.clock.pass_time(60)
    bench.deployment = bench.another_process()
    spoil(bench, "subject/a", "billing")
    assert bench.deployment.sweeper.sweep().ended_leases == 3


def test_consumers_of_a_broadcast_group_that_cannot_be_decoded_are_left_alone(bench: Bench) -> None:
    bench.deployment.groups.put("a", "all", broadcast=True)
    assert bench.pull(subject="a", group="all")
    bench.clock.pass_time(30 * DAY_SECONDS)
    bench.deployment = bench.another_process()
    consumers = bench.store.scan(Table.META, "subject/a", start="all+", limit=9)[:1]
    spoil(bench, "subject/a", "all")
    bench.deployment.sweeper.sweep()
    assert bench.store.scan(Table.META, "subject/a", start="all+", limit=9)[:1] == consumers


@pytest.mark.parametrize("damaged", ["its name", "its record"])
def test_a_bucket_that_cannot_be_decoded_is_set_aside_and_the_others_are_tended(bench: Bench, damaged: str) -> None:
    ((stored, _),) = bench.store.scan(Table.META, "buckets", limit=2)
    first = f"{int(stored[:13]) - 3_600_000:013d}{stored[13:]}" if damaged == "its record" else "0000000000001 x"
    spoil(bench, "buckets", first)
    report = bench.deployment.sweeper.sweep()
    assert (report.started_wheels, report.ended_leases) == (1, 3)
    assert metric(bench, "Faults") == 1


def test_a_bucket_that_is_throttled_holds_up_no_other_bucket(bench: Bench) -> None:
    bench.send_later("much later", delay=7_200, subject="a")
    bench.timers.ordered.clear()
    bench.clock.pass_time(7_210)
    bench.deployment = bench.another_process()
    first = bench.store.scan(Table.META, "buckets", limit=1)[0][0]
    hot(bench).hot = f"wheels {first}"
    report = bench.deployment.sweeper.sweep()
    assert (report.started_wheels, report.ended_leases, report.left) == (1, 3, 1)


@pytest.mark.parametrize("partition", ["subjects", "pushes", "buckets", "changes", "orphans"])
def test_a_list_that_is_throttled_ends_no_sweep(bench: Bench, partition: str) -> None:
    hot(bench).hot = partition
    report = bench.deployment.sweeper.sweep()
    assert report.left == 1
    assert report.ended_leases == (0 if partition == "subjects" else 3)
    assert report.started_wheels == (0 if partition == "buckets" else 1)


def test_logs_that_the_store_refuses_at_the_end_of_a_sweep_end_no_sweep(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bool:
        if not metric(bench, "subjects tended"):
            return False
        raise Throttled("busy")

    extend_further = LogRetention.extend_further

    def behind_subjects(retention: LogRetention, until_ms: int) -> None:
        bench.meter.record("subjects tended", 1)
        extend_further(retention, until_ms)

    monkeypatch.setattr("hourwheel.sweep.retention.extend_ttl", refuse)
    monkeypatch.setattr(LogRetention, "extend_further", behind_subjects)
    bench.settings = msgspec.structs.replace(bench.settings, archive=True)
    bench.deployment = bench.another_process()
    for number in range(5):
        bench.send("x", subject=f"more{number}")
    report = bench.deployment.sweeper.sweep()
    assert report.left == metric(bench, "SweepLeft") >= 5
    assert "SweepSeconds" in [name for name, _ in bench.meter.metrics]
