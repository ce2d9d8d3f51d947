"""Defines the report of ``reconcile``: the findings, and what could not be judged."""

import msgspec

from hourwheel_pipeline.judging.integrity import ArchiveInspection
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, as ``findings.py`` describes it. Times are Unix milliseconds."""

    kind: str
    severity: str
    subject: str | None
    group: str | None
    queue: int | None
    log: str
    row: int | None
    index: int | None
    id: str | None
    at_ms: int | None
    first_seen_ms: int
    detail: str


class UnknownRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows ``[start, end)`` of a log whose content is partly unknown, and the reason."""

    log: str
    start: int
    end: int
    why: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the archive that could not be judged: quarantined segments, ranges of rows, unreadable snapshots of
    the registry. ``segments`` and ``ranges`` count all; the lists have at most ``listed`` of each."""

    segments: int
    quarantined: list[QuarantinedSegment]
    ranges: int
    rows: list[UnknownRows]
    snapshots: list[str]


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``reconcile`` about rows stored from ``began_ms`` on, before ``horizon_ms`` (Unix milliseconds).

    ``counts`` are the findings by kind, ``totals`` the messages that were accepted, delivered (acknowledged, once for
    each group) and given up. ``new_errors`` counts the findings that are no warnings and that no run had before.
    ``expired`` counts the messages that expired before their group came to them, by subject and group. ``archive`` says
    whether the archive is complete. ``listed_ms`` is the ``found_at`` of the findings in the table; 0 stands for
    ``found_ms``. A run that has nothing new to judge adds none.

    Example:
        >>> options = reconcile.ReconcileOptions(archive="orders-data/archive", lake="orders-data/lake")
        >>> reconcile.run(spark, options, now_ms).new_errors
        0
    """

    found_ms: int
    began_ms: int
    horizon_ms: int
    last_manifest: dict[str, int]
    rows: dict[str, int]
    counts: dict[str, int]
    totals: dict[str, int] = {}
    new_errors: int = 0
    expired: dict[str, int]
    unknown: Unknown
    archive: ArchiveInspection | None = None
    listed_ms: int = 0
    findings: list[Finding] = []
