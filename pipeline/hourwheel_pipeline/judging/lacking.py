"""Finds the rows of the archive that the lake lacks, by reading the segments that have them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from hourwheel.ports.storage import Blobs
from hourwheel.retention.chain import read
from hourwheel_pipeline.archive_rows.reading import Work
from hourwheel_pipeline.archive_rows.segment_rows import QUARANTINED, ArchiveLocation, segment_rows
from hourwheel_pipeline.lake.locations import blobs_at
from hourwheel_pipeline.lake.schemas import DISPATCHES, MESSAGES, PULLS

IDENTITY: Final[Mapping[str, tuple[str, ...]]] = {
    MESSAGES: ("log", "row", "index"),
    PULLS: ("log", "pull_row"),
    DISPATCHES: ("bucket", "dispatch_row", "transfer", "source_row", "source_index"),
}
"""The columns that identify a row of a table. The first one names the log."""


class Fewer(NamedTuple):
    """A log and manifest of which the table has fewer rows than the manifest brought."""

    table: str
    log: str
    manifest: int


def lacking(
    spark: SparkSession, location: ArchiveLocation, table: str, fewer: Iterable[Fewer], present: DataFrame
) -> DataFrame:
    """Returns the archived rows of these logs that are not ``present``, with the columns of the table, and a row for
    each segment that cannot be read, of the subject ``QUARANTINED``. ``present`` needs only the columns of
    ``IDENTITY``."""
    logs: dict[int, set[str]] = {}
    for lack in fewer:
        if lack.table == table:
            logs.setdefault(lack.manifest, set()).add(lack.log)
    works = list(_works(blobs_at(*location), table, logs))
    key = list(IDENTITY[table])
    names = sorted({log for some in logs.values() for log in some})
    archived = segment_rows(spark, location, table, works) if works else present.limit(0)
    unread = fn.col("subject").eqNullSafe(QUARANTINED)
    absent = archived.where(~unread & fn.col(key[0]).isin(names)).join(present.select(*key), key, "left_anti")
    return absent.select(*archived.columns).unionByName(archived.where(unread))


def lacking_ranges(
    spark: SparkSession, location: ArchiveLocation, fewer: Sequence[Fewer], present: Mapping[str, DataFrame]
) -> DataFrame | None:
    """Returns for each log and manifest the range of rows that are not present: ``table``, ``log``, ``manifest``,
    ``subject``, ``first_row``, ``last_row``, ``absent``. Returns None if ``fewer`` is empty."""
    all_ranges: DataFrame | None = None
    for table in dict.fromkeys(lack.table for lack in fewer):
        log, row = IDENTITY[table][:2]
        rows = lacking(spark, location, table, fewer, present[table]).where(~fn.col("subject").eqNullSafe(QUARANTINED))
        ranges = rows.groupBy(fn.lit(table).alias("table"), fn.col(log).alias("log"), "manifest", "subject").agg(
            fn.min(row).alias("first_row"), fn.max(row).alias("last_row"), fn.count("*").alias("absent")
        )
        all_ranges = ranges if all_ranges is None else all_ranges.unionByName(ranges)
    return all_ranges


def _works(archive: Blobs, table: str, logs: Mapping[int, set[str]]) -> Iterator[Work]:
    """Yields the segments that have rows of the logs."""
    for number in sorted(logs):
        manifest = read(archive, number)
        for segment in manifest.segments if manifest is not None else ():
            if segment.kind == table and any(part.log in logs[number] for part in segment.parts):
                yield Work.of(number, segment)
