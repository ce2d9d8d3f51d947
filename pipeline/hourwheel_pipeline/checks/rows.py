"""Whether the lake has each row that the archive has, once."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from hourwheel_pipeline.checks.evidence import Evidence
from hourwheel_pipeline.checks.known import Known
from hourwheel_pipeline.findings import findings


def row_findings(evidence: Evidence, known: Known) -> Iterator[DataFrame]:
    yield _doubled_messages(evidence)
    yield _doubled_pulls(evidence)
    yield _doubled_dispatches(evidence)
    yield _missing(known)


def _doubled_messages(evidence: Evidence) -> DataFrame:
    doubled = evidence.messages.where("copies > 1")
    return findings(doubled, "doubled_rows", at="accepted_at", detail=_times("messages"))


def _doubled_pulls(evidence: Evidence) -> DataFrame:
    doubled = evidence.pulls.where("copies > 1")
    return findings(doubled, "doubled_rows", row="pull_row", at="closed_at", detail=_times("pulls"))


def _doubled_dispatches(evidence: Evidence) -> DataFrame:
    doubled = evidence.dispatches.where("copies > 1")
    place = {"log": "bucket", "row": "dispatch_row", "index": "transfer"}
    return findings(doubled, "doubled_rows", detail=_times("dispatches"), **place)


def _missing(known: Known) -> DataFrame:
    detail = fn.format_string(
        "%s: manifest %d names %d rows of the log, the lake has %d", "table", "manifest", "expected", "found"
    )
    return findings(known.missing, "missing_rows", detail=detail)


def _times(table: str) -> Column:
    return fn.format_string(f"%d times in {table}", "copies")
