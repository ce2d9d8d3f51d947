"""Checks that the targets have the messages that pulls handed over, and that each copy in them was handed over.

A copy and its message share the position at which the message was first accepted (``origin_queue``,
``origin_offset``). The ``n``-th message of such a position that was handed over to a row is compared with the ``n``-th
copy in that row.
"""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel_pipeline.archive_rows.names import PULL_LOG, PULL_LOG_PARTS
from hourwheel_pipeline.judging.checks.coverage import MARGIN_MS, Coverage, moment, span
from hourwheel_pipeline.judging.checks.evidence import GROUP, MESSAGE_KEY, PULL_KEY, Evidence, holds
from hourwheel_pipeline.judging.findings import findings, position_text
from hourwheel_pipeline.lake.schemas import DEAD, QUEUE, RETRY, SCHEDULE

_ORIGIN = ("origin_queue", "origin_offset")
_TARGET = ("target_log", "target_row", *_ORIGIN, "nth")


def handover_findings(evidence: Evidence, coverage: Coverage, *, skew_ms: int) -> Iterator[DataFrame | None]:
    """Yields the findings about hand-overs by pulls. ``skew_ms``: how far clocks may differ."""
    sent, copies = evidence.keep(_sent(evidence)), evidence.keep(_copies(evidence))
    yield _lost(coverage, sent, copies, skew_ms)
    unexplained = evidence.some(_unexplained(evidence, coverage, sent, copies, skew_ms))
    if unexplained is not None:
        yield _unexplained_findings(evidence, copies, unexplained)
    yield _over_attempts(evidence, coverage)


def _sent(evidence: Evidence) -> DataFrame:
    """Returns the messages that pulls handed over, each with the position at which it was first accepted; null where
    the source is unknown."""
    source = evidence.messages.select(
        fn.col("log").alias("source"), "row", "index", *_ORIGIN, "id", fn.col("expires_at").alias("kept_until")
    )
    sent = evidence.moves.join(source, ["source", "row", "index"], "left")
    nth = fn.row_number().over(Window.partitionBy("target_log", "target_row", *_ORIGIN).orderBy("place"))
    return sent.withColumn("nth", nth)


def _copies(evidence: Evidence) -> DataFrame:
    kinds = fn.col("kind").isin(RETRY, DEAD) | ((fn.col("kind") == SCHEDULE) & fn.col("group").isNotNull())
    nth = fn.row_number().over(Window.partitionBy("log", "row", *_ORIGIN).orderBy("index"))
    return evidence.messages.where(kinds).withColumn("nth", nth)


def _lost(coverage: Coverage, sent: DataFrame, copies: DataFrame, skew_ms: int) -> DataFrame:
    there = copies.select(fn.col("log").alias("target_log"), fn.col("row").alias("target_row"), *_ORIGIN, "nth")
    # A message that expired before its hand-over may have been removed.
    alive = fn.col("kept_until").isNull() | (fn.col("kept_until") > fn.col("at") + span(skew_ms))
    absent = sent.where(fn.col("origin_offset").isNotNull() & alive).join(there, list(_TARGET), "left_anti")
    lost = coverage.rows(absent, "target_log", "target_row")
    detail = fn.concat(
        fn.format_string("handed over (%s) by ", "kind"),
        position_text("log", "pull_row"),
        fn.lit(" to "),
        position_text("target_log", "target_row"),
        fn.lit(", which lacks it"),
    )
    return findings(lost, "lost_handover", log="source", detail=detail)


