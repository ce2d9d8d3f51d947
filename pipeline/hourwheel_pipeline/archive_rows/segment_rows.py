"""Reads segments of the archive as a DataFrame, by Spark's workers.

A segment that cannot be read becomes a row of its own: if Spark repeats a task, it keeps or drops this row together
with the rows of the task. The subject of the row is no valid name (``QUARANTINED``), and it is written into a folder of
its own (``UNREAD``). It has the key of the segment, the reason, and the number of rows that were read before the
damage was found.

A file for each attempt would not do: storage may answer the second attempt, and the file of the first one would name a
segment as quarantined whose rows the table has.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from hourwheel.archive.reading import read_segment
from hourwheel.errors import Corrupt
from hourwheel_pipeline.archive_rows.arrow import batches
from hourwheel_pipeline.archive_rows.reading import Work
from hourwheel_pipeline.archive_rows.workers import forget_zip_finders
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.schemas import DISPATCHES, MESSAGES, PULLS, SCHEMAS, spark_ddl

QUARANTINED = "~quarantined"
"""The subject of the rows that name unreadable segments."""

UNREAD = {"_unread": f"subject <=> '{QUARANTINED}'"}
"""The folder of these rows, for ``write``."""

_FIELDS = {
    MESSAGES: ("log", "reason", "row"),
    PULLS: ("log", "outcome", "pull_row"),
    DISPATCHES: ("bucket", "kind", "dispatch_row"),
}
"""The columns in which such a row has the key, the reason and the number of rows."""

# Spark repeats a failed task: that costs about this much reading.
_TASK_BYTES = 16 << 20
# Two, so that a core whose task ends early has another one. All cores have equally many: a task left over would keep
# the others waiting.
_TASKS_PER_CORE = 2
# Each batch costs Spark as much as hundreds of rows.
_BATCH_ROWS = 8_192
# The reason is kept in the properties of the table, which every commit repeats.
_REASON_CHARACTERS = 300


class ArchiveLocation(NamedTuple):
    """The location from which workers open the archive."""

    location: str
    region: str | None = None
    endpoint_url: str | None = None


class Unread(NamedTuple):
    """A segment that could not be read. ``rows``: the number of its rows that were read before the damage was found,
    and that the frame contains."""

    key: str
    reason: str
    rows: int


def segment_rows(spark: SparkSession, location: ArchiveLocation, table: str, works: Sequence[Work]) -> DataFrame:
    """Returns the rows of these segments, which are all of the table's kind, and one row for each segment that cannot
    be read."""
    cores = spark.sparkContext.defaultParallelism
    size = sum(work.bytes for work in works)
    rounds = max(_TASKS_PER_CORE, ceil(size / (_TASK_BYTES * cores)))
    tasks = _spread(works, min(len(works), rounds * cores))
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    return numbers.mapInArrow(_reader(location, table, tasks), spark_ddl(SCHEMAS[table]))


def of_unread(path: str) -> bool:
    """Returns whether a file has rows that name unreadable segments, and no others."""
    return "/_unread=true/" in path


def unread_of(table: str, rows: pa.Table) -> list[Unread]:
    """Returns the segments that the rows of such a file name."""
    columns = [rows[name].to_pylist() for name in _FIELDS[table]]
    return [Unread(*values) for values in zip(*columns, strict=True)]


def _spread(works: Sequence[Work], count: int) -> list[list[Work]]:
    """Divides the works into ``count`` lists of about equal size."""
    tasks: list[list[Work]] = [[] for _ in range(count)]
    heap = [(0, task) for task in range(count)]
    # The largest first, so that the small ones even out the sizes.
    for work in sorted(works, key=lambda work: work.bytes, reverse=True):
        size, task = heap[0]
        tasks[task].append(work)
        heapq.heapreplace(heap, (size + work.bytes, task))
    return tasks


def _reader(
    location: ArchiveLocation, table: str, tasks: Sequence[Sequence[Work]]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_zip_finders()
        works = [work for batch in numbers for task in batch.column(0).to_pylist() for work in tasks[task]]
        yield from _joined(_rows(location, table, works))

    return read


def _rows(location: ArchiveLocation, table: str, works: Sequence[Work]) -> Iterator[pa.RecordBatch]:
    archive = blobs_at(*location)
    for work in works:
        rows = 0
        try:
            for batch in batches(table, read_segment(archive, work), work.manifest):
                yield batch
                rows += batch.num_rows
        except Corrupt as error:
            yield _unread_row(table, Unread(work.key, str(error)[:_REASON_CHARACTERS], rows), work.manifest)


def _unread_row(table: str, unread: Unread, manifest: int) -> pa.RecordBatch:
    fields = {**dict(zip(_FIELDS[table], unread, strict=True)), "subject": QUARANTINED, "manifest": manifest}
    schema = SCHEMAS[table]
    arrays = [pa.array([fields.get(field.name, _nothing(field))], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _nothing(field: pa.Field) -> str | int | list[int] | None:
    if field.nullable:
        return None
    if pa.types.is_list(field.type):
        return []
    return "" if pa.types.is_string(field.type) else 0


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Joins small batches until they have ``_BATCH_ROWS`` rows."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        small.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield from _combined(small)
            small, rows = [], 0
    yield from _combined(small)


def _combined(small: Sequence[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return small if len(small) < 2 else pa.Table.from_batches(small).combine_chunks().to_batches()
