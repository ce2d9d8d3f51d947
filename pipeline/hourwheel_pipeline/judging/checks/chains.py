"""Checks that each group was handed every message once: compares its pull logs with the queues that they read.

Row ``p`` of a pull log begins where row ``p - 1`` ended, or at the target of a seek. Each message between there and the
row's own end that had not expired must be among the messages that the row handed out.
"""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from hourwheel_pipeline.judging.checks.coverage import Coverage, span
from hourwheel_pipeline.judging.checks.evidence import GROUP, PULL_KEY, Evidence, holds
from hourwheel_pipeline.judging.findings import findings, position_text

_BIN_ROWS = 64
"""Ranges of rows are joined with rows by bins of this many rows: Spark joins equal bins by hash, and compares no row
with all ranges."""

_PULL = (*PULL_KEY, *GROUP, "queue", "source")


def chain_findings(
    evidence: Evidence, coverage: Coverage, *, skew_ms: int, lease_ms: int
) -> Iterator[DataFrame | None]:
    """Yields the findings about pull logs. ``skew_ms``: how far clocks may differ. ``lease_ms``: the time after the end
    of its lease by which a pull should be closed."""
    links = evidence.keep(_links(evidence, coverage))
    across = evidence.keep(_across(evidence, _covered(links)))
    yield _passed_over(evidence, coverage, across, skew_ms)
    yield _phantoms(evidence, coverage)
    yield _handed_again(evidence, links)
    yield _stuck(evidence, lease_ms)


def expired_unseen(evidence: Evidence, coverage: Coverage, skew_ms: int) -> DataFrame:
    """Returns the numbers of messages that expired before their group reached them, as (subject, group, messages)."""
    expired = _across(evidence, _covered(_links(evidence, coverage)))
    expired = expired.where(~_alive(skew_ms)).select(
        "subject", "group", (fn.col("high") - fn.col("low")).alias("messages")
    )
    return expired.groupBy("subject", "group").agg(fn.sum("messages").alias("messages"))


def _links(evidence: Evidence, coverage: Coverage) -> DataFrame:
    """Returns the pulls without the seeks, each with the position ``begins`` at which it should begin; null where that
    position is unknown."""
    before = evidence.pulls.select(
        "log",
        (fn.col("pull_row") + 1).alias("pull_row"),
        fn.struct(fn.col("end_row").alias("row"), fn.col("end_index").alias("index")).alias("before"),
    )
    origin = fn.when(fn.col("pull_row") == 0, fn.struct(fn.col("origin").alias("row"), fn.lit(0).alias("index")))
    begins = fn.coalesce("before", origin)
    linked = evidence.pulls.join(before, list(PULL_KEY), "left").join(coverage.chains, "log", "left")
    return linked.withColumn("begins", begins).where(fn.col("outcome") != "sought")


def _covered(links: DataFrame) -> DataFrame:
    """Returns for each pull the range that it had to hand out."""
    first = fn.struct(fn.col("first_row").alias("row"), fn.col("first_index").alias("index"))
    begins = fn.least(fn.coalesce("begins", first), first)
    return _ranges(links, begins, fn.struct(fn.col("end_row").alias("row"), fn.col("end_index").alias("index")))


def _ranges(links: DataFrame, begins: Column, ends: Column) -> DataFrame:
    named = (begins["row"].alias("from_row"), begins["index"].alias("from_index"))
    to = (ends["row"].alias("to_row"), ends["index"].alias("to_index"))
    columns = ("first_row", "first_index", "counts", "claimed_at", "closed_at", "outcome")
    return links.select(*_PULL, *columns, fn.col("picks").isNotNull().alias("filtered"), *named, *to)


def _across(evidence: Evidence, ranges: DataFrame) -> DataFrame:
    """Returns the batches in the ranges, each with the indexes ``[low, high)`` of its messages within the range."""
    # A range that ends at index 0 of a row has no message of this row.
    last = fn.greatest("from_row", fn.col("to_row") - fn.when(fn.col("to_index") == 0, 1).otherwise(0))
    bins = fn.sequence(_bin(fn.col("from_row")), _bin(last))
    binned = ranges.withColumn("bin", fn.explode(bins))
    batches = evidence.batches.select(
        fn.col("log").alias("source"), "row", "messages", "accepted_at", "expires_at", _bin(fn.col("row")).alias("bin")
    )
    after = fn.col("row") >= fn.col("from_row")
    until = (fn.col("row") < fn.col("to_row")) | ((fn.col("row") == fn.col("to_row")) & (fn.col("to_index") > 0))
    low = fn.when(fn.col("row") == fn.col("from_row"), fn.col("from_index")).otherwise(fn.lit(0))
    end = fn.when(fn.col("row") == fn.col("to_row"), fn.least("to_index", "messages")).otherwise(fn.col("messages"))
    inside = binned.join(batches, ["source", "bin"]).where(after & until)
    return inside.withColumn("low", low).withColumn("high", end).where("low < high")


def _bin(row: Column) -> Column:
    return fn.floor(row / _BIN_ROWS)


def _alive(skew_ms: int) -> Column:
    """Returns the condition that a batch had not expired yet when a pull passed it."""
    return fn.col("expires_at").isNull() | (fn.col("expires_at") > fn.col("claimed_at") + span(skew_ms))


