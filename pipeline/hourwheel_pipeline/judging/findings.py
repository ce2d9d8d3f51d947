"""Defines findings: the kind of an error, the position of the message concerned, and the details.

A check yields ``COLUMNS``; those that do not apply are null. ``log``, ``row`` and ``index`` name the position at which
the message is or should be; ``at`` is the time of the error. The table ``findings`` has all findings of each run: those
of one run have the same ``found_at``. ``first_seen`` is the ``found_at`` of the first run with that finding.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from hourwheel_pipeline.lake.schemas import TIMESTAMP

Severity: TypeAlias = Literal["error", "warning"]


class Kind(NamedTuple):
    """A kind of finding. ``error``: an invariant of the queue is broken. ``warning``: the queue is slow or late."""

    severity: Severity
    says: str


KINDS: Final = {
    "missing_rows": Kind("error", "The lake lacks rows that the archive says it has."),
    "doubled_rows": Kind("error", "A row is in the lake more than once."),
    "lost": Kind("error", "A group passed a message and was never handed it."),
    "skipped": Kind("error", "A group passed a message without being handed it then; another pull handed it out."),
    "phantom": Kind("error", "A pull or a dispatch names a message that its source does not hold."),
    "doubled_delivery": Kind("error", "A group was handed a message again without a retry or a seek."),
    "settled_redelivered": Kind("error", "A group got a message again that it had acknowledged."),
    "lost_handover": Kind("error", "A message was handed over to another log, which lacks it."),
    "doubled_handover": Kind(
        "error", "A message went to a group's retry or dead log more often than it was sent there."
    ),
    "orphaned_copy": Kind("error", "A log has a message, and no record explains how it got there."),
    "over_attempts": Kind("error", "A message is tried more often than its group allows."),
    "lost_dispatch": Kind("error", "A delayed message was handed over, and its target lacks it."),
    "doubled_dispatch": Kind("error", "A delayed message was handed over more than once."),
    "cancelled_dispatched": Kind("error", "A delayed message was handed over long after it was cancelled or moved."),
    "stuck": Kind("error", "A delayed message is overdue and was neither handed over nor cancelled."),
    "early": Kind("error", "A delayed message was handed over or handed out before its time."),
    "late": Kind("warning", "A delayed message was handed over late."),
    "stuck_pull": Kind("warning", "A pull was closed long after its lease had ended."),
}


def errors_in(counts: Mapping[str, int]) -> int:
    """Returns the number of findings that are errors, from counts by kind."""
    return sum(count for kind, count in counts.items() if KINDS[kind].severity == "error")


_TYPES: Final = {
    "kind": "string",
    "subject": "string",
    "group": "string",
    "queue": "int",
    "log": "string",
    "row": "bigint",
    "index": "int",
    "id": "string",
    "at": "timestamp",
    "detail": "string",
}
COLUMNS: Final = tuple(_TYPES)
DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in _TYPES.items())
"""The columns in Spark's notation."""

_TEXT, _INT, _LONG = pa.string(), pa.int32(), pa.int64()

TABLE = "findings"
SCHEMA: Final = pa.schema(
    [
        pa.field("day", pa.date32(), nullable=False),
        pa.field("found_at", TIMESTAMP, nullable=False),
        pa.field("first_seen", TIMESTAMP, nullable=False),
        pa.field("kind", _TEXT, nullable=False),
        pa.field("severity", _TEXT, nullable=False),
        pa.field("subject", _TEXT),
        pa.field("group", _TEXT),
        pa.field("queue", _INT),
        pa.field("log", _TEXT, nullable=False),
        pa.field("row", _LONG),
        pa.field("index", _INT),
        pa.field("id", _TEXT),
        pa.field("at", TIMESTAMP),
        pa.field("detail", _TEXT, nullable=False),
    ]
)
"""The table; ``day`` is the day of ``found_at``."""

_SAME = ("kind", "log", "row", "index", "group")
"""Findings of two runs with equal values in these columns count as one finding, which was first seen by the earlier
run."""


def found_at(at_ms: int) -> str:
    """Returns the Iceberg condition that selects the findings of the run at ``at_ms``."""
    return f"found_at = '{datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec='milliseconds')}'"


def findings(frame: DataFrame, kind: str | Column, *, detail: Column, **columns: Column | str) -> DataFrame:
    """Returns the rows of the frame as findings. Columns that ``columns`` does not name are taken from the frame, or
    are null if the frame lacks them."""
    values: dict[str, Column | str] = {
        "kind": fn.lit(kind) if isinstance(kind, str) else kind,
        "detail": detail,
        **columns,
    }

    def column(name: str, form: str) -> Column:
        value = values.get(name, name if name in frame.columns else fn.lit(None))
        return (fn.col(value) if isinstance(value, str) else value).cast(form).alias(name)

    return frame.select(*(column(name, form) for name, form in _TYPES.items()))


def position_text(log: Column | str, row: Column | str, index: Column | str | None = None) -> Column:
    """Returns a position in words, such as ``row 3 index 0 of orders~1/0``."""
    parts: list[Column] = [fn.lit("row"), _column(row).cast("string")]
    if index is not None:
        parts += [fn.lit("index"), _column(index).cast("string")]
    return fn.concat_ws(" ", *parts, fn.lit("of"), _column(log))


def _column(value: Column | str) -> Column:
    return fn.col(value) if isinstance(value, str) else value


def dated(findings: DataFrame, earlier: DataFrame | None, now: Column) -> DataFrame:
    """Returns findings as rows of the table. ``earlier``: the findings of all runs before; None for the first run."""
    severity = fn.create_map(*(fn.lit(text) for name, kind in KINDS.items() for text in (name, kind.severity)))
    if earlier is None:
        with_first = findings.withColumn("seen", fn.lit(None).cast("timestamp"))
    else:
        seen = earlier.groupBy(*(fn.col(name).alias(f"seen_{name}") for name in _SAME))
        # A column that does not apply is null in both.
        same = [fn.col(name).eqNullSafe(fn.col(f"seen_{name}")) for name in _SAME]
        with_first = findings.join(seen.agg(fn.min("first_seen").alias("seen")), same, "left")
    return with_first.select(
        fn.to_date(now).alias("day"),
        now.alias("found_at"),
        fn.coalesce("seen", now).alias("first_seen"),
        "kind",
        severity[fn.col("kind")].alias("severity"),
        *(name for name in COLUMNS if name != "kind"),
    )
