"""The rows of the archive that the lake lacks: which these are, read from the segments that have them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from hourwheel.ports import Blobs
from hourwheel.retention.manifests import read
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.reading import Work
from hourwheel_pipeline.schemas import DISPATCHES, MESSAGES, PULLS
from hourwheel_pipeline.segmentrows import QUARANTINED, ArchivePlace, segment_rows

IDENTITY: Final[Mapping[str, tuple[str, ...]]] = {
    MESSAGES: ("log", "row", "index"),
    PULLS: ("log", "pull_row"),
    DISPATCHES: ("bucket", "dispatch_row", "transfer", "source_row", "source_index"),
}
"""What tells the rows of a table apart. The first column names the log."""


class Fewer(NamedTuple):
    """The table has fewer rows of the log than the manifest brought."""

    table: str
    log: str
    manifest: int


def lacking(
    spark: SparkSession, place: ArchivePlace, table: str, fewer: Iterable[Fewer], present: DataFrame
) -> DataFrame:
    """The archived rows of these logs that are not ``present``, as the table would have them, and a row for each
    segment that cannot be read, in the partition ``QUARANTINED``. ``present``: at least the columns of the identity."""
    logs: dict[int, set[str]] = {}
    for one in fewer:
        if one.table == table:
            logs.setdefault(one.manifest, set()).add(one.log)
    works = list(_works(blobs_at(*place), table, logs))
    key = list(IDENTITY[table])
    wanted = sorted({log for some in logs.values() for log in some})
    archived = segment_rows(spark, place, table, works) if works else present.limit(0)
    unread = fn.col("subject").eqNullSafe(QUARANTINED)
    absent = archived.where(~unread & fn.col(key[0]).isin(wanted)).join(present.select(*key), key, "left_anti")
    return absent.select(*archived.columns).unionByName(archived.where(unread))


def lacking_ranges(
    spark: SparkSession, place: ArchivePlace, fewer: Sequence[Fewer], present: Mapping[str, DataFrame]
) -> DataFrame | None:
    """Of each log and manifest the rows that are not present: ``table``, ``log``, ``manifest``, ``subject``,
    ``first_row``, ``last_row``, ``absent``. None where there are none, or no segment with them can be read."""
    found: DataFrame | None = None
    for table in dict.fromkeys(one.table for one in fewer):
        log, row = IDENTITY[table][:2]
        rows = lacking(spark, place, table, fewer, present[table]).where(~fn.col("subject").eqNullSafe(QUARANTINED))
        ranges = rows.groupBy(fn.lit(table).alias("table"), fn.col(log).alias("log"), "manifest", "subject").agg(
            fn.min(row).alias("first_row"), fn.max(row).alias("last_row"), fn.count("*").alias("absent")
        )
        found = ranges if found is None else found.unionByName(ranges)
    return found


def _works(archive: Blobs, table: str, logs: Mapping[int, set[str]]) -> Iterator[Work]:
    """The segments that have rows of the logs."""
    for number in sorted(logs):
        manifest = read(archive, number)
        for segment in manifest.segments if manifest is not None else ():
            if segment.kind == table and any(part.log in logs[number] for part in segment.parts):
                yield Work.of(number, segment)