def _unexplained(evidence: Evidence, coverage: Coverage, sent: DataFrame, copies: DataFrame, skew_ms: int) -> DataFrame:
    """Returns the copies that nothing explains: neither a pull, nor a wheel, nor a redrive from the dead log."""
    named = sent.select(fn.col("target_log").alias("log"), fn.col("target_row").alias("row"), *_ORIGIN, "nth")
    unread = sent.where(fn.col("origin_offset").isNull())
    unread = unread.select(fn.col("target_log").alias("log"), fn.col("target_row").alias("row"))
    not_by_pulls = copies.join(named, ["log", "row", *_ORIGIN, "nth"], "left_anti").join(
        unread, ["log", "row"], "left_anti"
    )
    by_wheels = evidence.dispatches.where("kind = 'again'").select(
        fn.col("target_log").alias("log"), fn.col("target_row").alias("row"), fn.col("target_index").alias("index")
    )
    unexplained = not_by_pulls.join(by_wheels, list(MESSAGE_KEY), "left_anti").select(
        *MESSAGE_KEY, *GROUP, *_ORIGIN, "kind", "id", "attempt", "accepted_at"
    )
    explicable = _not_moved(evidence, copies, _explicable(coverage, unexplained, skew_ms))
    return _not_redriven(evidence, coverage, explicable, skew_ms)


def _not_moved(evidence: Evidence, copies: DataFrame, unexplained: DataFrame) -> DataFrame:
    """Returns the copies without those that somebody has moved to another time. Each move cancels the message and
    stores a copy: the ``n``-th one of an attempt in schedule logs needs ``n`` cancelled ones."""
    attempt = (*GROUP, *_ORIGIN, "attempt")
    cancelled = copies.where(fn.col("kind") == SCHEDULE).join(evidence.cancel_markers, list(MESSAGE_KEY))
    moves = cancelled.groupBy(*attempt).agg(fn.count("*").alias("moves"))
    nth = fn.row_number().over(Window.partitionBy("kind", *attempt).orderBy("accepted_at", *MESSAGE_KEY))
    counted = unexplained.withColumn("nth", nth).join(moves, list(attempt), "left")
    is_moved = (fn.col("kind") == SCHEDULE) & (fn.col("nth") <= fn.coalesce("moves", fn.lit(0)))
    return counted.where(~is_moved).drop("nth", "moves")


def _unexplained_findings(evidence: Evidence, copies: DataFrame, unexplained: DataFrame) -> DataFrame:
    """Returns the unexplained copies as findings, each of the kind for a doubled copy, for a copy of an acknowledged
    message, or for any other."""
    twins = copies.join(unexplained.select(*MESSAGE_KEY), list(MESSAGE_KEY), "left_anti")
    twins = twins.select("kind", *GROUP, *_ORIGIN, "attempt", fn.lit(True).alias("twin")).distinct()
    marked = unexplained.join(twins, ["kind", *GROUP, *_ORIGIN, "attempt"], "left")
    marked = marked.join(_acknowledged(evidence, unexplained), list(MESSAGE_KEY), "left")
    kind = (
        fn.when(fn.col("twin"), fn.lit("doubled_handover"))
        .when(fn.col("acked"), fn.lit("settled_redelivered"))
        .otherwise(fn.lit("orphaned_copy"))
    )
    detail = fn.format_string(
        "attempt %d of offset %d of queue %d, explained by nothing", "attempt", "origin_offset", "origin_queue"
    )
    return findings(marked, kind, at="accepted_at", queue="origin_queue", detail=detail)


def _explicable(coverage: Coverage, copies: DataFrame, skew_ms: int) -> DataFrame:
    """Returns the copies that can be judged: the archive has every record that may explain them. A pull may stay open
    for a day, and is not archived until it is closed."""
    since, until = moment(coverage.began_ms + skew_ms), moment(coverage.horizon_ms - MARGIN_MS)
    alive = coverage.groups.where("alive").select(*GROUP)
    recent = copies.where((fn.col("accepted_at") >= since) & (fn.col("accepted_at") < until))
    sure = recent.join(alive, list(GROUP)).join(_doubted_groups(coverage), list(GROUP), "left_anti")
    return coverage.undisputed(sure)


