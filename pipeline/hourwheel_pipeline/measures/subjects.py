"""What subjects take in, and how their delayed messages come."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel.archive.segments import HOUR_MS
from hourwheel_pipeline.checks.evidence import MESSAGE_KEY, Evidence
from hourwheel_pipeline.measures.hours import hour, milliseconds, percentiles
from hourwheel_pipeline.schemas import QUEUE


def accepted(messages: DataFrame, step_ms: int = HOUR_MS) -> DataFrame:
    """Messages that came into the queues. ``messages``: the lake's."""
    counted = messages.where(fn.col("kind") == QUEUE).groupBy(hour("accepted_at", step_ms), "subject")
    return counted.agg(fn.count("*").alias("accepted"), fn.sum("size").alias("accepted_bytes"))


def hot_keys(messages: DataFrame, most: int) -> DataFrame:
    """The keys with the most messages."""
    keyed = messages.where((fn.col("kind") == QUEUE) & fn.col("key").isNotNull())
    counted = keyed.groupBy(hour("accepted_at"), "subject", "key").agg(fn.count("*").alias("messages"))
    nth = fn.row_number().over(Window.partitionBy("hour", "subject").orderBy(fn.desc("messages"), "key"))
    first = counted.withColumn("nth", nth).where(fn.col("nth") <= most)
    listed = fn.array_sort(fn.collect_list(fn.struct("nth", "key", "messages")))
    keys = fn.transform(listed, lambda one: fn.struct(one["key"].alias("key"), one["messages"].alias("messages")))
    return first.groupBy("hour", "subject").agg(keys.alias("hot_keys"))


def scheduled(evidence: Evidence, step_ms: int = HOUR_MS) -> DataFrame:
    """Messages that were sent to be delivered later; one that is moved counts once."""
    first = evidence.planned.where(fn.col("group").isNull() & fn.col("produced_at").isNull())
    return first.groupBy(hour("accepted_at", step_ms), "subject").agg(fn.count("*").alias("scheduled"))


def dispatched(evidence: Evidence, step_ms: int = HOUR_MS) -> DataFrame:
    """Delayed messages that came, and how late. A message that came too late for its time is due at once."""
    handed = _placed(evidence.dispatches.where("kind = 'due'")).groupBy(*MESSAGE_KEY).agg(fn.max("at").alias("at"))
    late = handed.join(evidence.planned, list(MESSAGE_KEY))
    lateness = milliseconds(fn.greatest("due_at", "accepted_at"), "at")
    return late.groupBy(hour("at", step_ms), "subject").agg(
        fn.count("*").alias("dispatched"), *percentiles("late", lateness, fn.lit(1))
    )


def due(evidence: Evidence, horizon: Column) -> DataFrame:
    """Delayed messages that are still to come, by the hour in which they are due."""
    left = evidence.planned.where(fn.col("group").isNull() & (fn.col("due_at") >= horizon))
    left = left.join(_placed(evidence.dispatches).select(*MESSAGE_KEY), list(MESSAGE_KEY), "left_anti")
    left = left.join(evidence.cancel_markers, list(MESSAGE_KEY), "left_anti")
    return left.groupBy(hour("due_at"), "subject").agg(fn.count("*").alias("due"))


def _placed(dispatches: DataFrame) -> DataFrame:
    """Dispatches by the place of their message in its schedule log."""
    return dispatches.select(*(fn.col(f"source_{name}").alias(name) for name in MESSAGE_KEY), "at")
