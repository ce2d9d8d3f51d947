"""A run of metrics reads only subjects that changed, and ends with the rows that a run over everything computes."""

from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from hourwheel.adapters.files import FileBlobs
from hourwheel_pipeline.jobs import metrics
from hourwheel_pipeline.jobs.compact import CompactOptions
from hourwheel_pipeline.jobs.compact import run as compact
from hourwheel_pipeline.jobs.report import newest
from hourwheel_pipeline.judging import changed_subjects
from hourwheel_pipeline.lake.tables import Lake
from tests.pipeline.growth import LONG, archived_and_compacted, same_metrics_as_over_everything
from tests.pipeline.readings import subjects_read
from tests.pipeline.worlds import HOUR, World


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets each lake count as one that is too large to be read as a whole."""
    monkeypatch.setattr(changed_subjects, "SMALL_ROWS", 0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    found = World(tmp_path)
    for subject in ("orders", "bills"):
        found.bench.send("a", "b", subject=subject)
        found.acknowledge(subject, "billing")
    found.bench.clock.pass_time(LONG)
    found.bench.send("after", subject="after")
    return found


def computed(world: World, spark: SparkSession) -> None:
    """Archives, compacts and computes metrics, at a time of its own."""
    archived_and_compacted(world, spark)
    world.measured(spark)


def test_a_run_reads_only_the_files_of_subjects_that_changed(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed(world, spark)
    world.bench.send("c", subject="orders")
    world.acknowledge("orders", "billing")
    world.archived()
    world.compacted(spark)
    read = subjects_read(monkeypatch)
    world.measured(spark)
    assert read == {"orders"}
    assert accepted(world) == {"orders": 3, "bills": 2, "after": 1}


@pytest.mark.volume
def test_the_hours_of_all_subjects_are_those_of_a_run_over_everything(spark: SparkSession, world: World) -> None:
    computed(world, spark)
    world.bench.send("c", subject="orders")
    world.acknowledge("orders", "billing")
    world.archived()
    world.compacted(spark)
    world.measured(spark)
    same_metrics_as_over_everything(world, spark)


def accepted(world: World) -> dict[str, int]:
    """Returns the sum of the newest rows of each subject."""
    with closing(Lake.open(world.lake)) as lake:
        rows = newest(lake.rows(metrics.TABLE, "step_seconds = 3600")).to_pylist()
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["subject"]] += row["accepted"] or 0
    return +counts


@pytest.mark.volume
def test_a_small_lake_is_read_as_a_whole_and_only_hours_that_may_have_changed_are_computed(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed(world, spark)
    monkeypatch.setattr(changed_subjects, "SMALL_ROWS", 1_000)
    monkeypatch.delattr(metrics, "ChangeSearch")
    world.bench.send("c", subject="orders")
    world.archived()
    world.compacted(spark)
    read = subjects_read(monkeypatch)
    world.bench.clock.pass_time(1)
    world.measured(spark)
    assert read == {"orders", "bills", "after"}
    with closing(Lake.open(world.lake)) as lake:
        rows = lake.rows(metrics.TABLE, "step_seconds = 3600").to_pylist()
    last = max(row["computed_at"] for row in rows)
    first_hours = {row["computed_at"] == last: row["hour"] for row in sorted(rows, key=lambda row: row["hour"])[::-1]}
    assert first_hours[True] > first_hours[False]
    same_metrics_as_over_everything(world, spark)


@pytest.mark.volume
def test_a_quarantined_segment_that_is_taken_later_counts_in_its_own_hour(spark: SparkSession, world: World) -> None:
    world.archived()
    archive = FileBlobs(world.archive)
    key = sorted(archive.list("segments/messages/"))[0]
    data = archive.get(key)
    archive.delete(key)
    computed(world, spark)
    archive.put(key, data)
    world.bench.clock.pass_time(HOUR)
    compact(spark, CompactOptions(archive=world.archive, lake=world.lake, again=True))
    world.measured(spark)
    same_metrics_as_over_everything(world, spark)


@pytest.mark.volume
def test_a_run_reads_everything_after_rows_were_deleted(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed(world, spark)
    with closing(Lake.open(world.lake)) as lake:
        lake.table("messages").delete("subject == 'bills'")
    read = subjects_read(monkeypatch)
    world.bench.clock.pass_time(1)
    world.measured(spark)
    assert "orders" in read
