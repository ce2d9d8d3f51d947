"""Whether what pulls handed over is where they say, and whether all that is there was handed over.

A copy and the message that it was made of share the place where the message was first accepted. The ``n``-th message
of a place that was handed over to a row is compared with the ``n``-th copy of it there.
"""

from collections.abc import Iterator

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel_pipeline.checks.coverage import MARGIN_MS, Coverage, moment, span
from hourwheel_pipeline.checks.evidence import GROUP, MESSAGE_KEY, PULL_KEY, Evidence, holds
from hourwheel_pipeline.findings import findings, place
from hourwheel_pipeline.schemas import DEAD, RETRY, SCHEDULE

_ORIGIN = ("origin_queue", "origin_offset")
_TARGET = ("target_log", "target_row", *_ORIGIN, "nth")


def handover_findings(evidence: Evidence, known: Coverage, *, skew_ms: int) -> Iterator[DataFrame | None]:
    sent, copies = evidence.keep(_sent(evidence)), evidence.keep(_copies(evidence))
    yield _lost(known, sent, copies, skew_ms)
    left = evidence.some(_unexplained(evidence, known, sent, copies, skew_ms))
    if left is not None:
        yield _told(evidence, copies, left)
    yield _over_attempts(evidence, known)


def _sent(evidence: Evidence) -> DataFrame:
    """What was handed over, each with where it was first accepted; that is null where its source is not known."""
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


def _lost(known: Coverage, sent: DataFrame, copies: DataFrame, skew_ms: int) -> DataFrame:
    there = copies.select(fn.col("log").alias("target_log"), fn.col("row").alias("target_row"), *_ORIGIN, "nth")
    # What expired while it was held may be gone.
    alive = fn.col("kept_until").isNull() | (fn.col("kept_until") > fn.col("at") + span(skew_ms))
    absent = sent.where(fn.col("origin_offset").isNotNull() & alive).join(there, list(_TARGET), "left_anti")
    lost = known.rows(absent, "target_log", "target_row")
    detail = fn.concat(
        fn.format_string("handed over (%s) by ", "kind"),
        place("log", "pull_row"),
        fn.lit(" to "),
        place("target_log", "target_row"),
        fn.lit(", which lacks it"),
    )
    return findings(lost, "lost_handover", log="source", detail=detail)


def _unexplained(evidence: Evidence, known: Coverage, sent: DataFrame, copies: DataFrame, skew_ms: int) -> DataFrame:
    """Copies that nothing explains: neither a pull, nor a wheel, nor that they were sent again from the dead log."""
    named = sent.select(fn.col("target_log").alias("log"), fn.col("target_row").alias("row"), *_ORIGIN, "nth")
    unread = sent.where(fn.col("origin_offset").isNull())
    unread = unread.select(fn.col("target_log").alias("log"), fn.col("target_row").alias("row"))
    by_pulls = copies.join(named, ["log", "row", *_ORIGIN, "nth"], "left_anti").join(
        unread, ["log", "row"], "left_anti"
    )
    again = evidence.dispatches.where("kind = 'again'").select(
        fn.col("target_log").alias("log"), fn.col("target_row").alias("row"), fn.col("target_index").alias("index")
    )
    left = by_pulls.join(again, list(MESSAGE_KEY), "left_anti").select(
        *MESSAGE_KEY, *GROUP, *_ORIGIN, "kind", "id", "attempt", "accepted_at"
    )
    return _not_redriven(evidence, known, _judged(known, left, skew_ms), skew_ms)


def _told(evidence: Evidence, copies: DataFrame, left: DataFrame) -> DataFrame:
    """What nothing explains, as findings."""
    twins = copies.join(left.select(*MESSAGE_KEY), list(MESSAGE_KEY), "left_anti")
    twins = twins.select("kind", *GROUP, *_ORIGIN, "attempt", fn.lit(True).alias("twin")).distinct()
    marked = left.join(twins, ["kind", *GROUP, *_ORIGIN, "attempt"], "left")
    marked = marked.join(_acknowledged(evidence, left), list(MESSAGE_KEY), "left")
    kind = (
        fn.when(fn.col("twin"), fn.lit("doubled_handover"))
        .when(fn.col("acked"), fn.lit("settled_redelivered"))
        .otherwise(fn.lit("orphaned_copy"))
    )
    detail = fn.format_string(
        "attempt %d of offset %d of queue %d, explained by nothing", "attempt", "origin_offset", "origin_queue"
    )
    return findings(marked, kind, at="accepted_at", queue="origin_queue", detail=detail)


