"""Counts the messages that subjects accept, and measures the lateness of their delayed messages."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.checks.evidence import MESSAGE_KEY, Evidence
from hourwheel_pipeline.lake.schemas import QUEUE
from hourwheel_pipeline.measures.hours import hour, milliseconds, percentiles


def accepted(messages: DataFrame, step_ms: int = HOUR_MS) -> DataFrame:
    """Counts the messages that came into the queues, and their bytes. ``messages``: rows of the table of the lake."""
    counted = messages.where(fn.col("kind") == QUEUE).groupBy(hour("accepted_at", step_ms), "subject")
    return counted.agg(fn.count("*").alias("accepted"), fn.sum("size").alias("accepted_bytes"))


def hot_keys(messages: DataFrame, most: int) -> DataFrame:
    """Returns for each hour and subject the keys with the most messages, at most ``most`` keys, the largest number
    first."""
    keyed = messages.where((fn.col("kind") == QUEUE) & fn.col("key").isNotNull())
    counted = keyed.groupBy(hour("accepted_at"), "subject", "key").agg(fn.count("*").alias("messages"))
    nth = fn.row_number().over(Window.partitionBy("hour", "subject").orderBy(fn.desc("messages"), "key"))
    first = counted.withColumn("nth", nth).where(fn.col("nth") <= most)
    listed = fn.array_sort(fn.collect_list(fn.struct("nth", "key", "messages")))
    keys = fn.transform(listed, lambda key: fn.struct(key["key"].alias("key"), key["messages"].alias("messages")))
    return first.groupBy("hour", "subject").agg(keys.alias("hot_keys"))


def scheduled(evidence: Evidence, step_ms: int = HOUR_MS) -> DataFrame:
    """Counts the messages that were sent with a delay. A message that was moved to another time counts once."""
    first = evidence.planned.where(fn.col("group").isNull() & fn.col("produced_at").isNull())
    return first.groupBy(hour("accepted_at", step_ms), "subject").agg(fn.count("*").alias("scheduled"))


def dispatched(evidence: Evidence, step_ms: int = HOUR_MS) -> DataFrame:
    """Counts the delayed messages that were handed over to their queues, and measures their lateness. A message that
    was sent after its due time is due when it is sent."""
    handed_over = _by_position(evidence.dispatches.where("kind = 'due'"))
    last = handed_over.groupBy(*MESSAGE_KEY).agg(fn.max("at").alias("at"))
    late = last.join(evidence.planned, list(MESSAGE_KEY))
    lateness = milliseconds(fn.greatest("due_at", "accepted_at"), "at")
    return late.groupBy(hour("at", step_ms), "subject").agg(
        fn.count("*").alias("dispatched"), *percentiles("late", lateness, fn.lit(1))
    )


def due(evidence: Evidence, horizon: Column) -> DataFrame:
    """Counts the delayed messages that wait, by the hour in which they are due."""
    waiting = evidence.planned.where(fn.col("group").isNull() & (fn.col("due_at") >= horizon))
    waiting = waiting.join(_by_position(evidence.dispatches).select(*MESSAGE_KEY), list(MESSAGE_KEY), "left_anti")
    waiting = waiting.join(evidence.cancel_markers, list(MESSAGE_KEY), "left_anti")
    return waiting.groupBy(hour("due_at"), "subject").agg(fn.count("*").alias("due"))


def _by_position(dispatches: DataFrame) -> DataFrame:
    """Returns the times of hand-overs, by the position of the message in its schedule log."""
    return dispatches.select(*(fn.col(f"source_{name}").alias(name) for name in MESSAGE_KEY), "at")
