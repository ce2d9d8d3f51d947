"""Writes the findings of the last reconciliation and the metrics, as a page and as JSON.

{output}/report.html
{output}/report.json       see ``reporting/contents.py``
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import PositiveInt

from hourwheel.errors import NotFound
from hourwheel.times import HOUR_MS
from hourwheel_pipeline.archive_rows.columns import milliseconds_of
from hourwheel_pipeline.jobs import metrics
from hourwheel_pipeline.jobs.last_runs import leave_report
from hourwheel_pipeline.jobs.reconcile import last_of, with_findings
from hourwheel_pipeline.lake.locations import Files
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.measures.metrics_rows import VALUES
from hourwheel_pipeline.reporting.contents import Contents, GroupHours, HotKey, Hour, SubjectHours
from hourwheel_pipeline.reporting.page import page
from hourwheel_pipeline.runs.job_options import LakeOptions
from hourwheel_pipeline.runs.option_faults import Location

__all__ = ["ReportOptions", "Reported", "run"]

_PAGE, _JSON = "report.html", "report.json"


class ReportOptions(LakeOptions):
    """The options of ``report``. ``lake`` and ``output`` are a folder or ``s3://bucket/prefix``.

    The report shows the last ``hours`` of the ``subjects`` with the most messages, as many hours ahead, and ``listed``
    findings of each kind.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> report.ReportOptions(lake="orders-data/lake", output="orders-data/report").hours
        168
    """

    output: Location
    hours: PositiveInt = 168
    subjects: PositiveInt = 20
    listed: PositiveInt = 100


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of the report, as a ``page`` and as ``json``, and the number of ``findings`` of the last
    reconciliation; None where there was none.

    Example:
        >>> report.run(report.ReportOptions(lake="orders-data/lake", output="orders-data/report"), now_ms).findings
        0
    """

    page: str
    json: str
    findings: int | None
    subjects: int


def run(options: ReportOptions, now_ms: int) -> Reported:
    """Writes the report of the last reconciliation and of the metrics. Needs no Spark. ``now_ms`` is the time of the
    run, in Unix milliseconds.

    Raises:
        Broken: the lake was copied or moved.

    Example:
        >>> report.run(report.ReportOptions(lake="orders-data/lake", output="orders-data/report"), now_ms).page
        'orders-data/report/report.html'
    """
    folder, files = options.output.rstrip("/"), Files(options.region, options.endpoint_url)
    with closing(options.open_lake()) as lake:
        contents = contents_of(lake, options, now_ms)
        files.write(f"{folder}/{_PAGE}", page(contents).encode())
        files.write(f"{folder}/{_JSON}", msgspec.json.encode(contents))
        leave_report(lake, f"{folder}/{_PAGE}".removeprefix(f"{options.lake.rstrip('/')}/"), now_ms)
    reconciled = contents.reconciled
    return Reported(
        page=f"{folder}/{_PAGE}",
        json=f"{folder}/{_JSON}",
        findings=None if reconciled is None else sum(reconciled.counts.values()),
        subjects=contents.subjects_total,
    )


def contents_of(lake: Lake, options: ReportOptions, now_ms: int) -> Contents:
    since_ms = now_ms // HOUR_MS * HOUR_MS - options.hours * HOUR_MS
    until_ms = now_ms + options.hours * HOUR_MS
    subjects, total, step_ms = _subjects(lake, options, since_ms, until_ms)
    last = last_of(lake)
    return Contents(
        made_ms=now_ms,
        since_ms=since_ms,
        reconciled=None if last is None else with_findings(lake, last, options.listed),
        step_ms=step_ms,
        subjects_total=total,
        subjects=subjects,
    )


