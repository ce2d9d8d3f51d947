"""Defines the files in which the jobs of the pipeline record their last runs beside the lake, for the server to show.

{lake}/last-runs/{job}.json      compact, reconcile, report
"""

from typing import Literal, TypeAlias

from msgspec import Struct

FOLDER = "last-runs"
REPORT = "report/report.html"
"""The path of the report below the lake, unless the job is told to write elsewhere."""

LeavingJob: TypeAlias = Literal["compact", "reconcile", "report"]


class TableRun(Struct, frozen=True, kw_only=True):
    """A table of the lake after ``compact``: the last manifest that it holds (-1: none), and the segments of the
    archive that could not be read."""

    table: str
    rows: int
    last_manifest: int
    quarantined: int
    changed_at: str | None


class CompactRun(Struct, frozen=True, kw_only=True):
    """The lake after ``compact``. ``problems`` counts the objects that the archive lacks or that are damaged."""

    tables: list[TableRun]
    problems: int


class ReconcileRun(Struct, frozen=True, kw_only=True):
    """The result of ``reconcile`` for the messages that were stored before ``horizon_at``: the number of findings of
    each kind, and in ``totals`` the numbers of accepted, delivered and dead messages. ``errors`` counts the findings
    that are no warnings."""

    found_at: str
    horizon_at: str
    findings: dict[str, int]
    errors: int
    totals: dict[str, int]


class ReportRun(Struct, frozen=True, kw_only=True):
    """The ``page`` that ``report`` wrote: its path below the lake, or else where it is."""

    made_at: str
    page: str


def file_of(job: LeavingJob) -> str:
    """Returns the path of the file of a job, below the lake."""
    return f"{FOLDER}/{job}.json"
