"""How far archive and lake are, and what was found last. Without Spark."""

from contextlib import closing

import msgspec

from hourwheel.archive.manifests import PREFIX, Manifest, read
from hourwheel.errors import NotFound
from hourwheel.ports import Blobs
from hourwheel.times import rfc3339
from hourwheel_pipeline.findings import TABLE
from hourwheel_pipeline.lake import NAMESPACE, Lake
from hourwheel_pipeline.places import blobs_at
from hourwheel_pipeline.reconcile import NOTE, Reconciled
from hourwheel_pipeline.schemas import SCHEMAS


class ArchiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``complete_until``: all that was stored before is archived; None where that was never so. ``last``: end of the
    last commit."""

    manifests: int
    complete_until: str | None
    last: str | None


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """``behind``: manifests that the table does not hold yet. ``set_aside``: segments that could not be read."""

    table: str
    behind: int
    set_aside: int
    rows: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """``findings`` of the last reconciliation, by kind; None before the first."""

    archive: ArchiveStatus
    tables: list[TableStatus]
    found_at: str | None
    findings: dict[str, int] | None


def status_of(
    archive: str,
    lake: str,
    *,
    namespace: str = NAMESPACE,
    region: str | None = None,
    endpoint_url: str | None = None,
) -> Status:
    """Makes nothing, also where there is no lake yet."""
    blobs = blobs_at(archive, region, endpoint_url)
    manifests = len(blobs.list(PREFIX))
    found = Lake.find(lake, namespace=namespace, region=region, endpoint_url=endpoint_url)
    if found is None:
        tables = [TableStatus(table=name, behind=manifests, set_aside=0, rows=0) for name in SCHEMAS]
        return Status(archive=_archive(blobs, manifests), tables=tables, found_at=None, findings=None)
    with closing(found) as opened:
        reconciled = _reconciled(opened)
        return Status(
            archive=_archive(blobs, manifests),
            tables=[_table(opened, name, manifests) for name in SCHEMAS],
            found_at=None if reconciled is None else rfc3339(reconciled.found_ms),
            findings=None if reconciled is None else reconciled.counts,
        )


def _archive(blobs: Blobs, manifests: int) -> ArchiveStatus:
    last = read(blobs, manifests - 1) if manifests else None
    complete: Manifest | None = last
    while complete is not None and not complete.complete_ms:
        complete = read(blobs, complete.number - 1) if complete.number else None
    return ArchiveStatus(
        manifests=manifests,
        complete_until=None if complete is None else rfc3339(complete.complete_ms),
        last=None if last is None else rfc3339(last.ended_ms),
    )


def _table(lake: Lake, name: str, manifests: int) -> TableStatus:
    holding = lake.holding(name)
    return TableStatus(
        table=name,
        behind=max(0, manifests - 1 - holding.through),
        set_aside=len(holding.aside),
        rows=_rows(lake, name),
    )


def _rows(lake: Lake, name: str) -> int:
    try:
        snapshot = lake.table(name).current_snapshot()
    except NotFound:
        return 0
    summary = None if snapshot is None else snapshot.summary
    return 0 if summary is None else int(summary.additional_properties.get("total-records", "0"))


def _reconciled(lake: Lake) -> Reconciled | None:
    try:
        note = lake.notes(TABLE).get(NOTE)
    except NotFound:
        return None
    return None if note is None else msgspec.json.decode(note, type=Reconciled)
