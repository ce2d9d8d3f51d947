"""Reports the status of archive and lake, with the findings of the last reconciliation. Needs no Spark."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial

import msgspec

from hourwheel.retention.archive_format import check_archive
from hourwheel.times import rfc3339
from hourwheel_pipeline.jobs.reconcile import last_of
from hourwheel_pipeline.judging.integrity import ArchiveInspection, inspect
from hourwheel_pipeline.lake.data_files import files_of
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.tables import NAMESPACE, Lake
from hourwheel_pipeline.runs.failures import REPAIR


class ArchiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of an archive. ``complete_until``: the time before which everything is archived; None if no readable
    manifest names one. ``last``: the end of the last commit."""

    manifests: int
    complete_until: str | None
    last: str | None


class TableStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a table. ``behind``: the number of manifests that the table does not hold yet. ``quarantined``: the
    number of segments that could not be read."""

    table: str
    behind: int
    quarantined: int
    rows: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The status of archive and lake. ``inspection``: the problems of the archive. ``findings``: the numbers of
    findings of the last reconciliation, by kind; None before the first one. ``lake``: a sentence for each data file of
    the lake that is missing or has another size."""

    archive: ArchiveStatus
    inspection: ArchiveInspection
    tables: list[TableStatus]
    found_at: str | None
    findings: dict[str, int] | None
    lake: list[str] = []


def status_of(
    archive: str,
    lake: str,
    *,
    namespace: str = NAMESPACE,
    region: str | None = None,
    endpoint_url: str | None = None,
    deep: bool = False,
) -> Status:
    """Returns the status of an archive and a lake. Creates nothing, also if there is no lake yet. With ``deep`` also
    reads all segments of the archive. Raises ``DataVersion`` for an archive that this version must not read."""
    check_archive(blobs_at(archive, region, endpoint_url))
    inspect_archive = partial(inspect, archive, deep=deep, region=region, endpoint_url=endpoint_url)
    existing = Lake.find(lake, namespace=namespace, region=region, endpoint_url=endpoint_url)
    if existing is None:
        inspected = inspect_archive()
        tables = [TableStatus(table=name, behind=inspected.end, quarantined=0, rows=0) for name in SCHEMAS]
        return Status(archive=_archive(inspected), inspection=inspected, tables=tables, found_at=None, findings=None)
    with closing(existing) as opened:
        reconciled = last_of(opened)
        last = opened.newest_progress()
        inspected = inspect_archive(last_manifest=last.last_manifest, last_digest=last.digest)
        return Status(
            archive=_archive(inspected),
            inspection=inspected,
            tables=[_table(opened, name, inspected.end) for name in SCHEMAS],
            found_at=None if reconciled is None else rfc3339(reconciled.found_ms),
            findings=None if reconciled is None else reconciled.counts,
            lake=[sentence for name in opened.tables() for sentence in _file_faults(opened, name)],
        )


def _file_faults(lake: Lake, name: str) -> Iterator[str]:
    """Yields a sentence for each data file of a table that a listing lacks or shows with another size. Opens no data
    file."""
    files = files_of(lake.table(name).scan())
    # Listed after the table was read: a file that the table names was written before.
    sizes = {file.path: file.bytes for file in lake.files.below(f"{lake.location}/{name}/data")}
    for file in files:
        size = sizes.get(file.file_path)
        if size != file.file_size_in_bytes:
            fault = "is missing" if size is None else f"has {size} bytes and should have {file.file_size_in_bytes}"
            yield f"{file.file_path} of the lake {fault}: {REPAIR}"


def _archive(inspected: ArchiveInspection) -> ArchiveStatus:
    return ArchiveStatus(
        manifests=inspected.end,
        complete_until=rfc3339(inspected.complete_ms) if inspected.complete_ms else None,
        last=rfc3339(inspected.ended_ms) if inspected.ended_ms else None,
    )


def _table(lake: Lake, name: str, manifests: int) -> TableStatus:
    progress = lake.table_progress(name)
    return TableStatus(
        table=name,
        behind=max(0, manifests - 1 - progress.last_manifest),
        quarantined=len(progress.quarantined),
        rows=lake.size([name]),
    )