def _subjects(lake: Lake, options: ReportOptions, since_ms: int, until_ms: int) -> tuple[list[SubjectHours], int, int]:
    """Returns the subjects with the most messages, the number of all subjects, and the length of the finer steps in
    milliseconds; 0 without any."""
    try:
        rows = lake.rows(metrics.TABLE, f"day >= '{_iso(since_ms)[:10]}' and day <= '{_iso(until_ms)[:10]}'")
    except NotFound:
        return [], 0, 0
    kept = _of_the_last_steps(newest(rows)).sort_by(
        [("subject", "ascending"), ("group", "ascending"), ("hour", "ascending")]
    )
    kept = kept.append_column("hour_ms", milliseconds_of(kept["hour"])).drop_columns(["day", "hour", "computed_at"])
    within = pc.and_(pc.greater_equal(kept["hour_ms"], since_ms), pc.less_equal(kept["hour_ms"], until_ms))
    by_subject: dict[str, list[dict[str, Any]]] = {}
    for row in kept.filter(within).to_pylist():
        by_subject.setdefault(row["subject"], []).append(row)
    sizes = {name: sum(map(_size, rows_of)) for name, rows_of in by_subject.items()}
    steps = {row["step_seconds"] * 1_000 for rows_of in by_subject.values() for row in rows_of} - {HOUR_MS}
    most = sorted(by_subject, key=lambda name: (-sizes[name], name))[: options.subjects]
    return [_subject(name, by_subject[name]) for name in most], len(by_subject), max(steps, default=0)


def _size(row: Mapping[str, Any]) -> int:
    """Returns the number of messages of an hour; 0 for a row of a finer step, which repeats them."""
    return (row["accepted"] or 0) + (row["due"] or 0) if _by_hour(row) else 0


def _by_hour(row: Mapping[str, Any]) -> bool:
    return bool(row["step_seconds"] * 1_000 == HOUR_MS)


def _of_the_last_steps(table: pa.Table) -> pa.Table:
    """Returns the rows without the finer steps of earlier runs: the last run covered a longer span, in other steps or
    in none."""
    last = pc.equal(table["computed_at"], pc.max(table["computed_at"]))
    return table.filter(pc.or_(last, pc.equal(table["step_seconds"], HOUR_MS // 1_000)))


def newest(table: pa.Table) -> pa.Table:
    """Returns for each hour the row that was computed last. Keeps ``due`` in rows of the last run alone: an earlier run
    may have counted messages that were cancelled since."""
    ordered = table.sort_by([("computed_at", "descending")])
    numbered = ordered.append_column("rank", pa.array(range(len(ordered)), pa.int64()))
    first = numbered.group_by(["step_seconds", "hour", "subject", "group"]).aggregate([("rank", "min")])
    rows = ordered.take(first["rank_min"])
    last = pc.equal(rows["computed_at"], pc.max(table["computed_at"]))
    due = pc.if_else(last, rows["due"], pa.scalar(None, rows.schema.field("due").type))
    return rows.set_column(rows.schema.get_field_index("due"), "due", due)


def _iso(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def _subject(name: str, rows: Sequence[Mapping[str, Any]]) -> SubjectHours:
    groups: dict[str | None, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    hours, steps = _hours(groups.pop(None, []))
    listed = [
        GroupHours(group=group, hours=of_hours, steps=of_steps)
        for group, of_group in groups.items()
        if group is not None
        for of_hours, of_steps in (_hours(of_group),)
    ]
    return SubjectHours(subject=name, hours=hours, steps=steps, groups=listed)


def _hours(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Hour], list[Hour]]:
    """Returns the rows by the hour, and those by finer steps."""
    return [_hour(row) for row in rows if _by_hour(row)], [_hour(row) for row in rows if not _by_hour(row)]


def _hour(row: Mapping[str, Any]) -> Hour:
    values: dict[str, Any] = {name: row[name] for name in VALUES}
    keys = values.pop("hot_keys")
    hot = None if not keys else [HotKey(key["key"], key["messages"]) for key in keys]
    return Hour(hour_ms=row["hour_ms"], hot_keys=hot, **values)
