"""Checks that the lake has each row of the archive once."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from hourwheel_pipeline.archive_rows.segment_rows import ArchiveLocation
from hourwheel_pipeline.judging.checks.coverage import Coverage
from hourwheel_pipeline.judging.checks.evidence import Evidence
from hourwheel_pipeline.judging.findings import findings
from hourwheel_pipeline.judging.lacking import Fewer, lacking_ranges
from hourwheel_pipeline.lake.schemas import DISPATCHES, MESSAGES, PULLS

_NARROWED = 1_000
"""The segments of at most this many logs and manifests are read again to name the missing rows: each costs a read."""


def row_findings(evidence: Evidence, coverage: Coverage, location: ArchiveLocation) -> Iterator[DataFrame]:
    """Yields the findings about doubled and missing rows. ``location``: that of the archive, which names the missing
    rows."""
    yield _doubled_messages(evidence)
    yield _doubled_pulls(evidence)
    yield _doubled_dispatches(evidence)
    yield _missing(evidence, coverage, location)


def _doubled_messages(evidence: Evidence) -> DataFrame:
    doubled = evidence.messages.where("copies > 1")
    return findings(doubled, "doubled_rows", at="accepted_at", detail=_times("messages"))


def _doubled_pulls(evidence: Evidence) -> DataFrame:
    doubled = evidence.pulls.where("copies > 1")
    return findings(doubled, "doubled_rows", row="pull_row", at="closed_at", detail=_times("pulls"))


def _doubled_dispatches(evidence: Evidence) -> DataFrame:
    doubled = evidence.dispatches.where("copies > 1")
    position = {"log": "bucket", "row": "dispatch_row", "index": "transfer"}
    return findings(doubled, "doubled_rows", detail=_times("dispatches"), **position)


def _missing(evidence: Evidence, coverage: Coverage, location: ArchiveLocation) -> DataFrame:
    """Returns one finding for each log, subject and manifest with missing rows. As a rule none is missing, and no
    segment is read."""
    fewer = [Fewer(*row) for row in coverage.missing.select(*Fewer._fields).limit(_NARROWED).collect()]
    if not fewer:
        return findings(coverage.missing, "missing_rows", detail=fn.lit(""))
    spark = coverage.missing.sparkSession
    present = {MESSAGES: evidence.messages, PULLS: evidence.pulls, DISPATCHES: evidence.dispatches}
    ranges = lacking_ranges(spark, location, fewer, present)
    assert ranges is not None
    named = coverage.missing.join(ranges, ["table", "log", "manifest"], "left")
    which = fn.format_string("%d in rows %d to %d", "absent", "first_row", "last_row")
    detail = fn.concat(
        fn.format_string("%s: manifest %d has %d of the log, the lake %d; ", "table", "manifest", "expected", "found"),
        fn.coalesce(
            fn.when(fn.col("absent").isNotNull(), fn.concat(fn.lit("absent: "), which)),
            fn.lit("which are absent is unknown: their segment cannot be read, or too many logs lack rows"),
        ),
        fn.lit("; hourwheel pipeline run repair restores them from the archive"),
    )
    return findings(named, "missing_rows", row="first_row", detail=detail)


def _times(table: str) -> Column:
    return fn.format_string(f"%d times in {table}", "copies")
