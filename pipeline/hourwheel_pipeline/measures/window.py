"""Reads the rows from which the hours since a moment follow, whatever the age of the lake.

    pulls       closed since the moment, and older ones that covered the same rows: a row counts as delivered once
    messages    stored since the moment, and older ones that these pulls handed out
                of schedule logs, those that wait, or were handed over or cancelled since
    dispatches  made since the moment

A pull may have handed out rows of any age, because its group was behind or was sought back. The manifests say when such
a row was stored at the earliest; only the subject of the pull is then read from that day on.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from hourwheel.model.log_names import SCHEDULE_PREFIX
from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.changed_subjects import day_of
from hourwheel_pipeline.judging.checks.claims import Archive, claims
from hourwheel_pipeline.judging.checks.coverage import moment
from hourwheel_pipeline.judging.checks.evidence import Evidence
from hourwheel_pipeline.lake.schemas import CANCEL_MARKER, DISPATCHES, MESSAGES, PULLS, QUEUE, RETRY, SCHEDULE
from hourwheel_pipeline.lake.tables import Lake

_DAY: Final = timedelta(days=1)
_SKEW_MS: Final = HOUR_MS
"""Clocks of writers differ by less."""


@dataclass(frozen=True)
class Reader:
    """Reads the rows that each table has of the manifests up to its ``last_manifest``. ``subjects``: None for all."""

    spark: SparkSession
    lake: Lake
    archive: Archive
    last_manifest: dict[str, int]
    subjects: Collection[str] | None

    def window(self, since_ms: int) -> Evidence:
        """Returns the rows from which the hours since ``since_ms`` follow. The caller frees the frames."""
        since_ms -= _SKEW_MS
        # Most pulls of the first hours handed out messages of the day before.
        first = day_of(since_ms) - _DAY
        pulls, messages = self._rows(PULLS, first - _DAY), self._rows(MESSAGES, first)
        dispatches = self._rows(DISPATCHES, day_of(since_ms))
        closed = pulls.where((fn.col("closed_at") >= moment(since_ms)) & (fn.col("outcome") != "sought"))
        needed = closed.groupBy("subject", fn.col("source").alias("log")).agg(fn.min("first_row").alias("from_row"))
        needed = needed.persist()
        older = self._older(needed, messages, first)
        if older is not None:
            pulls, messages = pulls.unionByName(older[PULLS]), messages.unionByName(older[MESSAGES])
        waiting = self._waiting(dispatches, since_ms, first)
        return Evidence(
            _since(messages, needed, since_ms).unionByName(waiting),
            _covering(pulls, needed, since_ms),
            dispatches,
            [needed],
        )

    def history(self, subjects: Collection[str]) -> DataFrame:
        """Returns all messages of these subjects."""
        rows = self.lake.read(self.spark, MESSAGES, subjects=subjects)
        return rows.where(fn.col("manifest") <= self.last_manifest[MESSAGES])

    def _rows(
        self,
        table: str,
        since: date | None,
        until: date | None = None,
        subjects: Collection[str] | None = None,
        where: str | None = None,
    ) -> DataFrame:
        wanted = self.subjects if subjects is None else subjects
        named = None if wanted is None else {*wanted, ""}
        rows = self.lake.read(self.spark, table, since, until, subjects=named, where=where)
        return rows.where(fn.col("manifest") <= self.last_manifest[table])

    def _older(self, needed: DataFrame, messages: DataFrame, first: date) -> dict[str, DataFrame] | None:
        """Returns the messages and pulls of the days before ``first`` in subjects of which rows are needed that were
        stored then; None if there are none."""
        known = messages.where(fn.col("kind").isin(QUEUE, RETRY)).groupBy("log").agg(fn.min("row").alias("known"))
        gaps = needed.join(known, "log", "left").where("known is null or from_row < known")
        archived = claims(self.spark, self.archive).where((fn.col("claim") == "part") & (fn.col("table") == MESSAGES))
        behind = (fn.col("known").isNull() | (fn.col("start") < fn.col("known"))) & (fn.col("end") > fn.col("from_row"))
        stored = archived.select("log", "start", "end", "at").join(fn.broadcast(gaps), "log").where(behind)
        before = stored.where(fn.col("at") < fn.lit(datetime(first.year, first.month, first.day, tzinfo=UTC)))
        # To see that none is needed takes less than to read all manifests.
        by_subject = before.groupBy("subject").agg(fn.min(fn.unix_millis("at")).alias("at"))
        oldest = [] if gaps.isEmpty() else by_subject.collect()
        if not oldest:
            return None
        names, day = {row["subject"] for row in oldest}, day_of(min(row["at"] for row in oldest)) - _DAY
        return {
            MESSAGES: self._rows(MESSAGES, day, first, names).where(fn.col("kind").isin(QUEUE, RETRY)),
            PULLS: self._rows(PULLS, day, first - _DAY, names),
        }

    def _waiting(self, dispatches: DataFrame, since_ms: int, first: date) -> DataFrame:
        """Returns the messages of schedule logs, and their cancel markers, that were stored before ``first`` and wait,
        or were handed over in the window."""
        named = dispatches.where(fn.col("source_log").startswith(SCHEDULE_PREFIX)).agg(fn.min("source_log")).first()
        log = f"{SCHEDULE_PREFIX}{max(0, since_ms - HOUR_MS):013d}"
        if named is not None and named[0] is not None:
            log = min(log, named[0])
        begun_ms = int(log.removeprefix(SCHEDULE_PREFIX)[:13])
        begun = datetime.fromtimestamp(begun_ms / 1_000, UTC).isoformat(timespec="milliseconds")
        wanted = {SCHEDULE: f"kind = '{SCHEDULE}' and due_at >= '{begun}'"}
        wanted[CANCEL_MARKER] = f"kind = '{CANCEL_MARKER}' and log >= '{log}'"
        frames = (
            self._rows(MESSAGES, None, first, where=where).where((fn.col("kind") == kind) & (fn.col("log") >= log))
            for kind, where in wanted.items()
        )
        return reduce(DataFrame.unionByName, frames)


def _since(messages: DataFrame, needed: DataFrame, since_ms: int) -> DataFrame:
    """Returns the messages that were stored since, those that are needed, and all that are in no queue or retry log."""
    from_row = fn.broadcast(needed.select("log", "from_row"))
    wanted = (fn.col("accepted_at") >= moment(since_ms)) | ~fn.col("kind").isin(QUEUE, RETRY)
    joined = messages.join(from_row, "log", "left")
    return joined.where(wanted | (fn.col("row") >= fn.col("from_row"))).select(*messages.columns)


def _covering(pulls: DataFrame, needed: DataFrame, since_ms: int) -> DataFrame:
    """Returns the pulls that were closed since, and those that covered rows that are needed."""
    from_row = fn.broadcast(needed.select(fn.col("log").alias("source"), "from_row"))
    joined = pulls.join(from_row, "source", "left")
    wanted = (fn.col("closed_at") >= moment(since_ms)) | (fn.col("end_row") >= fn.col("from_row"))
    return joined.where(wanted).select(*pulls.columns)
