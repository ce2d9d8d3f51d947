"""Counts the messages that groups pull and settle, and measures the time that this takes."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.checks.evidence import Evidence, holds
from hourwheel_pipeline.lake.schemas import QUEUE
from hourwheel_pipeline.measures.hours import hour, milliseconds, percentiles
from hourwheel_pipeline.measures.log_ends import PULLED, STORED

_GROUP = ("subject", "group")
_DEAD = ("attempts", "rejected")


def deliveries(evidence: Evidence) -> DataFrame:
    """Returns the messages that pulls handed out. Each row stands for ``messages`` messages that were accepted at
    ``born``; ``fresh`` of them were handed out for the first time, ``acked`` were acknowledged. For a delayed message
    ``born`` is the time at which it came to its queue; in a retry log it is the due time."""
    columns = (*_GROUP, "messages", "fresh", "acked", "born", "attempt", "claimed_at", "closed_at")
    return _from_queues(evidence).select(*columns).unionByName(_from_retries(evidence).select(*columns))


def delivered(deliveries: DataFrame, step_ms: int = HOUR_MS) -> DataFrame:
    total = fn.sum("messages")
    return deliveries.groupBy(hour("claimed_at", step_ms), *_GROUP).agg(
        total.alias("delivered"),
        (fn.sum(fn.col("attempt") * fn.col("messages")) / total).alias("attempts_mean"),
        fn.max("attempt").alias("attempts_max"),
        *percentiles("pull", milliseconds("born", "claimed_at"), fn.col("fresh")),
    )


def settled(deliveries: DataFrame, step_ms: int = HOUR_MS) -> DataFrame:
    acked = fn.col("acked")
    return deliveries.groupBy(hour("closed_at", step_ms), *_GROUP).agg(
        fn.sum(acked).alias("settled"),
        *percentiles("settle", milliseconds("claimed_at", "closed_at"), acked),
        *percentiles("total", milliseconds("born", "closed_at"), acked),
    )


def moved(evidence: Evidence, step_ms: int = HOUR_MS) -> DataFrame:
    def count(*kinds: str) -> Column:
        return fn.count_if(fn.col("kind").isin(*kinds))

    return evidence.moves.groupBy(hour("at", step_ms), *_GROUP).agg(
        count("retry").alias("retried"), count("released").alias("released"), count(*_DEAD).alias("dead")
    )


def lag(
    ends: DataFrame, begun: DataFrame, horizon: Column, step_ms: int = HOUR_MS, since_ms: int | None = None
) -> DataFrame:
    """Returns the number of messages that each group has not pulled at the end of each hour. ``ends``: those of the
    logs (``log_ends.py``). ``begun``: the pull logs of the groups. A group that is not deleted counts from the hour in
    which it was created, up to the hour of the horizon; with ``since_ms``, from that hour on. Of successive hours
    without lag the result has the first one only."""
    if since_ms is not None:
        ends = _from_hour(ends, since_ms)
    timed = ends.select("kind", "log", fn.timestamp_millis("hour_ms").alias("hour"), "offset")
    stored = timed.where(fn.col("kind") == STORED).select(
        fn.col("log").alias("source"), "hour", fn.col("offset").alias("end")
    )
    reached = timed.where(fn.col("kind") == PULLED).select("log", "hour", fn.col("offset").alias("reached"))
    first = stored.groupBy("source").agg(fn.min("hour").alias("first_hour"))
    length = fn.make_dt_interval(secs=fn.lit(step_ms / 1_000))
    hours = fn.sequence("first_hour", fn.greatest("first_hour", hour(horizon, step_ms)), length)
    grid = begun.join(first, "source").withColumn("hour", fn.explode(hours))
    grid = grid.join(stored, ["source", "hour"], "left").join(reached, ["log", "hour"], "left")
    so_far = Window.partitionBy("log").orderBy("hour")
    # A pull that passed rows without messages at the start of a part knows no offset yet.
    last_reached = fn.last("reached", True).over(so_far)
    next_offset = fn.when(last_reached.isNotNull(), fn.greatest(last_reached, "start")).otherwise(fn.col("origin"))
    waiting = fn.last("end", True).over(so_far) - next_offset
    waiting = fn.when(fn.col("gone").isNull() | (fn.col("hour") < fn.col("gone")), waiting)
    behind = grid.withColumn("waiting", fn.greatest(waiting, fn.lit(0))).where(fn.col("hour") >= fn.col("made"))
    total = behind.groupBy("hour", *_GROUP).agg(fn.sum("waiting").alias("lag"))
    before = fn.lag("lag").over(Window.partitionBy(*_GROUP).orderBy("hour"))
    return total.withColumn("before", before).where("lag > 0 or before > 0 or before is null").drop("before")


def _from_hour(ends: DataFrame, since_ms: int) -> DataFrame:
    """Returns the ends with the newest end of each log up to the hour ``since_ms`` in place of all up to then."""
    hour_ms = fn.greatest("hour_ms", fn.lit(since_ms))
    by_hour = ends.groupBy("kind", "log", hour_ms.alias("hour_ms"))
    return by_hour.agg(fn.max_by("offset", ends["hour_ms"]).alias("offset"))


def pull_logs(groups: DataFrame, step_ms: int = HOUR_MS) -> DataFrame:
    """Returns the pull logs of groups on the parts of queues. ``start``: the offset at which the part starts.
    ``origin_row``: the row at which the group begins. ``gone``: the hour in which the part left the queue."""
    parts = groups.where("alive").select(
        *_GROUP,
        hour("created_at", step_ms).alias("made"),
        fn.concat_ws("~", "group", "group_generation").alias("member"),
        fn.explode("parts").alias("part"),
    )
    return parts.select(
        *_GROUP,
        "made",
        fn.concat_ws("@", "member", "part.log").alias("log"),
        fn.col("part.log").alias("source"),
        "part.start",
        fn.col("part.origin").alias("origin_row"),
        hour("part.gone_at", step_ms).alias("gone"),
    )


def origins(pull_logs: DataFrame, messages: DataFrame) -> DataFrame:
    """Returns the offsets at which groups begin that do not begin with a part's first row, as ``log`` and ``origin``,
    by the messages before the row at which they begin."""
    later = pull_logs.where("origin_row > 0").select("log", "source", "origin_row")
    rows = messages.where(fn.col("kind") == QUEUE).select(fn.col("log").alias("source"), "row", "sequence")
    before = later.join(rows, "source").where(fn.col("row") < fn.col("origin_row"))
    return before.groupBy("log").agg((fn.max("sequence") + 1).alias("origin"))


def begun(pull_logs: DataFrame, origins: DataFrame) -> DataFrame:
    """Returns the pull logs with the offset ``origin`` at which the group begins."""
    known = pull_logs.join(origins, "log", "left").withColumn("origin", fn.coalesce("origin", "start"))
    return known.select(*_GROUP, "log", "source", "made", "start", "origin", "gone")


def _from_queues(evidence: Evidence) -> DataFrame:
    """Returns the deliveries from queues, by row: all messages of a row were accepted at one time."""
    end = fn.col("low") + fn.col("count")
    # Messages below the end of an earlier pull were handed out before, and are not fresh.
    earlier = Window.partitionBy("log", "row").orderBy("pull_row").rowsBetween(Window.unboundedPreceding, -1)
    before = fn.coalesce(fn.max(end).over(earlier), fn.lit(0))
    # Messages that a pull kept and released are handed out by pulls of the retry log.
    handed = evidence.handed.where("queue is not null and not kept")
    handed = handed.withColumn("fresh", fn.greatest(end - fn.greatest("low", before), fn.lit(0)))
    away = evidence.moves.groupBy("log", "pull_row", "row").agg(fn.count("*").alias("away"))
    rows = evidence.batches.select(fn.col("log").alias("source"), "row", fn.col("accepted_at").alias("born"))
    deliveries = handed.join(rows, ["source", "row"]).join(away, ["log", "pull_row", "row"], "left")
    return deliveries.select(
        "*",
        fn.col("count").alias("messages"),
        (fn.col("count") - fn.coalesce("away", fn.lit(0))).alias("acked"),
        fn.lit(1).alias("attempt"),
    )


def _from_retries(evidence: Evidence) -> DataFrame:
    """Returns the deliveries from retry logs, by message: each message has a history of its own."""
    born = fn.coalesce("due_at", "produced_at", "accepted_at")
    copies = evidence.messages.select(fn.col("log").alias("source"), "row", "index", "attempt", born.alias("born"))
    away = evidence.moves.select("log", "pull_row", "row", "index", fn.lit(1).alias("away"))
    handed = evidence.handed.where("queue is null").join(copies, ["source", "row"])
    handed = handed.where(holds("low", "count", "index")).join(away, ["log", "pull_row", "row", "index"], "left")
    return handed.select(
        "*",
        fn.lit(1).alias("messages"),
        fn.lit(0).alias("fresh"),
        (1 - fn.coalesce("away", fn.lit(0))).alias("acked"),
    )
