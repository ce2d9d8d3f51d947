"""Puts the report of a job into a sentence for people; ``--json`` prints the whole report.

The sentence is chosen by the name of the report's type, so that the jobs ``archive`` and ``rebuild`` import no Spark.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hourwheel.times import rfc3339
from hourwheel_pipeline.runs.words import counted, found_words

if TYPE_CHECKING:
    from hourwheel.archive.archiver import Archived
    from hourwheel.archive.rebuild_records import Rebuilt
    from hourwheel.model.traces import TracePage
    from hourwheel_pipeline.jobs.compact import CompactReport
    from hourwheel_pipeline.jobs.maintain import MaintainReport
    from hourwheel_pipeline.jobs.metrics import Measured
    from hourwheel_pipeline.jobs.repair import RepairReport
    from hourwheel_pipeline.jobs.replay import ReplayReport
    from hourwheel_pipeline.jobs.report import Reported
    from hourwheel_pipeline.judging.reconciliation import Reconciled


def summary_of(report: Any) -> str:
    """Returns a sentence without a full stop; the report as JSON if there is no sentence for its type."""
    sentence = _SENTENCES.get(type(report).__name__)
    return msgspec.json.encode(report).decode() if sentence is None else sentence(report)


def _archived(report: "Archived") -> str:
    took = f"{counted(report.rows, 'row')} with {counted(report.messages, 'message')} archived"
    worse = [f"{counted(report.unreadable_rows, 'row')} damaged"] * bool(report.unreadable_rows)
    worse += [f"{counted(report.missing_rows, 'row')} removed before"] * bool(report.missing_rows)
    return ", ".join([took, *worse, "complete" if report.complete else "not complete: run it again"])


def _rebuilt(report: "Rebuilt") -> str:
    what = (
        (report.subjects, "subject"),
        (report.groups, "group"),
        (report.rows, "row"),
        (report.messages, "message"),
    )
    brought = (
        f"{', '.join(counted(number, noun) for number, noun in what)} from {counted(report.manifests, 'manifest')}"
    )
    lost, segments = len(report.lost_manifests), len(report.unreadable_segments)
    left_out = [f"without {counted(lost, 'manifest')} and {counted(report.lost_rows, 'row')} of them"] * bool(lost)
    left_out += [f"without {counted(segments, 'segment')}"] * bool(segments)
    return ", ".join([brought, *left_out])


def _compacted(report: "CompactReport") -> str:
    segments, files = (sum(getattr(table, name) for table in report.tables) for name in ("segments", "files"))
    quarantined = sum(len(table.quarantined) for table in report.tables)
    worse = f", {counted(quarantined, 'segment')} quarantined" if quarantined else ""
    if not segments:
        return f"nothing new{worse}"
    return f"{counted(segments, 'segment')} taken into {counted(files, 'file')}{worse}"


def _reconciled(report: "Reconciled") -> str:
    rows = counted(sum(report.rows.values()), "row")
    until = f", stored before {rfc3339(report.horizon_ms)}" if report.horizon_ms else ""
    return f"{found_words(report.counts)} in {rows}{until}"


def _measured(report: "Measured") -> str:
    return f"{counted(report.rows, 'row')} of metrics added" if report.rows else "nothing new"


def _reported(report: "Reported") -> str:
    return f"{counted(report.subjects, 'subject')} in {report.page}"


def _maintained(report: "MaintainReport") -> str:
    merged, into, expired, removed = (
        sum(getattr(table, name) for table in report.tables)
        for name in ("merged", "merged_into", "snapshots_expired", "files_removed")
    )
    did = [f"{counted(merged, 'file')} merged into {into}"] * bool(merged)
    did += [f"{counted(expired, 'snapshot')} expired"] * bool(expired)
    did += [f"{counted(removed, 'unnamed file')} removed"] * bool(removed)
    return ", ".join(did) or "nothing to do"


def _repaired(report: "RepairReport") -> str:
    files = sum(len(table.removed) for table in report.tables)
    rows = sum(table.rows for table in report.tables)
    if report.archive is None:
        checked = ""
    else:
        checked = f"{counted(report.archive.segments, 'segment')} and {counted(report.files, 'data file')} checked: "
    did = [f"{counted(files, 'damaged data file')} removed"] * bool(files)
    did += [f"{counted(rows, 'row')} restored from the archive"] * bool(rows)
    left = report.unrepaired
    did += [f"{counted(left, 'object')} that only a copy of the archive can bring back"] * bool(left)
    return checked + (", ".join(did) or "nothing to repair")


def _replayed(report: "ReplayReport") -> str:
    done = f"{report.sent} sent now, {report.before} before, {report.found} were there"
    return f"{counted(report.messages, 'message')} of {counted(report.bytes, 'byte')}: {done}"


def _traced(report: "TracePage") -> str:
    more = "" if report.next is None else f", and more: --after {report.next}"
    return f"{counted(len(report.messages), 'message')}{more}"


_SENTENCES: Final[Mapping[str, Callable[[Any], str]]] = {
    "Archived": _archived,
    "Rebuilt": _rebuilt,
    "CompactReport": _compacted,
    "Reconciled": _reconciled,
    "Measured": _measured,
    "Reported": _reported,
    "MaintainReport": _maintained,
    "RepairReport": _repaired,
    "ReplayReport": _replayed,
    "TracePage": _traced,
}
