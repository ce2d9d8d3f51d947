"""Computes the coverage: which rows of each log the archive holds, and which of these rows the lake may lack.

Rows outside of the coverage are unknown, and never a finding. These are rows that are not archived yet, or were removed
before they could be; rows whose messages could not be read; and rows of quarantined segments. So are rows of a log and
manifest of which the lake holds fewer than the archive says (one finding for all of them, not one for each).

    heads      log, start, end                              the archived rows of a log of messages
    doubtful   log, start, end, why                         ranges of which rows may be missing
    missing    table, log, manifest, expected, found        logs of which the lake has fewer rows than the manifest
    groups     subject, generation, group, group_generation, alive, max_attempts, created_at, parts
    chains     log, origin                                  pull logs of these groups, and the rows at which they begin

``parts`` lists the logs of the subject's queues, also those that expired since. Their columns are log, queue and start
(the offset at which the log starts). Then come origin (the row at which the group begins there) and gone_at (the time
from which on the queue no longer had the log).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as fn

from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel.times import HOUR_MS, MINUTE_MS
from hourwheel_pipeline.judging.checks.evidence import GROUP, Evidence, scheduled_since
from hourwheel_pipeline.lake.schemas import DISPATCHES, MARKERS, MESSAGES, PULLS

MARGIN_MS = 24 * HOUR_MS
"""A record that explains a row may be this much older than the row, or reach the archive this much later. A pull that
is still open has moved messages already and is not archived yet, and clocks differ."""


@dataclass(frozen=True)
class Coverage:
    """The coverage of a run. Rows stored since ``began_ms`` are known; rows stored before ``horizon_ms`` are archived.
    ``full``: the evidence is not limited to some days. ``doubts``: ``doubtful`` is not empty."""

    began_ms: int
    horizon_ms: int
    full: bool
    doubts: bool
    heads: DataFrame
    doubtful: DataFrame
    missing: DataFrame
    groups: DataFrame
    chains: DataFrame

    def rows(self, frame: DataFrame, log: str, row: str) -> DataFrame:
        """Returns the frame without the rows whose position is unknown or in doubt."""
        return self.sure(_inside(frame, log, row, self.heads, "left_semi"), log, row)

    def sure(self, frame: DataFrame, log: str, row: str) -> DataFrame:
        """Returns the frame without the rows whose position is in doubt."""
        if not self.doubts:
            return frame
        return _inside(frame, log, row, self.doubtful, "left_anti")

    @property
    def doubted(self) -> DataFrame:
        """Returns the logs with rows in doubt."""
        return self.doubtful.select("log").distinct()

    def undisputed(self, frame: DataFrame) -> DataFrame:
        """Returns the frame without the messages that a bucket with doubtful rows in its dispatch log may have handed
        over."""
        if not self.doubts:
            return frame
        # Spark may convert the texts before it filters the dispatch logs, and names of other logs have no number there.
        start = fn.substring("log", 1, 13).try_cast("bigint")
        # A bucket stays for a day after all of its messages were handed over.
        length = fn.substring("log", 15, 2).try_cast("bigint") * MINUTE_MS + MARGIN_MS
        buckets = self.doubted.where(fn.col("log").rlike(r"^\d{13}-\d{2}/\d{3}$"))
        hours = buckets.select(
            fn.timestamp_millis(start).alias("doubt_from"), fn.timestamp_millis(start + length).alias("doubt_to")
        )
        within = (fn.col("accepted_at") >= fn.col("doubt_from")) & (fn.col("accepted_at") < fn.col("doubt_to"))
        return frame.join(hours, within, "left_anti")


def coverage_of(
    claims: DataFrame,
    snapshots: DataFrame,
    evidence: Evidence,
    last_manifest: Mapping[str, int],
    quarantined: Sequence[str],
    since_ms: int | None = None,
    *,
    counted: bool = False,
    lost: bool = False,
) -> Coverage:
    """Returns the coverage of the evidence. ``last_manifest``: the last one that each table holds. ``quarantined``: the
    keys of quarantined segments. ``since_ms``: the time from which the evidence has rows; only rows stored
    ``MARGIN_MS`` later count as known. ``counted``: the caller knows that no row is missing; the evidence may then have
    the rows of some subjects only. ``lost``: the tables lack the rows of manifests that were lost; they lie between
    the spans of the others."""
    claims = claims.where(fn.col("manifest") <= _last_manifest(last_manifest))
    missing = missing_of(claims, _stored(evidence), quarantined, since_ms)
    missing = evidence.keep(claims.sparkSession.createDataFrame([], missing.schema) if counted else missing)
    groups = evidence.keep(groups_of(snapshots))
    doubtful = evidence.keep(_doubtful(claims, quarantined, missing, lost=lost))
    began_ms, horizon_ms = archive_times(claims, min(last_manifest.values()))
    return Coverage(
        began_ms=began_ms if since_ms is None else max(began_ms, since_ms + MARGIN_MS),
        horizon_ms=horizon_ms,
        full=since_ms is None,
        doubts=doubtful.count() > 0,
        heads=evidence.keep(_heads(claims, since_ms)),
        doubtful=doubtful,
        missing=missing,
        groups=groups,
        chains=evidence.keep(_chains(groups)),
    )


def moment(at_ms: int) -> Column:
    return fn.timestamp_millis(fn.lit(at_ms))


def span(length_ms: int) -> Column:
    """Returns a length of time as a column, to be added to a time."""
    return fn.make_dt_interval(secs=fn.lit(length_ms / 1_000))


def _inside(frame: DataFrame, log: str, row: str, ranges: DataFrame, how: str) -> DataFrame:
    """Joins the frame with the ranges that contain its position."""
    named = ranges.select(
        fn.col("log").alias("range_log"), fn.col("start").alias("range_start"), fn.col("end").alias("range_end")
    )
    within = (fn.col(row) >= fn.col("range_start")) & (fn.col(row) < fn.col("range_end"))
    return frame.join(named, (fn.col(log) == fn.col("range_log")) & within, how)


def _last_manifest(last_manifest: Mapping[str, int]) -> Column:
    """Returns the last manifest that the table of a claim holds; for a claim without a table the last of any table."""
    last = fn.lit(max(last_manifest.values()))
    for table, number in last_manifest.items():
        last = fn.when(fn.col("table") == table, fn.lit(number)).otherwise(last)
    return last


def archive_times(claims: DataFrame, last: int) -> tuple[int, int]:
    """Returns the time at which the archive began, and the time before which everything is archived, by the manifests
    up to ``last``. 0 stands for no such time."""
    at_ms = {claim: fn.when(fn.col("claim") == claim, fn.unix_millis("at")) for claim in ("began", "complete")}
    counting = claims.where(fn.col("manifest") <= last)
    times = counting.agg(fn.min(at_ms["began"]), fn.max(at_ms["complete"])).first()
    assert times is not None
    return times[0] or 0, times[1] or 0


def _heads(claims: DataFrame, since_ms: int | None) -> DataFrame:
    spans = claims.where((fn.col("claim") == "span") & (fn.col("table") == MESSAGES))
    heads = spans.groupBy("log").agg(fn.min("start").alias("start"), fn.max("end").alias("end"))
    if since_ms is None:
        return heads
    # The evidence has all rows of a schedule log, and of other logs the rows stored since.
    scheduled = heads.where(scheduled_since(fn.col("log"), since_ms))
    parts = claims.where((fn.col("claim") == "part") & (fn.col("table") == MESSAGES))
    later = parts.where((fn.col("at") >= moment(since_ms + MARGIN_MS)) & ~fn.col("log").startswith(SCHEDULE_PREFIX))
    floors = later.groupBy("log").agg(fn.min("start").alias("floor"))
    others = heads.join(floors, "log").select("log", fn.greatest("start", "floor").alias("start"), "end")
    return scheduled.unionByName(others)


def stored_of(table: str, rows: DataFrame) -> DataFrame:
    """Returns the rows that manifests count, as ``table``, ``log`` and ``manifest``: all but markers."""
    if table == MESSAGES:
        rows = rows.where(~fn.col("kind").isin(*MARKERS))
    log = "bucket" if table == DISPATCHES else "log"
    return rows.select(fn.lit(table).alias("table"), fn.col(log).alias("log"), "manifest")


def _stored(evidence: Evidence) -> DataFrame:
    frames = {MESSAGES: evidence.messages, PULLS: evidence.pulls, DISPATCHES: evidence.dispatches}
    return reduce(DataFrame.unionByName, (stored_of(table, frame) for table, frame in frames.items()))


def missing_of(
    claims: DataFrame, stored: DataFrame, quarantined: Sequence[str], since_ms: int | None = None
) -> DataFrame:
    """Returns the logs and manifests of which fewer rows are ``stored`` than the manifest names, with the numbers
    ``expected`` and ``found``."""
    parts = claims.where(fn.col("claim") == "part").groupBy("table", "log", "manifest")
    expected_parts = parts.agg(
        fn.sum("messages").alias("messages"),
        fn.min("at").alias("earliest"),
        fn.max(fn.col("key").isin(list(quarantined))).alias("quarantined"),
    ).where(~fn.col("quarantined"))
    if since_ms is not None:
        expected_parts = expected_parts.where(fn.col("earliest") >= moment(since_ms))
    pulled = _pull_rows(claims).join(expected_parts.where(fn.col("table") == PULLS), ["log", "manifest"])
    expected = expected_parts.where(fn.col("table") != PULLS).select(
        "table", "log", "manifest", fn.col("messages").alias("expected")
    )
    expected = expected.unionByName(pulled.select("table", "log", "manifest", "expected"))
    stored_rows = stored.groupBy("table", "log", "manifest").agg(fn.count("*").alias("found"))
    compared = expected.join(stored_rows, ["table", "log", "manifest"], "left").fillna(0, ["found"])
    return compared.where(fn.col("found") < fn.col("expected"))


def _pull_rows(claims: DataFrame) -> DataFrame:
    """Returns the number of rows of a pull log that each manifest brought: its span without the removed rows."""
    size = fn.sum(fn.col("end") - fn.col("start"))
    spans = claims.where((fn.col("claim") == "span") & (fn.col("table") == PULLS))
    removed = claims.where(fn.col("claim") == "removed").groupBy("log", "manifest").agg(size.alias("removed"))
    rows = spans.groupBy("log", "manifest").agg(size.alias("rows")).join(removed, ["log", "manifest"], "left")
    return rows.select("log", "manifest", (fn.col("rows") - fn.coalesce("removed", fn.lit(0))).alias("expected"))


def _doubtful(claims: DataFrame, quarantined: Sequence[str], missing: DataFrame, *, lost: bool) -> DataFrame:
    removed = claims.where(fn.col("claim").isin("unreadable", "removed")).select(
        "log", "start", "end", fn.col("claim").alias("why")
    )
    unread = claims.where((fn.col("claim") == "part") & fn.col("key").isin(list(quarantined)))
    fewer = claims.where(fn.col("claim") == "span").join(missing.select("log", "manifest"), ["log", "manifest"])
    reasons = [(unread, "quarantined"), (fewer, "missing"), *([(_gaps(claims), "lost")] if lost else [])]
    for frame, why in reasons:
        removed = removed.unionByName(frame.select("log", "start", "end", fn.lit(why).alias("why")))
    return removed


def _gaps(claims: DataFrame) -> DataFrame:
    """Returns the rows between the spans of each log: a manifest that was lost had them."""
    spans = claims.where(fn.col("claim") == "span")
    before = Window.partitionBy("table", "log").orderBy("start").rowsBetween(Window.unboundedPreceding, -1)
    ends = spans.select("log", "start", fn.max("end").over(before).alias("known"))
    gaps = ends.where(fn.col("start") > fn.col("known"))
    return gaps.select("log", fn.col("known").alias("start"), fn.col("start").alias("end"))


def groups_of(snapshots: DataFrame) -> DataFrame:
    """Returns one row for each group in the snapshots. ``alive``: the newest snapshot has the group, not deleted."""
    newest = snapshots.agg(fn.max("manifest").alias("newest"))
    every = (
        snapshots.where(fn.col("group").isNotNull())
        .groupBy(*GROUP)
        .agg(
            fn.max("manifest").alias("last"),
            fn.max_by("alive", "manifest").alias("alive"),
            # The largest of all snapshots: the limit may have been higher when the message was retried.
            fn.max("max_attempts").alias("max_attempts"),
            fn.min("created_at").alias("created_at"),
        )
    )
    alive = fn.col("alive") & (fn.col("last") == fn.col("newest"))
    every = every.crossJoin(newest).withColumn("alive", alive).drop("last", "newest")
    return every.join(_parts(snapshots), list(GROUP), "left")


def _parts(snapshots: DataFrame) -> DataFrame:
    """Returns the logs that each group has read. Snapshots list a log of a queue until it has expired, and no later log
    has its name."""
    following = fn.lead("at").over(Window.partitionBy(*GROUP).orderBy("manifest"))
    parts = snapshots.where(fn.col("group").isNotNull()).withColumn("following", following)
    parts = parts.select(*GROUP, "manifest", "following", fn.inline("parts"))
    once = parts.groupBy(*GROUP, "log").agg(
        fn.max("queue").alias("queue"),
        fn.max("start").alias("start"),
        fn.max_by("origin", "manifest").alias("origin"),
        fn.max_by("following", "manifest").alias("gone_at"),
    )
    part = fn.struct("log", "queue", "start", "origin", "gone_at")
    return once.groupBy(*GROUP).agg(fn.sort_array(fn.collect_list(part)).alias("parts"))


def _chains(groups: DataFrame) -> DataFrame:
    member, owner = fn.concat_ws("~", "group", "group_generation"), fn.concat_ws("~", "subject", "generation")
    queues = groups.select(member.alias("member"), fn.explode("parts").alias("part"))
    retries = groups.select(
        fn.concat(member, fn.lit("@"), owner, fn.lit("/retry/"), member).alias("log"),
        fn.lit(0).cast("bigint").alias("origin"),
    )
    logs = fn.concat("member", fn.lit("@"), "part.log")
    return queues.select(logs.alias("log"), fn.col("part.origin").alias("origin")).unionByName(retries)
