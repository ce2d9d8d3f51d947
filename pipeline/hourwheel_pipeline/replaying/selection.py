"""Selects the messages of a replay in the order of sending: each log in its order, and the logs merged by time."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel.client import Message
from hourwheel.errors import Rejected
from hourwheel_pipeline.lake.schemas import DEAD, QUEUE, RETRY
from hourwheel_pipeline.replaying.options import Selection

_PARTITION_BYTES = 32 << 20  # a partition is collected to the driver as a whole
_MEMBER = ("subject", "generation", "group", "group_generation")
_ORIGIN = ("origin_queue", "origin_offset")


class ReplayPosition(NamedTuple):
    """The position of a message in the order. ``item``: its index in the row. ``at_us``: the latest time of its log up
    to the message, so that a clock that is behind does not change the order of the log."""

    at_us: int
    log: str
    row: int
    item: int


class Replayed(NamedTuple):
    """A message to send, without its new id, and the id that it had."""

    position: ReplayPosition
    id: str | None
    message: Message


class Totals(NamedTuple):
    """Totals of a selection. ``days``: the messages by the day on which they were accepted, or died. ``headers``: the
    largest number of headers of a message."""

    messages: int
    bytes: int
    days: Mapping[str, int]
    headers: int


def selected(rows: DataFrame, selection: Selection, last_manifest: int) -> DataFrame:
    """Returns the selected rows of the table ``messages``, from manifests up to ``last_manifest``. Raises ``Rejected``
    if ``where`` is no condition."""
    rows = rows.where((fn.col("subject") == selection.subject) & (fn.col("manifest") <= last_manifest))
    if selection.dead_of is None:
        chosen = rows.where(fn.col("kind") == QUEUE)
    else:
        of_group = rows.where(fn.col("group") == selection.dead_of)
        chosen = _not_redriven(of_group.where(fn.col("kind") == DEAD), of_group.where(fn.col("kind") == RETRY))
    for condition in _conditions(selection):
        chosen = chosen.where(condition)
    if selection.where is None:
        return chosen
    try:
        return chosen.where(selection.where)
    except (ParseException, AnalysisException) as error:
        first = str(error).strip().split("\n\n")[0].split("\n")[0]
        raise Rejected("condition-wrong", f"where is no condition on messages: {first}", field="where") from None


def totals_of(chosen: DataFrame) -> Totals:
    days = (
        chosen.groupBy(fn.col("day").cast("string").alias("day"))
        .agg(
            fn.count("*").alias("messages"),
            fn.sum("size").alias("bytes"),
            fn.max(fn.coalesce(fn.size("headers"), fn.lit(0))).alias("headers"),
        )
        .orderBy("day")
        .collect()
    )
    return Totals(
        sum(day.messages for day in days),
        sum(day.bytes for day in days),
        {day.day: day.messages for day in days},
        max((day.headers for day in days), default=0),
    )


def in_order(chosen: DataFrame, totals: Totals, after: ReplayPosition | None) -> Iterator[Replayed]:
    """Yields the messages after a position. The driver keeps one partition at a time, of about 32 MB."""
    log = Window.partitionBy("log").orderBy("row", "index")
    positioned = chosen.select(
        fn.max(fn.unix_micros("accepted_at")).over(log).alias("at_us"),
        fn.col("index").alias("item"),
        *("log", "row", "id", "key", "tags", "headers", "body", "body_bytes"),
    )
    if after is not None:
        positioned = positioned.where(fn.struct(*ReplayPosition._fields) > _literal(after))
    parts = 1 + totals.bytes // _PARTITION_BYTES
    ranges = positioned.repartitionByRange(parts, *ReplayPosition._fields)
    ordered = ranges.sortWithinPartitions(*ReplayPosition._fields)
    return (_replayed(row.asDict()) for row in ordered.toLocalIterator())


def _conditions(selection: Selection) -> Iterator[Column]:
    if selection.since is not None:
        yield fn.col("accepted_at") >= fn.lit(selection.since)
    if selection.until is not None:
        yield fn.col("accepted_at") < fn.lit(selection.until)
    if selection.keys:
        yield fn.col("key").isin(*selection.keys)
    if selection.tags:
        yield fn.arrays_overlap("tags", fn.array(*map(fn.lit, selection.tags)))


def _not_redriven(dead: DataFrame, retries: DataFrame) -> DataFrame:
    """Returns the dead letters that were not redriven, dropped ones included. A redriven dead letter has a first
    attempt in the retry log that is later than its death."""
    redriven = retries.where(fn.col("attempt") == 1).select(*_MEMBER, *_ORIGIN, fn.col("accepted_at").alias("again_at"))
    same = [dead[name] == redriven[name] for name in (*_MEMBER, *_ORIGIN)]
    return dead.join(redriven, [*same, redriven["again_at"] >= dead["accepted_at"]], "left_anti")


def _literal(position: ReplayPosition) -> Column:
    row = fn.lit(position.row).cast("bigint")
    return fn.struct(fn.lit(position.at_us).cast("bigint"), fn.lit(position.log), row, fn.lit(position.item))


def _replayed(row: Mapping[str, Any]) -> Replayed:
    text, data = row["body"], row["body_bytes"]
    message = Message(
        text if text is not None else bytes(data or b""), key=row["key"], tags=row["tags"], headers=row["headers"]
    )
    return Replayed(ReplayPosition(row["at_us"], row["log"], row["row"], row["item"]), row["id"], message)
