"""Judges the evidence by all checks, and counts the rows and messages that the report names besides the findings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as fn

from hourwheel_pipeline.checks.chains import chain_findings, expired_unseen
from hourwheel_pipeline.checks.coverage import MARGIN_MS, Coverage, moment
from hourwheel_pipeline.checks.delays import delay_findings
from hourwheel_pipeline.checks.evidence import Evidence
from hourwheel_pipeline.checks.handovers import handover_findings
from hourwheel_pipeline.checks.rows import row_findings
from hourwheel_pipeline.findings import DDL
from hourwheel_pipeline.progress import stage
from hourwheel_pipeline.schemas import DEAD, DISPATCHES, MESSAGES, PULLS, QUEUE
from hourwheel_pipeline.segment_rows import ArchiveLocation


class FindingLimits(NamedTuple):
    """The times, in milliseconds, from which on something is a finding; see ``ReconcileOptions``."""

    skew_ms: int
    late_ms: int
    stuck_ms: int
    lease_ms: int


class RowCounts(NamedTuple):
    """The numbers of rows by table and kind, and of messages that were accepted, delivered and given up."""

    rows: dict[str, int]
    totals: dict[str, int]

    def plus(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(_sum(self.rows, other.rows), _sum(self.totals, other.totals))


EVERY_DAY = ""
"""The key of counts that are not divided by day."""


def added(first: Mapping[str, RowCounts], second: Mapping[str, RowCounts]) -> dict[str, RowCounts]:
    """Returns the sums of counts by day."""
    none = RowCounts({}, {})
    return {day: first.get(day, none).plus(second.get(day, none)) for day in dict.fromkeys([*first, *second])}


def summed(counts: Mapping[str, RowCounts]) -> RowCounts:
    """Returns the counts of all days together."""
    none = RowCounts({PULLS: 0, DISPATCHES: 0}, {"accepted": 0, "delivered": 0, "dead": 0})
    rows, totals = reduce(RowCounts.plus, counts.values(), none)
    return RowCounts(dict(sorted(rows.items())), totals)


def since_day(counts: Mapping[str, RowCounts], day: date) -> dict[str, RowCounts]:
    """Returns the counts of the days from ``day`` on."""
    return {text: of_day for text, of_day in counts.items() if text >= day.isoformat()}


def judged(evidence: Evidence, coverage: Coverage, limits: FindingLimits, location: ArchiveLocation) -> DataFrame:
    """Returns the findings of all checks. ``location``: that of the archive, which names the missing rows."""
    skew_ms, late_ms, stuck_ms, lease_ms = limits
    checks_by_name = {
        "rows": row_findings(evidence, coverage, location),
        "pulls": chain_findings(evidence, coverage, skew_ms=skew_ms, lease_ms=lease_ms),
        "hand-overs": handover_findings(evidence, coverage, skew_ms=skew_ms),
        "delayed messages": delay_findings(evidence, coverage, skew_ms=skew_ms, late_ms=late_ms, stuck_ms=stuck_ms),
    }
    frames = []
    for name, checks in checks_by_name.items():
        stage("reconcile", f"checks {name}")
        # One by one: to plan all checks together takes Spark longer than to run them.
        frames += [some for check in checks if check is not None and (some := evidence.some(check)) is not None]
    none = evidence.messages.sparkSession.createDataFrame([], DDL)
    return within_days(reduce(DataFrame.unionByName, frames, none), coverage)


def within_days(findings: DataFrame, coverage: Coverage) -> DataFrame:
    """Returns the findings about the days that the run judges."""
    if coverage.full:
        return findings
    return findings.where(fn.col("at").isNull() | (fn.col("at") >= moment(coverage.began_ms)))


def count_rows(evidence: Evidence, after: Mapping[str, int], *, by_day: bool) -> dict[str, RowCounts]:
    """Counts the rows that each table took from the manifests ``after`` this number, ``by_day`` on which they were
    stored, or of all days together."""
    messages, pulls, dispatches = (
        frame.where(fn.col("manifest") > after[table])
        for table, frame in (
            (MESSAGES, evidence.messages),
            (PULLS, evidence.pulls),
            (DISPATCHES, evidence.dispatches),
        )
    )
    counts: dict[str, RowCounts] = {}
    for day, kind, count in _grouped(messages, "accepted_at", "kind", by_day=by_day):
        totals = {name: count for name, of_kind in (("accepted", QUEUE), ("dead", DEAD)) if kind == of_kind}
        counts = added(counts, {day: RowCounts({f"messages {kind}": count}, totals)})
    delivered = fn.sum(fn.col("messages") - _handed_over())
    for day, count, settled in _grouped(pulls, "closed_at", by_day=by_day, also=[delivered]):
        counts = added(counts, {day: RowCounts({PULLS: count}, {"delivered": settled})})
    for day, count in _grouped(dispatches, "at", by_day=by_day):
        counts = added(counts, {day: RowCounts({DISPATCHES: count}, {})})
    return counts


def _grouped(frame: DataFrame, at: str, *names: str, by_day: bool, also: Sequence[Column] = ()) -> list[Row]:
    day = fn.date_format(at, "yyyy-MM-dd") if by_day else fn.lit(EVERY_DAY)
    return frame.groupBy(day.alias("day"), *names).agg(fn.count("*"), *also).collect()


def open_until_ms(evidence: Evidence, limits: FindingLimits) -> int:
    """Returns the horizon from which on every row has been judged: a later horizon alone changes no finding."""
    last = evidence.messages.agg(fn.max(fn.unix_millis("accepted_at")), fn.max(fn.unix_millis("due_at"))).first()
    dispatched = evidence.dispatches.agg(fn.max(fn.unix_millis("at"))).first()
    assert last is not None
    assert dispatched is not None
    times = [at_ms for at_ms in (*last, *dispatched) if at_ms is not None]
    return max(times, default=0) + MARGIN_MS + max(limits.stuck_ms, limits.skew_ms)


def expired(evidence: Evidence, coverage: Coverage, limits: FindingLimits) -> dict[str, int]:
    """Returns the numbers of messages that expired before their group came to them, by ``subject group``."""
    rows = expired_unseen(evidence, coverage, limits.skew_ms).collect()
    return {f"{row['subject']} {row['group']}": row["messages"] for row in rows}


def _handed_over() -> Column:
    """Returns the number of messages of a pull that went to other logs."""
    return fn.aggregate("moved", fn.lit(0), lambda count, move: count + fn.size(move["picks"]))


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(first) + Counter(second)) | {name: 0 for name in first if not first[name] + second.get(name, 0)}
