"""Runs of metrics over a lake with many days read the newest, and compute what a run over all days computes."""

from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hourwheel.model.messages import NewMessage
from hourwheel_pipeline.jobs import metrics
from hourwheel_pipeline.jobs.metrics import Measured, MetricsOptions, kept_from_ms
from hourwheel_pipeline.judging import changed_subjects
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.measures.metrics_rows import VALUES
from tests.pipeline.growth import LONG, archived_and_compacted
from tests.pipeline.worlds import DAY, HOUR, World

GROUP = "billing"


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each lake count as one that is too large to be read as a whole."""
    monkeypatch.setattr(changed_subjects, "SMALL_ROWS", 0)


@pytest.fixture
def all_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets runs read the subjects that did not change too."""
    monkeypatch.setattr(metrics, "MAX_SUBJECTS", 0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Returns a world of three days, in which everything begins of which later days see the end."""
    made = World(tmp_path)
    made.archived()
    bench = made.bench
    bench.deployment.cells.add("fast")
    for subject in ("steady", "behind", "sought", "quiet", "moved", "recreated", "idle"):
        queues = 2 if subject == "moved" else 1
        bench.deployment.subjects.put(subject, queues=queues, retention_seconds=60 * DAY)
        bench.deployment.groups.put(subject, GROUP)
        bench.deployment.produce(subject, [NewMessage(body=str(at), key=f"k{at}") for at in range(12)])
    for subject in ("steady", "sought", "moved", "recreated", "idle"):
        made.acknowledge(subject, GROUP, limit=5)
    (pull,) = bench.pull(5, subject="behind", group=GROUP)
    bench.settle(pull, subject="behind", group=GROUP, retry=[0])
    bench.send_later("due later", delay=5 * DAY, subject="delayed")
    bench.send_later("due much later", delay=30 * DAY, subject="delayed")
    bench.send_later("cancelled later", delay=31 * DAY, subject="delayed")
    made.pass_time(HOUR)
    bench.clock.pass_time(2 * LONG)
    bench.send("after", subject="steady")
    return made


def later(world: World) -> None:
    """Does on a later day what follows from rows of the first one."""
    bench = world.bench
    bench.deployment.groups.put("quiet", "newcomer", start="latest")
    bench.deployment.groups.put("steady", "newcomer")
    bench.send("one", "two", subject="quiet")
    bench.deployment.seeks().seek("sought", GROUP, to="start")
    bench.deployment.routes.move("moved", 0, "fast")
    bench.deployment.subjects.delete("recreated")
    world.pass_time(HOUR)
    for subject in ("steady", "moved", "recreated"):
        bench.deployment.produce(subject, [NewMessage(body=str(at), key=f"k{at}") for at in range(8)])
    assert world.acknowledge("sought", GROUP, limit=7) == 12
    assert world.acknowledge("behind", GROUP, limit=5) == 8
    assert world.acknowledge("quiet", "newcomer") == 2
    (pull, *_) = bench.pull(4, subject="steady", group=GROUP)
    bench.settle(pull, subject="steady", group=GROUP, retry=[0])
    (pull, *_) = bench.pull(3, subject="moved", group=GROUP)
    bench.settle(pull, subject="moved", group=GROUP, dead=[0])
    world.pass_time(HOUR)


def ran(world: World, spark: SparkSession, **options: Any) -> Measured:
    """Archives, compacts and computes metrics, at a time of its own."""
    archived_and_compacted(world, spark)
    return metrics.run(spark, MetricsOptions(archive=world.archive, lake=world.lake, **options), world.now_ms)


def hours_of(world: World, report: Measured, since_ms: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Returns the values that the run computed, of the hours since."""
    with closing(Lake.open(world.lake)) as lake:
        rows = lake.rows(metrics.TABLE, "step_seconds = 3600").to_pylist()
    values = {}
    for row in rows:
        if row["computed_at"].timestamp() * 1_000 == report.computed_ms and ms_of(row["hour"]) >= since_ms:
            key = tuple(str(row[name]) for name in ("hour", "subject", "group"))
            values[key] = {name: row[name] for name in VALUES if row[name] is not None}
    return {key: of_key for key, of_key in values.items() if of_key}


def ms_of(hour: datetime) -> int:
    return round(hour.astimezone(UTC).timestamp() * 1_000)


def same_as_over_all_days(world: World, spark: SparkSession, before: Measured, report: Measured) -> None:
    assert report.all_days == ""
    since_ms = kept_from_ms(before.horizon_ms)
    world.bench.clock.pass_time(1)
    options = MetricsOptions(archive=world.archive, lake=world.lake, since=date(2020, 1, 1))
    whole = metrics.run(spark, options, world.now_ms)
    assert whole.all_days
    found, wanted = hours_of(world, report, since_ms), hours_of(world, whole, since_ms)
    assert len(found) > 3
    assert found == wanted


@pytest.mark.volume
@pytest.mark.usefixtures("all_subjects")
def test_hours_follow_from_the_newest_rows_as_from_all(spark: SparkSession, world: World) -> None:
    first = ran(world, spark)
    later(world)
    second = ran(world, spark)
    same_as_over_all_days(world, spark, first, second)


@pytest.mark.volume
@pytest.mark.usefixtures("all_subjects")
def test_what_a_run_leaves_is_enough_for_the_run_after_the_next(spark: SparkSession, world: World) -> None:
    ran(world, spark)
    later(world)
    for _ in range(2):
        world.bench.clock.pass_time(DAY)
        world.bench.send("more", subject="steady")
        last = ran(world, spark)
    world.bench.clock.pass_time(LONG)
    world.pass_time(HOUR)
    world.acknowledge("steady", GROUP)
    world.bench.deployment.seeks().seek("quiet", "newcomer", to="start")
    world.bench.send("last", subject="quiet")
    same_as_over_all_days(world, spark, last, ran(world, spark))


@pytest.mark.volume
def test_the_ends_of_subjects_that_did_not_change_are_carried(spark: SparkSession, world: World) -> None:
    ran(world, spark)
    later(world)
    ran(world, spark)
    for _ in range(2):
        world.bench.clock.pass_time(LONG)
        world.bench.send("more", subject="steady")
        last = ran(world, spark)
    world.bench.clock.pass_time(HOUR)
    for subject in ("idle", "quiet", "sought", "moved"):
        world.bench.send("again", subject=subject)
    world.acknowledge("quiet", "newcomer")
    report = ran(world, spark)
    subjects = {key[1] for key in hours_of(world, report, 0)}
    world.bench.clock.pass_time(1)
    options = MetricsOptions(archive=world.archive, lake=world.lake, since=date(2020, 1, 1))
    whole = metrics.run(spark, options, world.now_ms)
    since_ms = kept_from_ms(last.horizon_ms)
    wanted = {key: values for key, values in hours_of(world, whole, since_ms).items() if key[1] in subjects}
    assert {"idle", "quiet", "sought", "moved"} <= subjects
    assert hours_of(world, report, since_ms) == wanted


@pytest.mark.volume
def test_a_run_without_the_ends_of_logs_reads_all_days_and_says_so(spark: SparkSession, world: World) -> None:
    ran(world, spark)
    later(world)
    ran(world, spark)
    for path in Path(world.lake, "metrics-ends").iterdir():
        path.unlink()
    world.bench.clock.pass_time(LONG)
    world.bench.send("more", subject="steady")
    last = ran(world, spark)
    assert last.all_days == "the ends of logs that the last run left are missing or damaged"
    world.bench.clock.pass_time(LONG)
    world.bench.send("again", subject="idle")
    report = ran(world, spark)
    assert report.all_days == ""
    since_ms = kept_from_ms(last.horizon_ms)
    lag = {key: values["lag"] for key, values in hours_of(world, report, since_ms).items() if "lag" in values}
    assert {values for key, values in lag.items() if key[1] == "idle"} == {1}
