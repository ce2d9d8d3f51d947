"""Decides by the reports of jobs with which exit status a command ends."""

from collections.abc import Collection, Iterable
from typing import Any

from hourwheel_pipeline.jobs.compact import CompactReport
from hourwheel_pipeline.jobs.repair import RepairReport
from hourwheel_pipeline.jobs.status import Status
from hourwheel_pipeline.judging.findings import errors_in
from hourwheel_pipeline.judging.integrity import ArchiveInspection
from hourwheel_pipeline.judging.reconciliation import Reconciled
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment
from hourwheel_pipeline.runs.exits import DAMAGE, FINDINGS, FINE
from hourwheel_pipeline.runs.words import counted


def of_reports(reports: Iterable[Any]) -> int:
    """Returns the exit status of a command with these reports."""
    listed = list(reports)
    if any(damage_in(report) for report in listed):
        return DAMAGE
    return FINDINGS if any(_findings_in(report) for report in listed) else FINE


def failed(status: int) -> int:
    """Returns the exit status for a caller that knows only success and failure: 0 for a job that did its work."""
    return FINE if status in (FINDINGS, DAMAGE) else status


def damage_in(report: Any) -> list[str]:
    """Returns a sentence for each object that is damaged and was not repaired."""
    if isinstance(report, CompactReport):
        quarantined = [segment for table in report.tables for segment in table.quarantined]
        return [*_quarantined(quarantined), *_problems(report.archive, quarantined)]
    if isinstance(report, Reconciled):
        quarantined = report.unknown.quarantined
        return [*_quarantined(quarantined), *report.unknown.snapshots, *_problems(report.archive, quarantined)]
    if isinstance(report, RepairReport):
        lost = [reason for table in report.tables for reason in table.lost]
        named = {reason.partition(":")[0] for reason in lost}
        return [*lost, *_quarantined(report.quarantined), *_problems(report.archive, report.quarantined, named)]
    if isinstance(report, Status):
        counts = [
            f"{counted(table.quarantined, 'segment')} of {table.table} quarantined: run reconcile to have them named"
            for table in report.tables
            if table.quarantined
        ]
        return [*counts, *_problems(report.inspection), *report.lake]
    return []


def _findings_in(report: Any) -> int:
    if isinstance(report, Reconciled):
        return errors_in(report.counts)
    return errors_in(report.findings or {}) if isinstance(report, Status) else 0


def _quarantined(segments: Iterable[QuarantinedSegment]) -> list[str]:
    return [
        f"{segment.key} is quarantined ({segment.reason}): put it back from a copy, then run compact with --again"
        for segment in segments
    ]


def _problems(
    inspected: ArchiveInspection | None,
    quarantined: Iterable[QuarantinedSegment] = (),
    named: Collection[str] = frozenset(),
) -> list[str]:
    """Returns the problems of the archive, without the objects that were named already."""
    if inspected is None:
        return []
    keys = {segment.key for segment in quarantined}.union(named)
    more = inspected.count - len(inspected.problems)
    rest = [f"and {counted(more, 'more problem')} of the archive"] if more else []
    return [*(problem.says for problem in inspected.problems if problem.key not in keys), *rest]
