"""Reads the manifests of the archive and its snapshots of the registry as tables.

    claim      about                         start, end          messages      at
    span       a log                         its rows
    part       a log in a segment            its rows there      their number  the earliest row of the segment
    unreadable a row without its messages    the row             their number
    removed    rows that were removed        the removed rows
    began      the manifest                                                    the time at which it was begun
    complete   the manifest                                                    the time before which all is archived

Workers read the manifests: there may be more of them than fit into the driver.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from hourwheel.archive.blocks import RegistrySnapshot
from hourwheel.archive.reading import registry_snapshots
from hourwheel.errors import Corrupt
from hourwheel.model.groups import Group
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.open_logs import group_parts
from hourwheel.retention.chain import LinkedManifest, chain
from hourwheel.retention.kinds import MESSAGES, REGISTRY
from hourwheel.retention.manifests import Manifest
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.schemas import TIMESTAMP, spark_ddl

_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()

_PART = pa.struct(
    [pa.field("log", _TEXT), pa.field("queue", _INT), pa.field("start", _LONG), pa.field("origin", _LONG)]
)

CLAIMS = pa.schema(
    [
        pa.field("claim", _TEXT, nullable=False),
        pa.field("manifest", _LONG, nullable=False),
        pa.field("table", _TEXT),
        pa.field("log", _TEXT),
        pa.field("start", _LONG),
        pa.field("end", _LONG),
        pa.field("messages", _LONG),
        pa.field("key", _TEXT),
        pa.field("at", TIMESTAMP),
        pa.field("detail", _TEXT),
    ]
)

GROUPS = pa.schema(
    [
        pa.field("manifest", _LONG, nullable=False),
        pa.field("at", TIMESTAMP),
        pa.field("subject", _TEXT),
        pa.field("generation", _INT),
        pa.field("group", _TEXT),
        pa.field("group_generation", _INT),
        pa.field("alive", pa.bool_()),
        pa.field("max_attempts", _INT),
        pa.field("created_at", TIMESTAMP),
        pa.field("parts", pa.list_(_PART)),
        pa.field("detail", _TEXT),
    ]
)
"""``parts``: the logs of the subject's queues that were not expired ``at`` the time of the snapshot. Each has the
offset at which the log starts in its queue, and the row at which the group begins there. A row without a group is a
snapshot that cannot be read; ``detail`` gives the reason."""

Reader: TypeAlias = Callable[[Blobs, Manifest], Iterator[dict[str, Any]]]

# Rows that a worker holds before it hands them to Spark.
_BATCH = 20_000
# Tasks for each core: manifests differ in size, so that one task for each core would leave cores without work.
_TASKS = 4


class Archive(NamedTuple):
    """The location from which workers open the archive. ``last_manifest``: the last one that counts; -1 for none.
    ``first_manifest``: the first one to read."""

    location: str
    last_manifest: int
    region: str | None = None
    endpoint_url: str | None = None
    first_manifest: int = 0


def claims(spark: SparkSession, archive: Archive) -> DataFrame:
    """Returns the claims of the manifests, one in each row, with the columns of the table above."""
    return _each(spark, archive, CLAIMS, _claims_of)


def groups(spark: SparkSession, archive: Archive) -> DataFrame:
    """Returns the groups in the snapshots of the registry: one row for each group in each snapshot."""
    return _each(spark, archive, GROUPS, _groups_of)


def _each(spark: SparkSession, archive: Archive, schema: pa.Schema, rows_of: Reader) -> DataFrame:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs = blobs_at(archive.location, archive.region, archive.endpoint_url)
        rows: list[dict[str, Any]] = []
        for batch in batches:
            for manifest in _readable(blobs, batch.column(0).to_pylist()):
                rows += rows_of(blobs, manifest)
                if len(rows) >= _BATCH:
                    yield pa.RecordBatch.from_pylist(rows, schema=schema)
                    rows = []
        yield pa.RecordBatch.from_pylist(rows, schema=schema)

    first, end = archive.first_manifest, archive.last_manifest + 1
    tasks = max(1, min(end - first, _TASKS * spark.sparkContext.defaultParallelism))
    return spark.range(first, end, 1, tasks).mapInArrow(read, spark_ddl(schema))


def _readable(blobs: Blobs, numbers: Sequence[int]) -> Iterator[Manifest]:
    """Yields the manifests with these consecutive numbers, without those that are missing or cannot be read, which the
    inspection of the archive reports."""
    if not numbers:
        return
    for link in chain(blobs, numbers[0], numbers[-1] + 1):
        if isinstance(link, LinkedManifest):
            yield link.manifest


def _claims_of(_: Blobs, manifest: Manifest) -> Iterator[dict[str, Any]]:
    number = manifest.number
    yield {"claim": "began", "manifest": number, "at": _micros(manifest.began_ms)}
    if manifest.complete_ms:
        yield {"claim": "complete", "manifest": number, "at": _micros(manifest.complete_ms)}
    for span in manifest.spans:
        yield _rows("span", number, span.log, span.start, span.end) | {"table": span.kind}
    for segment in manifest.segments:
        common = {"table": segment.kind, "key": segment.key, "at": _micros(segment.earliest_ms)}
        for part in segment.parts:
            yield _rows("part", number, part.log, part.start, part.end) | {"messages": part.messages} | common
    for damage in manifest.unreadable:
        unread = {"table": MESSAGES, "messages": damage.messages, "detail": damage.error}
        yield _rows("unreadable", number, damage.log, damage.row_no, damage.row_no + 1) | unread
    for removed in manifest.missing:
        yield _rows("removed", number, removed.log, removed.start, removed.end)


def _rows(claim: str, manifest: int, log: str, start: int, end: int) -> dict[str, Any]:
    return {"claim": claim, "manifest": manifest, "log": log, "start": start, "end": end}


def _groups_of(blobs: Blobs, manifest: Manifest) -> Iterator[dict[str, Any]]:
    for segment in manifest.segments:
        if segment.kind != REGISTRY:
            continue
        try:
            snapshots = list(registry_snapshots(blobs, segment))
        except Corrupt as error:
            yield {"manifest": manifest.number, "detail": str(error)}
            continue
        for snapshot in snapshots:
            yield from _members(manifest, snapshot)


def _members(manifest: Manifest, snapshot: RegistrySnapshot) -> Iterator[dict[str, Any]]:
    owners = {subject.name: subject for subject in snapshot.subjects}
    for group in snapshot.groups:
        owner = owners.get(group.subject)
        owned = owner is not None and owner.generation == group.subject_generation
        current = owner is not None and owned and not owner.deleted
        yield {
            "manifest": manifest.number,
            "at": _micros(manifest.began_ms),
            "subject": group.subject,
            "generation": group.subject_generation,
            "group": group.name,
            "group_generation": group.generation,
            "alive": current and not group.deleted,
            "max_attempts": group.max_attempts,
            "created_at": _micros(group.created_ms),
            "parts": _parts(owner, group) if owner is not None and owned else [],
        }


def _parts(subject: Subject, group: Group) -> list[dict[str, Any]]:
    return [
        {"log": log, "queue": queue, "start": mapping.start, "origin": origin}
        for queue in range(subject.queues)
        for mapping, log, origin in group_parts(subject, group, queue)
    ]


def _micros(ms: int) -> int:
    return ms * 1_000