def _passed_over(evidence: Evidence, coverage: Coverage, across: DataFrame, skew_ms: int) -> DataFrame | None:
    """Finds messages that a pull passed and did not hand out. Pulls of groups with a filter are left out: the filter
    passes messages, and the archive does not record which filter the group had then."""
    step = (fn.col("row") - fn.col("first_row")).cast("int")
    taken = fn.when(step >= 0, fn.coalesce(fn.get("counts", step), fn.lit(0))).otherwise(fn.lit(0))
    first = fn.when(fn.col("row") == fn.col("first_row"), fn.col("first_index")).otherwise(fn.lit(0))
    unfiltered = across.where(~fn.col("filtered"))
    fewer = unfiltered.withColumn("taken", taken).where(fn.col("high") - fn.col("low") > fn.col("taken"))
    suspects = evidence.some(coverage.sure(fewer.where(_alive(skew_ms)), "source", "row").withColumn("first", first))
    if suspects is None:
        return None
    passed = _messages(evidence, suspects).where(~holds("first", "taken", "index"))
    handed = evidence.handed.select(
        fn.col("log").alias("again_log"), fn.col("row").alias("again_row"), fn.col("low").alias("again_low"), "count"
    )
    same_row = (fn.col("log") == fn.col("again_log")) & (fn.col("row") == fn.col("again_row"))
    joined = passed.join(handed, same_row & holds("again_low", "count", "index"), "left")
    by_message = joined.groupBy("log", "row", "index").agg(
        fn.min(fn.struct("pull_row", "subject", "group", "queue", "source", "id", "claimed_at")).alias("pull"),
        fn.max(fn.col("again_log").isNotNull()).alias("handed"),
    )
    kind = fn.when(fn.col("handed"), fn.lit("skipped")).otherwise(fn.lit("lost"))
    by_message = by_message.select(kind.alias("kind"), fn.col("log").alias("chain"), "row", "index", "pull.*")
    detail = fn.concat(fn.lit("passed by "), position_text("chain", "pull_row"))
    return findings(by_message, fn.col("kind"), log="source", at="claimed_at", detail=detail)


def _messages(evidence: Evidence, batches: DataFrame) -> DataFrame:
    """Returns the messages with the indexes ``[low, high)`` of each batch."""
    messages = evidence.messages.select(fn.col("log").alias("source"), "row", "index", "id")
    members = batches.join(messages, ["source", "row"])
    return members.where((fn.col("index") >= fn.col("low")) & (fn.col("index") < fn.col("high")))


def _phantoms(evidence: Evidence, coverage: Coverage) -> DataFrame:
    """Finds messages that were handed out and are not in the source."""
    batches = evidence.batches.select(fn.col("log").alias("source"), "row", "messages")
    named = evidence.handed.join(batches, ["source", "row"], "left")
    absent = fn.col("low") + fn.col("count") > fn.coalesce("messages", fn.lit(0))
    detail = fn.concat(
        fn.format_string("%d messages from index %d on were handed out by ", "count", "low"),
        position_text("log", "pull_row"),
        fn.format_string(", its source has %d", fn.coalesce("messages", fn.lit(0))),
    )
    return findings(
        coverage.rows(named.where(absent), "source", "row"), "phantom", log="source", at="claimed_at", detail=detail
    )


def _handed_again(evidence: Evidence, links: DataFrame) -> DataFrame | None:
    """Finds messages that a pull handed out although an earlier pull had passed them, without a seek in between."""
    first = fn.struct(fn.col("first_row").alias("row"), fn.col("first_index").alias("index"))
    end = fn.struct(fn.col("end_row").alias("row"), fn.col("end_index").alias("index"))
    suspects = evidence.some(links.where(first < fn.col("begins")))
    if suspects is None:
        return None
    handed = _messages(evidence, _across(evidence, _ranges(suspects, first, fn.least(end, fn.col("begins")))))
    earlier = evidence.handed.select(
        fn.col("log").alias("was_log"),
        fn.col("pull_row").alias("was_pull"),
        fn.col("row").alias("was_row"),
        fn.col("low").alias("was_low"),
        fn.col("count").alias("was_count"),
        fn.col("closed_at").alias("was_closed"),
    )
    before = (fn.col("log") == fn.col("was_log")) & (fn.col("was_pull") < fn.col("pull_row"))
    same_row = before & (fn.col("row") == fn.col("was_row")) & holds("was_low", "was_count", "index")
    moved = evidence.moves.select(
        fn.col("log").alias("was_log"),
        fn.col("pull_row").alias("was_pull"),
        "row",
        "index",
        fn.lit(True).alias("moved"),
    )
    joined = handed.join(earlier, same_row).join(moved, ["was_log", "was_pull", "row", "index"], "left")
    acked = fn.col("moved").isNull() & (fn.col("was_closed") <= fn.col("claimed_at"))
    by_message = joined.groupBy(*_PULL, "row", "index", "id", "claimed_at").agg(
        fn.max(acked).alias("acked"), fn.max("was_pull").alias("was_pull")
    )
    kind = fn.when(fn.col("acked"), fn.lit("settled_redelivered")).otherwise(fn.lit("doubled_delivery"))
    detail = fn.concat(
        fn.lit("handed out by "), position_text("log", "pull_row"), fn.format_string(", before by row %d", "was_pull")
    )
    return findings(by_message, kind, log="source", at="claimed_at", detail=detail)


def _stuck(evidence: Evidence, lease_ms: int) -> DataFrame:
    late = evidence.pulls.where(fn.col("closed_at") > fn.col("lease_until") + span(lease_ms))
    seconds = fn.unix_seconds("closed_at") - fn.unix_seconds("lease_until")
    detail = fn.concat(fn.format_string("closed %d s after its lease, ", seconds), fn.col("outcome"))
    return findings(late, "stuck_pull", row="pull_row", at="closed_at", detail=detail)
