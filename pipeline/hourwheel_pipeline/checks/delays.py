"""Whether each delayed message was handed over once, in time, and stands where it was put."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel.lognames import SCHEDULE_PREFIX
from hourwheel_pipeline.checks.coverage import Coverage, moment, span
from hourwheel_pipeline.checks.evidence import MESSAGE_KEY, Evidence
from hourwheel_pipeline.findings import findings, place
from hourwheel_pipeline.schemas import ORPHAN, QUEUE

_POSITION = ("source_log", "source_row", "source_index")


def delay_findings(
    evidence: Evidence, known: Coverage, *, skew_ms: int, late_ms: int, stuck_ms: int
) -> Iterator[DataFrame]:
    """``late_ms``: a message may be handed over so long after it was due; ``stuck_ms``: after that it should have
    been, and what a wheel began should be done."""
    handovers = evidence.keep(_handovers(evidence))
    timed = evidence.keep(_timed(evidence, handovers))
    yield _lost(known, handovers, stuck_ms)
    yield _doubled(handovers)
    yield _phantoms(known, handovers)
    yield _cancelled(evidence, timed, stuck_ms)
    yield _stuck(evidence, known, stuck_ms)
    yield _early(timed, skew_ms)
    yield _early_pulls(evidence, skew_ms)
    yield _late(timed, late_ms)
    yield _unexplained(evidence, known, skew_ms)
    yield _unexplained_moves(evidence, known, skew_ms)


def _handovers(evidence: Evidence) -> DataFrame:
    """What wheels handed over: ``there`` says whether it is where it was put, ``last`` whether it was not put
    elsewhere after that."""
    plans = evidence.planned.select(
        *(fn.col(name).alias(position) for name, position in zip(MESSAGE_KEY, _POSITION, strict=True)),
        fn.col("id").alias("planned_id"),
        fn.lit(True).alias("planned"),
    )
    stored = evidence.messages.select(
        fn.col("log").alias("target_log"),
        fn.col("row").alias("target_row"),
        fn.col("index").alias("target_index"),
        fn.col("id").alias("stored_id"),
        fn.lit(True).alias("stored"),
    )
    named = evidence.dispatches.join(plans, list(_POSITION), "left")
    met = named.join(stored, ["target_log", "target_row", "target_index"], "left")
    same = fn.col("planned").isNull() | fn.col("planned_id").eqNullSafe(fn.col("stored_id"))
    order = Window.partitionBy(*_POSITION).orderBy(fn.desc("dispatch_row"), fn.desc("transfer"))
    return met.withColumn("there", fn.col("stored").isNotNull() & same).withColumn(
        "last", fn.row_number().over(order) == 1
    )


def _timed(evidence: Evidence, handovers: DataFrame) -> DataFrame:
    """Delayed messages that were handed over to somebody, each with when that was first and last."""
    given = handovers.where(fn.col("kind").isin("due", "again"))
    times = given.groupBy(
        *(fn.col(position).alias(name) for name, position in zip(MESSAGE_KEY, _POSITION, strict=True))
    )
    found = times.agg(fn.min("at").alias("first_at"), fn.max("at").alias("last_at"))
    return evidence.planned.join(found, list(MESSAGE_KEY)).withColumn("wanted", _wanted())


def _wanted() -> Column:
    """When a message should be handed over: one that came too late for its time, at once."""
    return fn.greatest("due_at", "accepted_at")


def _lost(known: Coverage, handovers: DataFrame, stuck_ms: int) -> DataFrame:
    put = handovers.where(fn.col("last") & fn.col("target_log").isNotNull() & ~fn.col("there"))
    # A row that was filled meanwhile is put anew by the next dispatch row.
    put = put.where(fn.col("at") < moment(known.horizon_ms - stuck_ms))
    detail = fn.concat(
        fn.format_string("handed over (%s) to ", "kind"), place("target_log", "target_row"), fn.lit(", which lacks it")
    )
    return _found(known.rows(put, "target_log", "target_row"), "lost_dispatch", detail, id="planned_id")


def _doubled(handovers: DataFrame) -> DataFrame:
    places = fn.array_sort(fn.collect_set(place("target_log", "target_row", "target_index")))
    often = (
        handovers.where("there")
        .groupBy(*_POSITION)
        .agg(
            places.alias("places"),
            fn.max("at").alias("at"),
            fn.first("subject").alias("subject"),
            fn.first("stored_id").alias("id"),
        )
    )
    detail = fn.concat(fn.lit("it is in "), fn.array_join("places", " and in "))
    return _found(often.where(fn.size("places") > 1), "doubled_dispatch", detail)


def _phantoms(known: Coverage, handovers: DataFrame) -> DataFrame:
    absent = handovers.where(fn.col("planned").isNull() & (fn.col("kind") != "damaged") & fn.col("last"))
    detail = fn.concat(fn.lit("handed over by "), place("bucket", "dispatch_row"), fn.lit(", its source lacks it"))
    return _found(known.rows(absent, "source_log", "source_row"), "phantom", detail)


def _found(frame: DataFrame, kind: str, detail: Column, **columns: str) -> DataFrame:
    names = dict(zip(MESSAGE_KEY, _POSITION, strict=True))
    return findings(frame, kind, detail=detail, **names, **columns)


def _cancelled(evidence: Evidence, timed: DataFrame, stuck_ms: int) -> DataFrame:
    """A wheel reads what was cancelled before it hands anything over; a large tick takes a while."""
    cancelled = timed.join(evidence.cancel_markers, list(MESSAGE_KEY))
    late = cancelled.where(fn.col("struck_at") + span(stuck_ms) < fn.col("first_at"))
    seconds = fn.unix_seconds("first_at") - fn.unix_seconds("struck_at")
    detail = fn.format_string("handed over %d s after it was cancelled or moved", seconds)
    return findings(late, "cancelled_dispatched", at="first_at", detail=detail)


def _stuck(evidence: Evidence, known: Coverage, stuck_ms: int) -> DataFrame:
    named = evidence.dispatches.select(
        fn.col("source_log").alias("log"), fn.col("source_row").alias("row"), fn.col("source_index").alias("index")
    )
    overdue = evidence.planned.where(_wanted() < moment(known.horizon_ms - stuck_ms))
    overdue = overdue.join(named, list(MESSAGE_KEY), "left_anti").join(
        evidence.cancel_markers, list(MESSAGE_KEY), "left_anti"
    )
    # Where rows of the bucket's logs may be missing, so may be what became of it.
    doubted = known.doubted.select(fn.explode(fn.array("log", fn.concat(fn.lit(SCHEDULE_PREFIX), "log"))).alias("log"))
    overdue = overdue.join(doubted, "log", "left_anti")
    detail = fn.concat(
        fn.lit("due at "), _text("due_at"), fn.lit(", not handed over at "), _text(moment(known.horizon_ms))
    )
    return findings(overdue, "stuck", at="due_at", detail=detail)


def _early(timed: DataFrame, skew_ms: int) -> DataFrame:
    early = timed.where(fn.col("first_at") < fn.col("due_at") - span(skew_ms))
    seconds = fn.unix_seconds("due_at") - fn.unix_seconds("first_at")
    return findings(
        early, "early", at="first_at", detail=fn.format_string("handed over %d s before it was due", seconds)
    )


def _early_pulls(evidence: Evidence, skew_ms: int) -> DataFrame:
    """Handed out before its time, though it was handed over in time."""
    due = evidence.batches.where("latest_due is not null").select(
        fn.col("log").alias("source"), "row", "accepted_at", "latest_due"
    )
    pulled = evidence.handed.where(fn.col("queue").isNotNull()).join(due, ["source", "row"])
    early = pulled.where(fn.col("claimed_at") < fn.col("latest_due") - span(skew_ms))
    early = early.where(fn.col("accepted_at") >= fn.col("latest_due") - span(skew_ms))
    detail = fn.concat(fn.lit("due at "), _text("latest_due"), fn.lit(", handed out by "), place("log", "pull_row"))
    return findings(early, "early", log="source", at="claimed_at", detail=detail)


def _late(timed: DataFrame, late_ms: int) -> DataFrame:
    late = timed.where(fn.col("last_at") > fn.col("wanted") + span(late_ms))
    seconds = fn.unix_seconds("last_at") - fn.unix_seconds("wanted")
    return findings(late, "late", at="last_at", detail=fn.format_string("handed over %d s late", seconds))


def _unexplained(evidence: Evidence, known: Coverage, skew_ms: int) -> DataFrame:
    """Messages that had been delayed, or are orphans, and that no wheel has put where they are."""
    named = evidence.dispatches.select(
        fn.col("target_log").alias("log"), fn.col("target_row").alias("row"), fn.col("target_index").alias("index")
    )
    sent = evidence.messages.where(
        (fn.col("kind") == ORPHAN) | ((fn.col("kind") == QUEUE) & fn.col("due_at").isNotNull())
    )
    since, until = moment(known.began_ms + skew_ms), moment(known.horizon_ms - skew_ms)
    recent = sent.where((fn.col("accepted_at") >= since) & (fn.col("accepted_at") < until))
    astray = known.undisputed(recent.join(named, list(MESSAGE_KEY), "left_anti"))
    detail = fn.concat(fn.lit("was due at "), _text("due_at"), fn.lit(", handed over by no wheel"))
    return findings(astray, "orphaned_copy", at="accepted_at", detail=detail)


def _unexplained_moves(evidence: Evidence, known: Coverage, skew_ms: int) -> DataFrame:
    """Messages that wait for a new time, more of them than were cancelled at their old one. Those that were moved say
    when they were accepted; one that was not was accepted when its row was stored."""
    plans = evidence.planned.where(fn.col("group").isNull()).withColumn(
        "born", fn.coalesce("produced_at", "accepted_at")
    )
    same = ("subject", "generation", "born", "id")
    cancelled = (
        plans.join(evidence.cancel_markers, list(MESSAGE_KEY)).groupBy(*same).agg(fn.count("*").alias("strikes"))
    )
    nth = fn.row_number().over(Window.partitionBy(*same).orderBy("accepted_at", *MESSAGE_KEY))
    moved = plans.where(fn.col("produced_at").isNotNull()).withColumn("nth", nth).join(cancelled, list(same), "left")
    since, until = moment(known.began_ms + skew_ms), moment(known.horizon_ms - skew_ms)
    astray = moved.where(fn.col("nth") > fn.coalesce("strikes", fn.lit(0)))
    astray = astray.where((fn.col("born") >= since) & (fn.col("accepted_at") < until))
    # Its old place may be anywhere.
    waits = known.doubted.where(fn.col("log").startswith(SCHEDULE_PREFIX)).agg(fn.count("*").alias("waits"))
    astray = astray.crossJoin(waits).where("waits = 0")
    return findings(astray, "orphaned_copy", at="accepted_at", detail=fn.lit("moved to another time from nowhere"))


def _text(at: Column | str) -> Column:
    return fn.date_format(at, "yyyy-MM-dd HH:mm:ss")
