"""Checks that each delayed message was handed over once and in time, and that its target has it."""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel_pipeline.judging.checks.coverage import Coverage, moment, span
from hourwheel_pipeline.judging.checks.evidence import MESSAGE_KEY, Evidence
from hourwheel_pipeline.judging.findings import findings, position_text
from hourwheel_pipeline.lake.schemas import ORPHAN, QUEUE

_POSITION = ("source_log", "source_row", "source_index")


def delay_findings(
    evidence: Evidence, coverage: Coverage, *, skew_ms: int, late_ms: int, stuck_ms: int
) -> Iterator[DataFrame]:
    """Yields the findings about delayed messages. ``late_ms``: the time after which a hand-over is late. ``stuck_ms``:
    the time after which a message that is not handed over is stuck, and a hand-over that began should be complete."""
    handovers = evidence.keep(_handovers(evidence))
    timed = evidence.keep(_timed(evidence, handovers))
    yield _lost(coverage, handovers, stuck_ms)
    yield _doubled(handovers)
    yield _phantoms(coverage, handovers)
    yield _cancelled(evidence, timed, stuck_ms)
    yield _stuck(evidence, coverage, stuck_ms)
    yield _early(timed, skew_ms)
    yield _early_pulls(evidence, skew_ms)
    yield _late(timed, late_ms)
    yield _unexplained(evidence, coverage, skew_ms)
    yield _unexplained_moves(evidence, coverage, skew_ms)


def _handovers(evidence: Evidence) -> DataFrame:
    """Returns the messages that wheels handed over. ``there``: the target has the message. ``last``: no later dispatch
    row hands the message over to another target."""
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
    same_id = fn.col("planned").isNull() | fn.col("planned_id").eqNullSafe(fn.col("stored_id"))
    order = Window.partitionBy(*_POSITION).orderBy(fn.desc("dispatch_row"), fn.desc("transfer"))
    return met.withColumn("there", fn.col("stored").isNotNull() & same_id).withColumn(
        "last", fn.row_number().over(order) == 1
    )


def _timed(evidence: Evidence, handovers: DataFrame) -> DataFrame:
    """Returns the delayed messages that were handed over to a queue or a group. Each has the times of the first and the
    last hand-over, and the time ``expected_at`` at which it should have been handed over."""
    delivered = handovers.where(fn.col("kind").isin("due", "again"))
    by_message = delivered.groupBy(
        *(fn.col(position).alias(name) for name, position in zip(MESSAGE_KEY, _POSITION, strict=True))
    )
    times = by_message.agg(fn.min("at").alias("first_at"), fn.max("at").alias("last_at"))
    return evidence.planned.join(times, list(MESSAGE_KEY)).withColumn("expected_at", _due_or_accepted())


def _due_or_accepted() -> Column:
    """Returns the time at which a message should be handed over: its due time, or its acceptance if that was later."""
    return fn.greatest("due_at", "accepted_at")


def _lost(coverage: Coverage, handovers: DataFrame, stuck_ms: int) -> DataFrame:
    absent = handovers.where(fn.col("last") & fn.col("target_log").isNotNull() & ~fn.col("there"))
    # If a filler took the target row meanwhile, the next dispatch row hands the message over to another row.
    absent = absent.where(fn.col("at") < moment(coverage.horizon_ms - stuck_ms))
    detail = fn.concat(
        fn.format_string("handed over (%s) to ", "kind"),
        position_text("target_log", "target_row"),
        fn.lit(", which lacks it"),
    )
    return _dispatch_findings(
        coverage.rows(absent, "target_log", "target_row"), "lost_dispatch", detail, id="planned_id"
    )


def _doubled(handovers: DataFrame) -> DataFrame:
    locations = fn.array_sort(fn.collect_set(position_text("target_log", "target_row", "target_index")))
    targets = (
        handovers.where("there")
        .groupBy(*_POSITION)
        .agg(
            locations.alias("locations"),
            fn.max("at").alias("at"),
            fn.first("subject").alias("subject"),
            fn.first("stored_id").alias("id"),
        )
    )
    detail = fn.concat(fn.lit("it is in "), fn.array_join("locations", " and in "))
    return _dispatch_findings(targets.where(fn.size("locations") > 1), "doubled_dispatch", detail)


def _phantoms(coverage: Coverage, handovers: DataFrame) -> DataFrame:
    absent = handovers.where(fn.col("planned").isNull() & (fn.col("kind") != "damaged") & fn.col("last"))
    detail = fn.concat(
        fn.lit("handed over by "), position_text("bucket", "dispatch_row"), fn.lit(", its source lacks it")
    )
    return _dispatch_findings(coverage.rows(absent, "source_log", "source_row"), "phantom", detail)


def _dispatch_findings(frame: DataFrame, kind: str, detail: Column, **columns: str) -> DataFrame:
    names = dict(zip(MESSAGE_KEY, _POSITION, strict=True))
    return findings(frame, kind, detail=detail, **names, **columns)


def _cancelled(evidence: Evidence, timed: DataFrame, stuck_ms: int) -> DataFrame:
    """Finds messages that were handed over more than ``stuck_ms`` after they were cancelled. A shorter time is no
    error: a wheel reads the cancel markers before it hands messages over, and to hand over many takes a while."""
    cancelled = timed.join(evidence.cancel_markers, list(MESSAGE_KEY))
    late = cancelled.where(fn.col("cancelled_at") + span(stuck_ms) < fn.col("first_at"))
    seconds = fn.unix_seconds("first_at") - fn.unix_seconds("cancelled_at")
    detail = fn.format_string("handed over %d s after it was cancelled or moved", seconds)
    return findings(late, "cancelled_dispatched", at="first_at", detail=detail)