def _judged(known: Coverage, copies: DataFrame, skew_ms: int) -> DataFrame:
    """The copies of which all is known that could explain them. A pull may be held, and is not archived, for a day."""
    since, until = moment(known.began_ms + skew_ms), moment(known.horizon_ms - MARGIN_MS)
    alive = known.groups.where("alive").select(*GROUP)
    recent = copies.where((fn.col("accepted_at") >= since) & (fn.col("accepted_at") < until))
    sure = recent.join(alive, list(GROUP)).join(_doubted_groups(known), list(GROUP), "left_anti")
    return known.undisputed(sure)


def _doubted_groups(known: Coverage) -> DataFrame:
    """The groups of whose pull logs rows are in doubt."""
    name = r"^(.+)~(\d+)@(.+)~(\d+)/"
    parts = {"group": 1, "group_generation": 2, "subject": 3, "generation": 4}
    pulls = known.doubted.where(fn.col("log").contains("@"))
    found = pulls.select(*(fn.regexp_extract("log", name, part).alias(column) for column, part in parts.items()))
    return found.select(*GROUP).distinct()


def _not_redriven(evidence: Evidence, known: Coverage, copies: DataFrame, skew_ms: int) -> DataFrame:
    """Without first attempts in a retry log that were dead letters before. The ``n``-th of them needs ``n`` deaths."""
    first = (fn.col("kind") == RETRY) & (fn.col("attempt") == 1)
    dead = evidence.messages.where(fn.col("kind") == DEAD).groupBy(*GROUP, *_ORIGIN)
    deaths = dead.agg(fn.collect_list("accepted_at").alias("deaths"))
    nth = fn.row_number().over(Window.partitionBy(*GROUP, *_ORIGIN).orderBy("accepted_at", "row", "index"))
    again = copies.where(first).withColumn("nth", nth).join(deaths, [*GROUP, *_ORIGIN], "left")
    before = fn.filter("deaths", lambda died: died <= fn.col("accepted_at") + span(skew_ms))
    astray = again.where(fn.coalesce(fn.size(before), fn.lit(0)) < fn.col("nth")).drop("nth", "deaths")
    return copies.where(~first).unionByName(_dead_log_known(known, astray))


def _dead_log_known(known: Coverage, copies: DataFrame) -> DataFrame:
    if not known.whole:
        return copies.limit(0)  # the letter may be older than what was read
    owner, member = fn.concat_ws("~", "subject", "generation"), fn.concat_ws("~", "group", "group_generation")
    doubted = known.doubted.select(fn.col("log").alias("dead_log"))
    named = copies.withColumn("dead_log", fn.concat(owner, fn.lit("/dead/"), member))
    return named.join(doubted, "dead_log", "left_anti").drop("dead_log")


def _acknowledged(evidence: Evidence, copies: DataFrame) -> DataFrame:
    """Which of the copies are of a message that the group had acknowledged before."""
    wanted = copies.select(
        *(fn.col(name).alias(f"copy_{name}") for name in MESSAGE_KEY),
        *GROUP,
        *_ORIGIN,
        fn.col("accepted_at").alias("stored"),
    )
    owner, member = fn.concat_ws("~", "subject", "generation"), fn.concat_ws("~", "group", "group_generation")
    logs = fn.array(fn.concat_ws("/", owner, "origin_queue"), fn.concat(owner, fn.lit("/retry/"), member))
    wanted = wanted.withColumn("source", fn.explode(logs))
    earlier = evidence.messages.select(fn.col("log").alias("source"), "row", "index", *_ORIGIN)
    pulls = evidence.handed.select(*PULL_KEY, *GROUP, "source", "row", "low", "count", "closed_at")
    moved = evidence.moves.select(*PULL_KEY, "row", "index")
    met = wanted.join(earlier, ["source", *_ORIGIN]).join(pulls, [*GROUP, "source", "row"])
    met = met.where(holds("low", "count", "index") & (fn.col("closed_at") <= fn.col("stored")))
    acked = met.withColumnRenamed("log", "chain").join(
        moved.withColumnRenamed("log", "chain"), ["chain", "pull_row", "row", "index"], "left_anti"
    )
    return acked.select(
        *(fn.col(f"copy_{name}").alias(name) for name in MESSAGE_KEY), fn.lit(True).alias("acked")
    ).distinct()


def _over_attempts(evidence: Evidence, known: Coverage) -> DataFrame:
    copies = evidence.messages.where(fn.col("kind") == RETRY)
    over = copies.join(known.groups, list(GROUP)).where(fn.col("attempt") > fn.col("max_attempts"))
    detail = fn.format_string("attempt %d, the group allows %d", "attempt", "max_attempts")
    return findings(over, "over_attempts", at="accepted_at", queue="origin_queue", detail=detail)
