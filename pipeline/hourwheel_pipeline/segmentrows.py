"""Segments of the archive as a DataFrame, read by Spark's workers.

A segment that cannot be read becomes a row of its own, so that Spark keeps it exactly as often as it keeps rows: in the
partition of a subject that no subject can be called, with the segment's key, the reason, and how many rows of it had
been read when that was found out.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from hourwheel.errors import Corrupt
from hourwheel_pipeline.arrow import batches
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.reading import Work, read_segment
from hourwheel_pipeline.schemas import DISPATCHES, MESSAGES, PULLS, SCHEMAS, spark_ddl

ASIDE = "~aside"
"""The subject of rows that say what could not be read."""

_FIELDS = {
    MESSAGES: ("log", "reason", "row"),
    PULLS: ("log", "outcome", "pull_row"),
    DISPATCHES: ("bucket", "kind", "dispatch_row"),
}
"""Where such a row has the key, the reason and the number of rows."""

_TASK_BYTES = 16 << 20
_TASKS_PER_CORE = 2
_BATCH_ROWS = 8_192
_REASON_CHARACTERS = 300


class ArchivePlace(NamedTuple):
    """Where workers find the archive."""

    location: str
    region: str | None = None
    endpoint_url: str | None = None


class Unread(NamedTuple):
    """A segment that could not be read. ``rows`` of it were read all the same, and stand among the others."""

    key: str
    reason: str
    rows: int


def segment_rows(spark: SparkSession, place: ArchivePlace, table: str, works: Sequence[Work]) -> DataFrame:
    """The rows of these segments, all of the table's kind, and those of what could not be read."""
    cores = spark.sparkContext.defaultParallelism
    size = sum(work.bytes for work in works)
    tasks = _spread(works, min(len(works), max(_TASKS_PER_CORE * cores, size // _TASK_BYTES)))
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(_reader(place, table, tasks), spark_ddl(SCHEMAS[table]))


def unread_of(table: str, rows: pa.Table) -> list[Unread]:
    """What the rows of the partition ``QUARANTINED`` say."""
    columns = [rows[name].to_pylist() for name in _FIELDS[table]]
    return [Unread(*values) for values in zip(*columns, strict=True)]


def _spread(works: Sequence[Work], count: int) -> list[list[Work]]:
    """The works in so many lists, of about the same size."""
    tasks: list[list[Work]] = [[] for _ in range(count)]
    heap = [(0, task) for task in range(count)]
    for work in sorted(works, key=lambda one: one.bytes, reverse=True):
        size, task = heap[0]
        tasks[task].append(work)
        heapq.heapreplace(heap, (size + work.bytes, task))
    return tasks


def _reader(
    place: ArchivePlace, table: str, tasks: Sequence[Sequence[Work]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        works = [work for batch in numbers for task in batch.column(0).to_pylist() for work in tasks[task]]
        yield from _joined(_rows(place, table, works))

    return read


def _rows(place: ArchivePlace, table: str, works: Sequence[Work]) -> Iterator[pa.RecordBatch]:
    archive = blobs_at(*place)
    for work in works:
        rows = 0
        try:
            for batch in batches(table, read_segment(archive, work), work.manifest):
                yield batch
                rows += batch.num_rows
        except Corrupt as error:
            yield _unread_row(table, Unread(work.key, str(error)[:_REASON_CHARACTERS], rows), work.manifest)


def _unread_row(table: str, unread: Unread, manifest: int) -> pa.RecordBatch:
    given = {**dict(zip(_FIELDS[table], unread, strict=True)), "subject": ASIDE, "manifest": manifest}
    schema = SCHEMAS[table]
    arrays = [pa.array([given.get(field.name, _nothing(field))], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nothing(field: pa.Field) -> str | int | list[int] | None:
    if field.nullable:
        return None
    if pa.types.is_list(field.type):
        return []
    return "" if pa.types.is_string(field.type) else 0


def _joined(found: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches, where they are small: each costs Spark as much as hundreds of rows."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in found:
        held.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield from _one(held)
            held, rows = [], 0
    yield from _one(held)


def _one(held: Sequence[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return held if len(held) < 2 else pa.Table.from_batches(held).combine_chunks().to_batches()