def _stuck(evidence: Evidence, coverage: Coverage, stuck_ms: int) -> DataFrame:
    named = evidence.dispatches.select(
        fn.col("source_log").alias("log"), fn.col("source_row").alias("row"), fn.col("source_index").alias("index")
    )
    overdue = evidence.planned.where(_due_or_accepted() < moment(coverage.horizon_ms - stuck_ms))
    overdue = overdue.join(named, list(MESSAGE_KEY), "left_anti").join(
        evidence.cancel_markers, list(MESSAGE_KEY), "left_anti"
    )
    # If rows of the bucket's logs are in doubt, the record of the hand-over or the cancel may be among them.
    doubted = coverage.doubted.select(
        fn.explode(fn.array("log", fn.concat(fn.lit(SCHEDULE_PREFIX), "log"))).alias("log")
    )
    overdue = overdue.join(doubted, "log", "left_anti")
    detail = fn.concat(
        fn.lit("due at "), _text("due_at"), fn.lit(", not handed over at "), _text(moment(coverage.horizon_ms))
    )
    return findings(overdue, "stuck", at="due_at", detail=detail)


def _early(timed: DataFrame, skew_ms: int) -> DataFrame:
    early = timed.where(fn.col("first_at") < fn.col("due_at") - span(skew_ms))
    seconds = fn.unix_seconds("due_at") - fn.unix_seconds("first_at")
    return findings(
        early, "early", at="first_at", detail=fn.format_string("handed over %d s before it was due", seconds)
    )


def _early_pulls(evidence: Evidence, skew_ms: int) -> DataFrame:
    """Finds messages that a pull handed out before they were due, although they were handed over in time."""
    due = evidence.batches.where("latest_due is not null").select(
        fn.col("log").alias("source"), "row", "accepted_at", "latest_due"
    )
    pulled = evidence.handed.where(fn.col("queue").isNotNull()).join(due, ["source", "row"])
    early = pulled.where(fn.col("claimed_at") < fn.col("latest_due") - span(skew_ms))
    early = early.where(fn.col("accepted_at") >= fn.col("latest_due") - span(skew_ms))
    detail = fn.concat(
        fn.lit("due at "), _text("latest_due"), fn.lit(", handed out by "), position_text("log", "pull_row")
    )
    return findings(early, "early", log="source", at="claimed_at", detail=detail)


def _late(timed: DataFrame, late_ms: int) -> DataFrame:
    late = timed.where(fn.col("last_at") > fn.col("expected_at") + span(late_ms))
    seconds = fn.unix_seconds("last_at") - fn.unix_seconds("expected_at")
    return findings(late, "late", at="last_at", detail=fn.format_string("handed over %d s late", seconds))


def _unexplained(evidence: Evidence, coverage: Coverage, skew_ms: int) -> DataFrame:
    """Finds messages that had been delayed, or are orphans, and that no wheel has handed over to their row."""
    named = evidence.dispatches.select(
        fn.col("target_log").alias("log"), fn.col("target_row").alias("row"), fn.col("target_index").alias("index")
    )
    sent = evidence.messages.where(
        (fn.col("kind") == ORPHAN) | ((fn.col("kind") == QUEUE) & fn.col("due_at").isNotNull())
    )
    since, until = moment(coverage.began_ms + skew_ms), moment(coverage.horizon_ms - skew_ms)
    recent = sent.where((fn.col("accepted_at") >= since) & (fn.col("accepted_at") < until))
    orphaned = coverage.undisputed(recent.join(named, list(MESSAGE_KEY), "left_anti"))
    detail = fn.concat(fn.lit("was due at "), _text("due_at"), fn.lit(", handed over by no wheel"))
    return findings(orphaned, "orphaned_copy", at="accepted_at", detail=detail)


def _unexplained_moves(evidence: Evidence, coverage: Coverage, skew_ms: int) -> DataFrame:
    """Finds messages that were moved to another time more often than they were cancelled: each move cancels the message
    and stores a copy. The copy has the time of its acceptance in ``produced_at``; any other message was accepted when
    its row was stored."""
    plans = evidence.planned.where(fn.col("group").isNull()).withColumn(
        "born", fn.coalesce("produced_at", "accepted_at")
    )
    message = ("subject", "generation", "born", "id")
    cancelled = (
        plans.join(evidence.cancel_markers, list(MESSAGE_KEY)).groupBy(*message).agg(fn.count("*").alias("cancels"))
    )
    nth = fn.row_number().over(Window.partitionBy(*message).orderBy("accepted_at", *MESSAGE_KEY))
    moved = plans.where(fn.col("produced_at").isNotNull()).withColumn("nth", nth).join(cancelled, list(message), "left")
    since, until = moment(coverage.began_ms + skew_ms), moment(coverage.horizon_ms - skew_ms)
    orphaned = moved.where(fn.col("nth") > fn.coalesce("cancels", fn.lit(0)))
    orphaned = orphaned.where((fn.col("born") >= since) & (fn.col("accepted_at") < until))
    # The old schedule log of a message is unknown: with any schedule log in doubt, no message is judged.
    in_doubt = coverage.doubted.where(fn.col("log").startswith(SCHEDULE_PREFIX)).agg(fn.count("*").alias("in_doubt"))
    orphaned = orphaned.crossJoin(in_doubt).where("in_doubt = 0")
    return findings(orphaned, "orphaned_copy", at="accepted_at", detail=fn.lit("moved to another time from nowhere"))


def _text(at: Column | str) -> Column:
    return fn.date_format(at, "yyyy-MM-dd HH:mm:ss")
