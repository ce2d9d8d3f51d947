"""Computes the lag of groups, from the evidence of a run and from the ends of logs that the last run left."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.checks.coverage import groups_of, moment
from hourwheel_pipeline.judging.checks.evidence import Evidence
from hourwheel_pipeline.measures.groups import begun, lag, origins, pull_logs
from hourwheel_pipeline.measures.log_ends import COLUMNS, ORIGIN, STORED, carried, ends_of, kept


class LastEnds(NamedTuple):
    """The ends that the last run left. The evidence has all rows from ``cut_ms`` on of ``subjects`` (None: of all).
    ``history`` reads all messages of some subjects."""

    ends: DataFrame
    cut_ms: int
    subjects: Collection[str] | None
    history: Callable[[Collection[str]], DataFrame]


@dataclass(frozen=True)
class Lags:
    """The lag of the groups in ``snapshots``. ``last``: None if the evidence has all rows."""

    evidence: Evidence
    snapshots: DataFrame
    last: LastEnds | None

    def by_hour(self, horizon: Column, step_ms: int = HOUR_MS) -> DataFrame:
        """Returns the lag at the end of each hour of which the evidence has all rows, by subject and group."""
        logs = self._pull_logs(step_ms)
        if self.last is None:
            ends = self._ends if step_ms == HOUR_MS else ends_of(self.evidence, step_ms)
            return lag(ends, begun(logs, origins(logs, self.evidence.messages)), horizon, step_ms)
        return lag(self._every_end, begun(logs, self._origins(logs)), horizon, step_ms, self.last.cut_ms - HOUR_MS)

    def left(self, keep_ms: int) -> DataFrame:
        """Returns the ends from which a later run computes the lag of the hours from ``keep_ms`` on."""
        logs = self._pull_logs()
        found = origins(logs, self.evidence.messages) if self.last is None else self._origins(logs)
        # Rows that were stored before a group was created may still have been on their way to the archive.
        settled = logs.where(fn.col("made") < moment(keep_ms)).join(found, "log")
        begins = settled.withColumns(
            {
                "kind": fn.lit(ORIGIN),
                "hour_ms": fn.unix_millis("made"),
                "offset": fn.col("origin"),
                "row": fn.lit(None).cast("bigint"),
            }
        )
        return kept(self._every_end.unionByName(begins.select(*COLUMNS)).distinct(), keep_ms)

    @cached_property
    def _ends(self) -> DataFrame:
        return self.evidence.keep(ends_of(self.evidence))

    @cached_property
    def _every_end(self) -> DataFrame:
        if self.last is None:
            return self._ends
        return self.evidence.keep(carried(self.last.ends, self._ends, self.last.subjects, self.last.cut_ms))

    def _pull_logs(self, step_ms: int = HOUR_MS) -> DataFrame:
        logs = pull_logs(groups_of(self.snapshots), step_ms)
        if self.last is None or self.last.subjects is None:
            return logs
        return logs.where(fn.col("subject").isin(list(self.last.subjects)))

    def _origins(self, logs: DataFrame) -> DataFrame:
        """Returns the offsets at which groups begin: those that the last run knew, and those of new groups. Most of
        these begin behind the last row of which the last run kept the end."""
        assert self.last is not None
        ends = self.last.ends
        known = ends.where(fn.col("kind") == ORIGIN).select("log", fn.col("offset").alias("origin"))
        before = ends.where((fn.col("kind") == STORED) & (fn.col("hour_ms") < self.last.cut_ms))
        last_end = before.groupBy(fn.col("log").alias("source")).agg(
            fn.max_by("offset", "hour_ms").alias("end"), fn.max("row").alias("end_row")
        )
        new = logs.where("origin_row > 0").join(known, "log", "left_anti").join(last_end, "source", "left")
        new = self.evidence.keep(new)
        near, far = new.where("end_row is null or origin_row >= end_row"), new.where("origin_row < end_row")
        later = near.select("log", "end").join(origins(near, self.evidence.messages), "log", "left")
        found = later.select("log", fn.greatest("end", "origin").alias("origin")).where("origin is not null")
        subjects = {row["subject"] for row in far.select("subject").distinct().collect()}
        if subjects:
            found = found.unionByName(origins(far, self.last.history(subjects)))
        return known.unionByName(found)
