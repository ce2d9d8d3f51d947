"""Writes the result of a job's last run beside the tables of the lake, where the console of the server reads it."""

from typing import TYPE_CHECKING

import msgspec

from hourwheel.model.last_runs import CompactRun, LeavingJob, ReconcileRun, ReportRun, TableRun, file_of
from hourwheel.times import rfc3339
from hourwheel_pipeline.judging.findings import errors_in
from hourwheel_pipeline.lake.tables import Lake

if TYPE_CHECKING:
    from hourwheel_pipeline.jobs.compact import CompactReport
    from hourwheel_pipeline.judging.reconciliation import Reconciled


def leave_compacted(lake: Lake, report: "CompactReport") -> None:
    tables = [
        TableRun(
            table=table.table,
            rows=lake.size([table.table]),
            last_manifest=table.last_manifest,
            quarantined=len(table.quarantined),
            changed_at=None if (changed_ms := lake.changed_ms(table.table)) is None else rfc3339(changed_ms),
        )
        for table in report.tables
    ]
    problems = 0 if report.archive is None else report.archive.count
    _leave(lake, "compact", CompactRun(tables=tables, problems=problems))


def leave_reconciled(lake: Lake, report: "Reconciled") -> None:
    run = ReconcileRun(
        found_at=rfc3339(report.found_ms),
        horizon_at=rfc3339(report.horizon_ms),
        findings=report.counts,
        errors=errors_in(report.counts),
        totals=report.totals,
    )
    _leave(lake, "reconcile", run)


def leave_report(lake: Lake, page: str, made_ms: int) -> None:
    _leave(lake, "report", ReportRun(made_at=rfc3339(made_ms), page=page))


def _leave(lake: Lake, job: LeavingJob, run: CompactRun | ReconcileRun | ReportRun) -> None:
    lake.files.write(f"{lake.location}/{file_of(job)}", msgspec.json.encode(run))
