"""Reads the rows of the lake as the checks need them: each row once, and messages without keys, headers and bodies.

    messages   a message in a row                       log, row, index …, copies
    batches    a row of a queue or a retry log          log, row; messages, accepted_at, expires_at, latest_due
    pulls      a closed pull                            log, pull_row …, copies
    handed     source rows that a pull handed out       log, pull_row; source, row, low, count, kept
    moves      messages that a pull handed over         log, pull_row; source, row, index; target_log, target_row
    dispatches a message that a wheel handed over       bucket, dispatch_row …, copies

``copies`` is the number of times that the lake has the row. A row of ``handed`` stands for the messages
``[low, low + count)`` of the source row. The pull did not hand out those that are ``kept``: it released them.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel.times import HOUR_MS
from hourwheel_pipeline.lake.schemas import (
    CANCEL_MARKER,
    DISPATCHES,
    MESSAGES,
    PULLS,
    QUEUE,
    RETRY,
    SCHEDULE,
    SCHEMAS,
    spark_ddl,
)
from hourwheel_pipeline.lake.tables import Lake

MESSAGE_KEY: Final = ("log", "row", "index")
PULL_KEY: Final = ("log", "pull_row")
DISPATCH_KEY: Final = ("bucket", "dispatch_row", "transfer", "source_row", "source_index")
GROUP: Final = ("subject", "generation", "group", "group_generation")

_MESSAGE: Final = (
    *("kind", *GROUP, "queue", "sequence", "origin_queue", "origin_offset", "id", "attempt"),
    *("accepted_at", "produced_at", "due_at", "expires_at", "cancelled_row", "cancelled_index", "manifest"),
)
_PULL: Final = (
    *(*GROUP, "source", "queue", "consumer", "first_row", "first_index", "end_row", "end_index", "end_seq"),
    *("counts", "picks", "messages", "claimed_at", "lease_until", "closed_at", "outcome", "moved", "manifest"),
)
_DISPATCH: Final = (*("subject", "at", "kind", "target_log", "target_row", "target_index", "source_log", "manifest"),)


@dataclass(frozen=True)
class Evidence:
    """The frames of a run, each made on first use. Frames that many checks read stay cached until ``forget``."""

    raw_messages: DataFrame
    raw_pulls: DataFrame
    raw_dispatches: DataFrame
    _kept: list[DataFrame] = field(default_factory=list)

    def keep(self, frame: DataFrame) -> DataFrame:
        """Returns the frame, which Spark then computes once and caches until ``forget``."""
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return self._kept[-1]

    def some(self, frame: DataFrame) -> DataFrame | None:
        """Computes and caches the frame. Returns None if it is empty, as frames of suspects usually are: the caller
        then leaves out the joins that would judge them."""
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        if not kept.count():
            kept.unpersist()
            return None
        self._kept.append(kept)
        return kept

    @cached_property
    def messages(self) -> DataFrame:
        # Partitioned by row: the groupings and joins by row that follow need no further shuffle.
        rows = self.raw_messages.select(*MESSAGE_KEY, *_MESSAGE).repartition("log", "row")
        return self.keep(_once(rows, MESSAGE_KEY, _MESSAGE))

    @cached_property
    def pulls(self) -> DataFrame:
        return self.keep(_once(self.raw_pulls.select(*PULL_KEY, *_PULL), PULL_KEY, _PULL))

    @cached_property
    def dispatches(self) -> DataFrame:
        return self.keep(_once(self.raw_dispatches.select(*DISPATCH_KEY, *_DISPATCH), DISPATCH_KEY, _DISPATCH))

    @cached_property
    def batches(self) -> DataFrame:
        rows = self.messages.where(fn.col("kind").isin(QUEUE, RETRY)).groupBy("log", "row")
        return self.keep(
            rows.agg(
                fn.count("*").cast("int").alias("messages"),
                fn.min("accepted_at").alias("accepted_at"),
                fn.min("expires_at").alias("expires_at"),
                fn.max("due_at").alias("latest_due"),
            )
        )

    @cached_property
    def handed(self) -> DataFrame:
        complete = self.pulls.where(fn.col("picks").isNull()).withColumn("covered", _sum(fn.col("counts")))
        steps = complete.select("*", fn.posexplode("counts").alias("step", "count")).where("count > 0")
        row = fn.col("first_row") + fn.col("step")
        low = fn.when(fn.col("step") == 0, fn.col("first_index")).otherwise(fn.lit(0))
        # Few pulls cover more than they handed out: only these look at the rows before each row.
        before = _sum(fn.slice("counts", 1, fn.col("step")))
        kept = fn.when(fn.col("covered") > fn.col("messages"), before >= fn.col("messages")).otherwise(fn.lit(False))
        # A group with a filter is handed single messages of a row: each gets a row of its own.
        some = self.pulls.select("*", fn.explode("picks").alias("pick"), fn.lit(1).alias("count"))
        alone = _handed(some, fn.col("pick.row"), fn.col("pick.index"), fn.lit(False))
        return self.keep(_handed(steps, row, low, kept).unionByName(alone))

    @cached_property
    def moves(self) -> DataFrame:
        moves = self.pulls.select(*PULL_KEY, *GROUP, "source", "queue", fn.explode("moved").alias("move"))
        return self.keep(
            moves.select(
                *PULL_KEY,
                *GROUP,
                "source",
                "queue",
                fn.col("move.kind").alias("kind"),
                fn.col("move.log").alias("target_log"),
                fn.col("move.row").alias("target_row"),
                fn.col("move.at").alias("at"),
                fn.posexplode("move.picks").alias("place", "pick"),
            )
            .withColumn("row", fn.col("pick.row"))
            .withColumn("index", fn.col("pick.index"))
            .drop("pick")
        )

    @property
    def planned(self) -> DataFrame:
        """Returns the messages of schedule logs."""
        return self.messages.where(fn.col("kind") == SCHEDULE)

    @property
    def cancel_markers(self) -> DataFrame:
        """Returns one row for each cancelled message: ``log``, ``row``, ``index``, and ``cancelled_at``."""
        cancelled = self.messages.where(fn.col("kind") == CANCEL_MARKER)
        at = fn.min("accepted_at").alias("cancelled_at")
        return cancelled.groupBy(
            "log", fn.col("cancelled_row").alias("row"), fn.col("cancelled_index").alias("index")
        ).agg(at)

    def forget(self) -> None:
        """Frees the cached frames."""
        for frame in self._kept:
            frame.unpersist()


def evidence_of(
    spark: SparkSession,
    lake: Lake,
    last_manifest: Mapping[str, int],
    since: date | None = None,
    subjects: Collection[str] | None = None,
) -> Evidence:
    """Returns the rows that each table has of the manifests up to its ``last_manifest``.

    With ``since``, only rows stored from that day on, and messages due from then on. With ``subjects``, only rows of
    these subjects, and rows that name no subject."""
    wanted = None if subjects is None else {*subjects, ""}
    frames = {name: _table(spark, lake, name, number, since, wanted) for name, number in last_manifest.items()}
    messages = frames[MESSAGES]
    if since is not None and last_manifest[MESSAGES] >= 0:
        # A message that is due only now may have been accepted two years ago.
        waiting = lake.read(spark, MESSAGES, until=since, subjects=wanted).where(
            fn.col("manifest") <= last_manifest[MESSAGES]
        )
        messages = messages.unionByName(waiting.where(scheduled_since(fn.col("log"), start_ms(since))))
    return Evidence(messages, frames[PULLS], frames[DISPATCHES])


def _handed(steps: DataFrame, row: Column, low: Column, kept: Column) -> DataFrame:
    columns = (*PULL_KEY, *GROUP, "source", "queue", row.alias("row"), low.alias("low"), "count")
    return steps.select(*columns, "claimed_at", "closed_at", kept.alias("kept"))


def _sum(counts: Column) -> Column:
    return fn.aggregate(counts, fn.lit(0), lambda total, count: total + count)


def _table(
    spark: SparkSession,
    lake: Lake,
    name: str,
    last_manifest: int,
    since: date | None,
    subjects: Collection[str] | None,
) -> DataFrame:
    if last_manifest < 0:
        return spark.createDataFrame([], spark_ddl(SCHEMAS[name]))
    # Another job may have added manifests since the progress of the table was read.
    return lake.read(spark, name, since=since, subjects=subjects).where(fn.col("manifest") <= last_manifest)


def start_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1_000


def scheduled_since(log: Column, since_ms: int) -> Column:
    """Returns the condition that the log is the schedule log of a bucket that was not over at that time."""
    first = f"{SCHEDULE_PREFIX}{max(0, since_ms - HOUR_MS):013d}"
    return log.startswith(SCHEDULE_PREFIX) & (log >= first)


def _once(frame: DataFrame, key: tuple[str, ...], columns: tuple[str, ...]) -> DataFrame:
    # Of a doubled row the first manifest counts: a run that judges only changes counts the row as an old one.
    values = (fn.min(name) if name == "manifest" else fn.first(name) for name in columns)
    named = (value.alias(name) for name, value in zip(columns, values, strict=True))
    return frame.groupBy(*key).agg(fn.count("*").alias("copies"), *named)


def holds(low: Column | str, count: Column | str, index: Column | str) -> Column:
    """Returns the condition that the index is in ``[low, low + count)``, so that the pull handed out that message."""
    low, count, index = (fn.col(value) if isinstance(value, str) else value for value in (low, count, index))
    return (index >= low) & (index < low + count)
