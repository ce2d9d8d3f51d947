"""Runs every check over the evidence."""

from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from hourwheel_pipeline.archive_rows.segment_rows import ArchiveLocation
from hourwheel_pipeline.judging.checks.chains import chain_findings, expired_unseen
from hourwheel_pipeline.judging.checks.coverage import MARGIN_MS, Coverage, moment
from hourwheel_pipeline.judging.checks.delays import delay_findings
from hourwheel_pipeline.judging.checks.evidence import Evidence
from hourwheel_pipeline.judging.checks.handovers import handover_findings
from hourwheel_pipeline.judging.checks.rows import row_findings
from hourwheel_pipeline.judging.findings import DDL
from hourwheel_pipeline.runs.progress import stage


class FindingLimits(NamedTuple):
    """The times, in milliseconds, from which on something is a finding; see ``ReconcileOptions``."""

    skew_ms: int
    late_ms: int
    stuck_ms: int
    lease_ms: int


def all_findings(evidence: Evidence, coverage: Coverage, limits: FindingLimits, location: ArchiveLocation) -> DataFrame:
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
