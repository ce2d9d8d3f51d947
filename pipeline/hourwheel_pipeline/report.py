"""Report: what the last reconciliation found and what the metrics say, as a page and as JSON.

{output}/report.html
{output}/report.json       see ``reporting/contents.py``
"""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, PositiveInt
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as fn

from hourwheel.archive.segments import HOUR_MS
from hourwheel.errors import NotFound
from hourwheel_pipeline import findings, metrics, reconcile
from hourwheel_pipeline.checks.known import moment
from hourwheel_pipeline.lake import NAMESPACE, Lake
from hourwheel_pipeline.places import Files
from hourwheel_pipeline.reconcile import Reconciled
from hourwheel_pipeline.reporting.contents import Contents, GroupHours, HotKey, Hour, SubjectHours
from hourwheel_pipeline.reporting.page import page

_PAGE, _JSON = "report.html", "report.json"


class ReportOptions(BaseModel):
    """``output``: a folder or ``s3://bucket/prefix``. It tells the last ``hours`` of the ``subjects`` with the most
    messages, as many hours ahead, and ``listed`` findings of each kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lake: str
    output: str
    namespace: str = NAMESPACE
    region: str | None = None
    endpoint_url: str | None = None
    hours: PositiveInt = 168
    subjects: PositiveInt = 20
    listed: PositiveInt = 100


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """``findings``: of the last reconciliation; None where there was none."""

    page: str
    json: str
    findings: int | None
    subjects: int


def run(spark: SparkSession, options: ReportOptions, now_ms: int) -> Reported:
    opened = Lake.open(
        options.lake, namespace=options.namespace, region=options.region, endpoint_url=options.endpoint_url
    )
    with closing(opened) as lake:
        contents = contents_of(spark, lake, options, now_ms)
    folder, files = options.output.rstrip("/"), Files(options.region, options.endpoint_url)
    files.write(f"{folder}/{_PAGE}", page(contents).encode())
    files.write(f"{folder}/{_JSON}", msgspec.json.encode(contents))
    found = contents.reconciled
    return Reported(
        page=f"{folder}/{_PAGE}",
        json=f"{folder}/{_JSON}",
        findings=None if found is None else sum(found.counts.values()),
        subjects=contents.subjects_total,
    )


def contents_of(spark: SparkSession, lake: Lake, options: ReportOptions, now_ms: int) -> Contents:
    since_ms = now_ms // HOUR_MS * HOUR_MS - options.hours * HOUR_MS
    until_ms = now_ms + options.hours * HOUR_MS
    subjects, total = _subjects(spark, lake, options, since_ms, until_ms)
    return Contents(
        made_ms=now_ms,
        since_ms=since_ms,
        reconciled=_reconciled(spark, lake, options.listed),
        subjects_total=total,
        subjects=subjects,
    )


def _reconciled(spark: SparkSession, lake: Lake, listed: int) -> Reconciled | None:
    try:
        note = lake.notes(findings.TABLE).get(reconcile.NOTE)
    except NotFound:
        return None
    if note is None:
        return None
    last = msgspec.json.decode(note, type=Reconciled)
    of_run = lake.read(spark, findings.TABLE).where(fn.col("found_at") == moment(last.found_ms))
    return msgspec.structs.replace(last, findings=reconcile.listed_of(of_run, listed))


def _subjects(
    spark: SparkSession, lake: Lake, options: ReportOptions, since_ms: int, until_ms: int
) -> tuple[list[SubjectHours], int]:
    """The subjects with the most messages, and how many there are."""
    try:
        table = lake.read(spark, metrics.TABLE)
    except NotFound:
        return [], 0
    told = newest(table).where(fn.col("hour").between(moment(since_ms), moment(until_ms)))
    size = fn.sum(fn.coalesce("accepted", fn.lit(0)) + fn.coalesce("due", fn.lit(0)))
    sizes = told.groupBy("subject").agg(size.alias("size"))
    most = sizes.orderBy(fn.desc("size"), "subject").limit(options.subjects)
    names = [row["subject"] for row in most.collect()]
    rows = told.where(fn.col("subject").isin(names)).withColumn("hour_ms", fn.unix_millis("hour"))
    hours = rows.drop("day", "hour", "computed_at").orderBy("subject", "group", "hour_ms").collect() if names else []
    return [_subject(name, [row for row in hours if row["subject"] == name]) for name in names], sizes.count()


def newest(table: DataFrame) -> DataFrame:
    """Of each hour what was computed last. What is due later is what the last run says: another that said more may
    have seen messages that were cancelled since."""
    by_age = Window.partitionBy("hour", "subject", "group").orderBy(fn.desc("computed_at"))
    last = table.agg(fn.max("computed_at").alias("last"))
    marked = table.withColumn("age", fn.row_number().over(by_age)).where("age = 1").crossJoin(last)
    due = fn.when(fn.col("computed_at") == fn.col("last"), fn.col("due"))
    return marked.withColumn("due", due).drop("age", "last")


def _subject(name: str, rows: Sequence[Row]) -> SubjectHours:
    groups: dict[str, list[Hour]] = {}
    for row in rows:
        if row["group"] is not None:
            groups.setdefault(row["group"], []).append(_hour(row))
    own = [_hour(row) for row in rows if row["group"] is None]
    listed = [GroupHours(group=group, hours=hours) for group, hours in groups.items()]
    return SubjectHours(subject=name, hours=own, groups=listed)


def _hour(row: Row) -> Hour:
    values: dict[str, Any] = {name: row[name] for name in metrics.VALUES}
    keys = values.pop("hot_keys")
    hot = None if keys is None else [HotKey(key["key"], key["messages"]) for key in keys]
    return Hour(hour_ms=row["hour_ms"], hot_keys=hot, **values)
