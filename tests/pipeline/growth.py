"""Compares runs of jobs that read the changed subjects with runs over everything."""

from contextlib import closing
from datetime import date
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from hourwheel_pipeline.jobs import metrics
from hourwheel_pipeline.jobs.metrics import MetricsOptions
from hourwheel_pipeline.jobs.reconcile import ReconcileOptions
from hourwheel_pipeline.jobs.reconcile import run as reconcile
from hourwheel_pipeline.jobs.report import newest
from hourwheel_pipeline.judging.reconciliation import Finding, Reconciled
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.measures.metrics_rows import VALUES
from tests.pipeline.worlds import DAY, World

LONG = 3 * DAY
"""Longer than the span of which each run computes metrics again, and than a later horizon decides about a row."""


def archived_and_compacted(world: World, spark: SparkSession) -> None:
    world.bench.clock.pass_time(1)
    world.archived()
    world.compacted(spark)


def judged(world: World, spark: SparkSession, **options: Any) -> Reconciled:
    """Judges at a time of its own: findings of one run have the same time."""
    world.bench.clock.pass_time(1)
    return reconcile(spark, ReconcileOptions(archive=world.archive, lake=world.lake, **options), world.now_ms)


def same_findings_as_over_everything(world: World, spark: SparkSession, report: Reconciled, **options: Any) -> None:
    assert _comparable(report) == _comparable(judged(world, spark, full=True, **options))


def _comparable(report: Reconciled) -> dict[str, Any]:
    fields = msgspec.structs.asdict(report)
    for name in ("found_ms", "new_errors"):
        del fields[name]
    return fields | {"findings": sorted(map(_what, report.findings))}


def _what(finding: Finding) -> str:
    return str([getattr(finding, name) for name in Finding.__struct_fields__ if name != "first_seen_ms"])


def same_metrics_as_over_everything(world: World, spark: SparkSession) -> None:
    before = _values(newest(_hours(world)))
    world.bench.clock.pass_time(1)
    metrics.run(spark, MetricsOptions(archive=world.archive, lake=world.lake, since=date(2020, 1, 1)), world.now_ms)
    every = _hours(world)
    last = max(every["computed_at"].to_pylist())
    full = _values(every.filter([at == last for at in every["computed_at"].to_pylist()]))
    assert before == full
    assert len(full) > 3


def _hours(world: World) -> pa.Table:
    with closing(Lake.open(world.lake)) as lake:
        return lake.rows(metrics.TABLE, "step_seconds = 3600")


def _values(table: pa.Table) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Returns the values of each hour, subject and group that has any."""
    values = {}
    for row in table.to_pylist():
        key = tuple(row.pop(name) for name in ("hour", "subject", "group"))
        values[key] = {name: value for name, value in row.items() if name in VALUES and value is not None}
    return {key: of_key for key, of_key in values.items() if of_key}
