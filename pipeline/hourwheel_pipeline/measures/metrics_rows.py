"""Puts the measures of subjects and groups together, as rows of the table ``metrics``."""

from functools import reduce
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.checks.coverage import moment
from hourwheel_pipeline.judging.checks.evidence import Evidence
from hourwheel_pipeline.lake.schemas import TIMESTAMP
from hourwheel_pipeline.measures import groups as by_group
from hourwheel_pipeline.measures import subjects as by_subject
from hourwheel_pipeline.measures.hours import PERCENTILES
from hourwheel_pipeline.measures.lags import Lags
from hourwheel_pipeline.reporting.steps import step_for

_LONG = pa.int64()
_TIMES: Final = ("late", "pull", "settle", "total")
_KEYS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("messages", _LONG)]))

VALUES: Final = {
    **dict.fromkeys(("accepted", "accepted_bytes", "scheduled", "dispatched", "due"), _LONG),
    **dict.fromkeys(("delivered", "settled", "retried", "released", "dead", "lag"), _LONG),
    "attempts_mean": pa.float64(),
    "attempts_max": pa.int32(),
    **{f"{time}_{share}_ms": _LONG for time in _TIMES for share in PERCENTILES},
    "hot_keys": _KEYS,
}
SCHEMA: Final = pa.schema(
    [
        pa.field("day", pa.date32(), nullable=False),
        pa.field("hour", TIMESTAMP, nullable=False),
        pa.field("step_seconds", pa.int32(), nullable=False),
        pa.field("computed_at", TIMESTAMP, nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("group", pa.string()),
        *(pa.field(name, kind) for name, kind in VALUES.items()),
    ]
)
"""``day`` is the day of ``hour``. ``step_seconds`` is 3,600. While all stored messages span at most 60 hours, each run
also adds rows of shorter steps: ``hour`` is then the time at which the step begins."""


SORTED_BY: Final = ("subject", "group", "hour")


def rows_of(
    evidence: Evidence, lags: Lags, horizon_ms: int, oldest_ms: int | None, hot_keys: int, now_ms: int
) -> DataFrame:
    """Returns the rows of the table for all hours of the evidence. ``oldest_ms``: the time of the first message; if it
    is close to the horizon, rows of shorter steps too. ``hot_keys``: the number of keys to name."""
    hours = _table(_measured(evidence, lags, horizon_ms, hot_keys), HOUR_MS, now_ms)
    step_ms = step_for(0 if oldest_ms is None else max(0, horizon_ms - oldest_ms))
    if step_ms >= HOUR_MS:
        return hours
    fine = _measured(evidence, lags, horizon_ms, 0, step_ms)
    return hours.unionByName(_table(fine, step_ms, now_ms), allowMissingColumns=True)


def _measured(evidence: Evidence, lags: Lags, horizon_ms: int, hot_keys: int, step_ms: int = HOUR_MS) -> DataFrame:
    """Returns the values of each hour, or of each step of ``step_ms``, by subject and group; a value that does not
    apply is null. Keys, and messages that are due later, are counted by the hour alone."""
    horizon = moment(horizon_ms)
    deliveries = evidence.keep(by_group.deliveries(evidence))
    by_hour = [by_subject.hot_keys(evidence.raw_messages, hot_keys), by_subject.due(evidence, horizon)]
    frames = [
        *(by_hour if step_ms == HOUR_MS else ()),
        by_subject.accepted(evidence.raw_messages, step_ms),
        by_subject.scheduled(evidence, step_ms),
        by_subject.dispatched(evidence, step_ms),
        by_group.delivered(deliveries, step_ms),
        by_group.settled(deliveries, step_ms),
        by_group.moved(evidence, step_ms),
        lags.by_hour(horizon, step_ms),
    ]
    joined: DataFrame = reduce(lambda rows, more: rows.unionByName(more, allowMissingColumns=True), frames)
    values = [fn.max(name).alias(name) for name in VALUES if name in joined.columns]
    return joined.groupBy("hour", "subject", "group").agg(*values)


def _table(rows: DataFrame, step_ms: int, now_ms: int) -> DataFrame:
    step, computed_at = fn.lit(step_ms // 1_000).alias("step_seconds"), moment(now_ms).alias("computed_at")
    identity = (fn.to_date("hour").alias("day"), "hour", step, computed_at, "subject", "group")
    return rows.select(*identity, *(name for name in VALUES if name in rows.columns))
