"""Counts the rows and messages that the report names besides the findings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as fn

from hourwheel_pipeline.judging.checks.evidence import Evidence
from hourwheel_pipeline.lake.schemas import DEAD, DISPATCHES, MESSAGES, PULLS, QUEUE


class RowCounts(NamedTuple):
    """The numbers of rows by table and kind, and of messages that were accepted, delivered and given up."""

    rows: dict[str, int]
    totals: dict[str, int]

    def plus(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(_sum(self.rows, other.rows), _sum(self.totals, other.totals))


EVERY_DAY = ""
"""The key of counts that are not divided by day."""


def added(first: Mapping[str, RowCounts], second: Mapping[str, RowCounts]) -> dict[str, RowCounts]:
    """Returns the sums of counts by day."""
    none = RowCounts({}, {})
    return {day: first.get(day, none).plus(second.get(day, none)) for day in dict.fromkeys([*first, *second])}


def summed(counts: Mapping[str, RowCounts]) -> RowCounts:
    """Returns the counts of all days together."""
    none = RowCounts({PULLS: 0, DISPATCHES: 0}, {"accepted": 0, "delivered": 0, "dead": 0})
    rows, totals = reduce(RowCounts.plus, counts.values(), none)
    return RowCounts(dict(sorted(rows.items())), totals)


def since_day(counts: Mapping[str, RowCounts], day: date) -> dict[str, RowCounts]:
    """Returns the counts of the days from ``day`` on."""
    return {text: of_day for text, of_day in counts.items() if text >= day.isoformat()}


def count_rows(evidence: Evidence, after: Mapping[str, int], *, by_day: bool) -> dict[str, RowCounts]:
    """Counts the rows that each table took from the manifests ``after`` this number, ``by_day`` on which they were
    stored, or of all days together."""
    messages, pulls, dispatches = (
        frame.where(fn.col("manifest") > after[table])
        for table, frame in (
            (MESSAGES, evidence.messages),
            (PULLS, evidence.pulls),
            (DISPATCHES, evidence.dispatches),
        )
    )
    counts: dict[str, RowCounts] = {}
    for day, kind, count in _grouped(messages, "accepted_at", "kind", by_day=by_day):
        totals = {name: count for name, of_kind in (("accepted", QUEUE), ("dead", DEAD)) if kind == of_kind}
        counts = added(counts, {day: RowCounts({f"messages {kind}": count}, totals)})
    # Of the messages that a pull covers: those that it kept and did not hand out went to the retry log.
    delivered = fn.sum(_number(fn.col("counts")) - _handed_over())
    for day, count, settled in _grouped(pulls, "closed_at", by_day=by_day, also=[delivered]):
        counts = added(counts, {day: RowCounts({PULLS: count}, {"delivered": settled})})
    for day, count in _grouped(dispatches, "at", by_day=by_day):
        counts = added(counts, {day: RowCounts({DISPATCHES: count}, {})})
    return counts


def _grouped(frame: DataFrame, at: str, *names: str, by_day: bool, also: Sequence[Column] = ()) -> list[Row]:
    day = fn.date_format(at, "yyyy-MM-dd") if by_day else fn.lit(EVERY_DAY)
    return frame.groupBy(day.alias("day"), *names).agg(fn.count("*"), *also).collect()


def _number(counts: Column) -> Column:
    return fn.aggregate(counts, fn.lit(0), lambda total, count: total + count)


def _handed_over() -> Column:
    """Returns the number of messages of a pull that went to other logs."""
    return fn.aggregate("moved", fn.lit(0), lambda count, move: count + fn.size(move["picks"]))


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return dict(Counter(first) + Counter(second)) | {name: 0 for name in first if not first[name] + second.get(name, 0)}