def _doubted_groups(coverage: Coverage) -> DataFrame:
    """Returns the groups with rows in doubt in their pull logs."""
    pulls = coverage.doubted.where(fn.col("log").contains("@"))
    members = pulls.select(
        *(fn.regexp_extract("log", PULL_LOG, part).alias(column) for column, part in PULL_LOG_PARTS.items())
    )
    return members.select(*GROUP).distinct()


def _not_redriven(evidence: Evidence, coverage: Coverage, copies: DataFrame, skew_ms: int) -> DataFrame:
    """Returns the copies without redriven dead letters: first attempts in a retry log of messages that were dead
    letters before. The ``n``-th redrive of a message needs ``n`` deaths before it."""
    first = (fn.col("kind") == RETRY) & (fn.col("attempt") == 1)
    dead = evidence.messages.where(fn.col("kind") == DEAD).groupBy(*GROUP, *_ORIGIN)
    deaths = dead.agg(fn.collect_list("accepted_at").alias("deaths"))
    nth = fn.row_number().over(Window.partitionBy(*GROUP, *_ORIGIN).orderBy("accepted_at", "row", "index"))
    retried = copies.where(first).withColumn("nth", nth).join(deaths, [*GROUP, *_ORIGIN], "left")
    before = fn.filter("deaths", lambda died: died <= fn.col("accepted_at") + span(skew_ms))
    without_death = retried.where(fn.coalesce(fn.size(before), fn.lit(0)) < fn.col("nth")).drop("nth", "deaths")
    return copies.where(~first).unionByName(_dead_log_known(coverage, without_death))


def _dead_log_known(coverage: Coverage, copies: DataFrame) -> DataFrame:
    if not coverage.full:
        return copies.limit(0)  # the dead letter may be older than the rows that were read
    owner, member = fn.concat_ws("~", "subject", "generation"), fn.concat_ws("~", "group", "group_generation")
    doubted = coverage.doubted.select(fn.col("log").alias("dead_log"))
    named = copies.withColumn("dead_log", fn.concat(owner, fn.lit("/dead/"), member))
    return named.join(doubted, "dead_log", "left_anti").drop("dead_log")


def _acknowledged(evidence: Evidence, copies: DataFrame) -> DataFrame:
    """Returns the copies whose message the group had acknowledged before the copy was stored."""
    suspects = copies.select(
        *(fn.col(name).alias(f"copy_{name}") for name in MESSAGE_KEY),
        *GROUP,
        *_ORIGIN,
        fn.col("accepted_at").alias("stored"),
    )
    # The message may be in any part of the queue or in the retry log. The join with the pulls leaves other groups out.
    pulled = evidence.messages.where(fn.col("kind").isin(QUEUE, RETRY))
    earlier = pulled.select(fn.col("log").alias("source"), "row", "index", "subject", "generation", *_ORIGIN)
    pulls = evidence.handed.select(*PULL_KEY, *GROUP, "source", "row", "low", "count", "closed_at")
    moved = evidence.moves.select(*PULL_KEY, "row", "index")
    handed = suspects.join(earlier, ["subject", "generation", *_ORIGIN]).join(pulls, [*GROUP, "source", "row"])
    handed = handed.where(holds("low", "count", "index") & (fn.col("closed_at") <= fn.col("stored")))
    acked = handed.withColumnRenamed("log", "chain").join(
        moved.withColumnRenamed("log", "chain"), ["chain", "pull_row", "row", "index"], "left_anti"
    )
    return acked.select(
        *(fn.col(f"copy_{name}").alias(name) for name in MESSAGE_KEY), fn.lit(True).alias("acked")
    ).distinct()


def _over_attempts(evidence: Evidence, coverage: Coverage) -> DataFrame:
    copies = evidence.messages.where(fn.col("kind") == RETRY)
    over = copies.join(coverage.groups, list(GROUP)).where(fn.col("attempt") > fn.col("max_attempts"))
    detail = fn.format_string("attempt %d, the group allows %d", "attempt", "max_attempts")
    return findings(over, "over_attempts", at="accepted_at", queue="origin_queue", detail=detail)
