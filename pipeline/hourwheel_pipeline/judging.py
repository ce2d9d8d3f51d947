"""Judges the evidence by all checks, and counts what the report names besides their findings."""

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
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
from hourwheel_pipeline.segment_rows import ArchivePlace


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


def judged(evidence: Evidence, coverage: Coverage, limits: FindingLimits, place: ArchivePlace) -> DataFrame:
    """Returns the findings of all checks. ``place``: the archive, from which missing rows are named."""
    skew_ms, late_ms, stuck_ms, lease_ms = limits
    every = {
        "rows": row_findings(evidence, coverage, place),
        "pulls": chain_findings(evidence, coverage, skew_ms=skew_ms, lease_ms=lease_ms),
        "hand-overs": handover_findings(evidence, coverage, skew_ms=skew_ms),
        "delayed messages": delay_findings(evidence, coverage, skew_ms=skew_ms, late_ms=late_ms, stuck_ms=stuck_ms),
    }
    frames = []
    for name, checks in every.items():
        stage("reconcile", f"checks {name}")
        # One by one: to plan all checks together takes Spark longer than to run them.
        frames += [some for check in checks if check is not None and (some := evidence.some(check)) is not None]
    none = evidence.messages.sparkSession.createDataFrame([], DDL)
    together = reduce(DataFrame.unionByName, frames, none)
    if coverage.full:
        return together
    return together.where(fn.col("at").isNull() | (fn.col("at") >= moment(coverage.began_ms)))


def count_rows(evidence: Evidence, after: Mapping[str, int]) -> RowCounts:
    """Counts the rows that each table took from the manifests ``after`` this number."""
    messages, pulls, dispatches = (
        frame.where(fn.col("manifest") > after[table])
        for table, frame in (
            (MESSAGES, evidence.messages),
            (PULLS, evidence.pulls),
            (DISPATCHES, evidence.dispatches),
        )
    )
    kinds = {row["kind"]: row["count"] for row in messages.groupBy("kind").count().collect()}
    handed = pulls.agg(fn.count("*"), fn.sum(fn.col("messages") - _handed_over())).first()
    assert handed is not None
    rows = {f"messages {kind}": count for kind, count in sorted(kinds.items())}
    totals = {"accepted": kinds.get(QUEUE, 0), "delivered": handed[1] or 0, "dead": kinds.get(DEAD, 0)}
    return RowCounts(rows | {PULLS: handed[0], DISPATCHES: dispatches.count()}, totals)


def open_until_ms(evidence: Evidence, limits: FindingLimits) -> int:
    """Returns the time from which on a later horizon alone brings no row into judgement."""
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
