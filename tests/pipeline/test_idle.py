"""If nothing is new, no job starts Spark, and each repeats its last report."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from hourwheel.adapters.files import FileBlobs
from hourwheel.embedded.lake import LakeDirectory, report_answer
from hourwheel.model.overview import ReportState
from hourwheel.times import rfc3339
from hourwheel_pipeline.jobs import report
from hourwheel_pipeline.jobs.job_names import DAILY, jobs_of, read_options
from hourwheel_pipeline.jobs.metrics import Measured
from hourwheel_pipeline.jobs.reconcile import last_of
from hourwheel_pipeline.jobs.report import ReportOptions
from hourwheel_pipeline.judging.reconciliation import Reconciled
from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.outcomes import report_status
from hourwheel_pipeline.runs import exits
from tests.pipeline.days import Day
from tests.pipeline.worlds import DAY, HOUR, World


class SparkNeeded(Exception):
    """A job has asked for Spark."""


def none() -> SparkSession:
    raise SparkNeeded


@pytest.fixture(scope="module")
def world(day: Day) -> World:
    return day.world


def run(world: World, spark: Any, *names: str) -> dict[str, Any]:
    """Runs these jobs, or all daily jobs. Returns their reports."""
    found = {}
    for name in names or DAILY:
        (job,) = jobs_of(name)
        given = {"archive": world.archive, "lake": world.lake, "output": str(world.root / "report")}
        own = {option.name: given[option.name] for option in job.options if option.name in given}
        found[name] = job.run(spark, *read_options([job], own, world.now_ms), world.now_ms)
    return found


def test_a_run_with_nothing_new_needs_no_spark_and_repeats_the_last_report(world: World) -> None:
    world.bench.clock.pass_time(60)
    reports = run(world, none)
    assert reports["reconcile"].rows["messages queue"] == 4
    assert (reports["reconcile"].found_ms, reports["reconcile"].counts) == (world.now_ms, {})
    assert (reports["metrics"].rows, reports["report"].subjects) == (0, 2)
    assert report_status.of_reports(reports.values()) == exits.FINE


def test_a_run_with_nothing_new_adds_no_snapshot(world: World) -> None:
    def snapshots() -> dict[str, int]:
        with closing(Lake.open(world.lake)) as lake:
            return {name: len(lake.table(name).snapshots()) for name in lake.tables()}

    before = snapshots()
    for _ in range(3):
        world.bench.clock.pass_time(60)
        assert run(world, none)["reconcile"].found_ms == world.now_ms
    assert snapshots() == before
    with closing(Lake.open(world.lake)) as lake:
        last = last_of(lake)
    assert last is not None
    assert last.found_ms == world.now_ms


def test_the_server_tells_what_the_last_runs_found(world: World) -> None:
    world.bench.lake = LakeDirectory(Path(world.lake))
    state = world.bench.another_process().background.archive()
    assert state.lake is not None
    assert {table.table for table in state.lake.tables} == set(SCHEMAS)
    messages = next(table for table in state.lake.tables if table.table == "messages")
    assert (messages.rows, messages.behind, messages.quarantined) == (4, 0, 0)
    assert messages.changed_at is not None
    assert state.lake.problems == 0
    assert state.reconciled is not None
    assert (state.reconciled.findings, state.reconciled.errors) == ({}, 0)
    assert state.reconciled.found_at == rfc3339(world.now_ms)
    assert state.report == ReportState(made_at=rfc3339(world.now_ms), page=None, served=False)


def test_the_server_serves_the_report_that_the_job_wrote_into_the_lake(world: World) -> None:
    lake = LakeDirectory(Path(world.lake))
    assert report_answer(lake, "")["statusCode"] == 404
    options = ReportOptions(lake=f"{world.lake}/", output=f"{world.lake}/report")
    written = report.run(options, world.now_ms).page
    world.bench.lake = lake
    state = world.bench.another_process().background.archive().report
    assert state == ReportState(made_at=rfc3339(world.now_ms), page=None, served=True)
    assert report_answer(lake, "")["body"] == Path(written).read_bytes()


def test_reports_hold_nothing_that_only_the_next_run_needs(world: World) -> None:
    reports = run(world, none, "reconcile", "metrics")
    assert {name: type(report) for name, report in reports.items()} == {"reconcile": Reconciled, "metrics": Measured}
    assert {"basis", "open_until_ms"}.isdisjoint((*Reconciled.__struct_fields__, *Measured.__struct_fields__))


def test_a_deleted_segment_is_reported_without_spark(world: World) -> None:
    archive = FileBlobs(world.archive)
    (key, *_) = archive.list("segments/messages/")
    data = archive.get(key)
    archive.delete(key)
    report = run(world, none, "reconcile")["reconcile"]
    archive.put(key, data)
    assert [problem.key for problem in report.archive.problems] == [key]
    assert report_status.of_reports([report]) == exits.DAMAGE


def test_new_rows_are_judged_and_so_are_rows_that_a_later_horizon_decides_about(
    spark: SparkSession, world: World
) -> None:
    world.bench.clock.pass_time(2 * HOUR)
    world.archived()
    run(world, none, "compact")  # of a manifest without rows only its number is noted
    with pytest.raises(SparkNeeded):
        run(world, none, "reconcile")
    world.bench.clock.pass_time(DAY + HOUR)
    world.archived()
    run(world, lambda: spark, "compact", "reconcile")
    world.bench.clock.pass_time(2 * HOUR)
    world.archived()
    reports = run(world, none, "compact", "reconcile")
    assert reports["reconcile"].horizon_ms == world.now_ms
    world.bench.send("c")
    world.archived()
    with pytest.raises(SparkNeeded):
        run(world, none, "compact")
    run(world, lambda: spark, "compact")
    for name in ("reconcile", "metrics"):
        with pytest.raises(SparkNeeded):
            run(world, none, name)
