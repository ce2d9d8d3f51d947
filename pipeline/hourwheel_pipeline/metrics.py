"""Metrics: what each subject took in and each group got done in each hour, and how long it took.

A row of the table ``metrics`` is an hour of a subject (``group`` is null) or of a group:

    subject    accepted, accepted_bytes, hot_keys     what came into its queues
               scheduled                              sent to be delivered later
               dispatched, late_*_ms                  delayed messages that came, and how late
               due                                    delayed messages that are still to come, in hours to come
    group      delivered, attempts_*                  handed out, how often that was tried
               settled, retried, released, dead       what became of it
               pull_*_ms                              from when it was accepted to when it was first handed out
               settle_*_ms, total_*_ms                from then, and from when it was accepted, to when it was settled
               lag                                    messages before it at the end of the hour

A delayed message counts as accepted when it comes. Each run adds its rows with its ``computed_at``; of an hour the
newest ones hold. What an earlier run told of hours long before its horizon stays true, and is not told again.
"""

from contextlib import closing
from functools import reduce
from typing import Final

import msgspec
import pyarrow as pa
from pydantic import PositiveInt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from hourwheel.archive.segments import HOUR_MS
from hourwheel_pipeline.checks.claims import Archive, claims, groups
from hourwheel_pipeline.checks.evidence import Evidence, evidence_of, start_ms
from hourwheel_pipeline.checks.known import archive_times, groups_of, moment
from hourwheel_pipeline.days import Days
from hourwheel_pipeline.lake import NAMESPACE, Lake
from hourwheel_pipeline.measures import groups as by_group
from hourwheel_pipeline.measures import subjects as by_subject
from hourwheel_pipeline.measures.hours import PERCENTILES
from hourwheel_pipeline.schemas import SCHEMAS, TIMESTAMP

TABLE: Final = "metrics"
NOTE: Final = "hourwheel.measured"
"""The note of the table with what the last run did, a ``Measured``."""

_SETTLED_MS = 48 * HOUR_MS
"""So long before the horizon hours may still change: pulls are told once they are closed."""

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
        pa.field("computed_at", TIMESTAMP, nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("group", pa.string()),
        *(pa.field(name, kind) for name, kind in VALUES.items()),
    ]
)
"""``day`` is that of ``hour``."""


class MetricsOptions(Days):
    """``since``: the day from which on hours are told, whatever was told before; without it, those since two days
    before the last run's horizon, and no more than ``days``. The lake is read whole. ``hot_keys``: so many for each
    hour and subject."""

    archive: str
    lake: str
    namespace: str = NAMESPACE
    region: str | None = None
    endpoint_url: str | None = None
    hot_keys: PositiveInt = 10


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """``rows`` were added, about what was stored before ``horizon_ms``."""

    computed_ms: int
    horizon_ms: int
    rows: int


def run(spark: SparkSession, options: MetricsOptions, now_ms: int) -> Measured:
    opened = Lake.open(
        options.lake, namespace=options.namespace, region=options.region, endpoint_url=options.endpoint_url
    )
    with closing(opened) as lake:
        lake.ensure(TABLE, SCHEMA, partition=("day",), sorted_by=("subject", "group", "hour"))
        through = {name: lake.through(name) for name in SCHEMAS}
        archive = Archive(options.archive, max(through.values()), options.region, options.endpoint_url)
        _, horizon_ms = archive_times(claims(spark, archive), min(through.values()))
        evidence = evidence_of(spark, lake, through)
        rows = evidence.keep(_table(measured(evidence, groups(spark, archive), horizon_ms, options.hot_keys), now_ms))
        rows = rows.where(fn.col("hour") >= moment(first_ms(options, _last(lake), now_ms)))
        found = Measured(computed_ms=now_ms, horizon_ms=horizon_ms, rows=rows.count())
        lake.append(TABLE, rows, notes={NOTE: msgspec.json.encode(found).decode()})
        evidence.forget()
        return found


def _last(lake: Lake) -> Measured | None:
    note = lake.notes(TABLE).get(NOTE)
    return None if note is None else msgspec.json.decode(note, type=Measured)


def first_ms(options: MetricsOptions, last: Measured | None, now_ms: int) -> int:
    """From when on hours are told; ``last``: what the run before did."""
    day = options.first_day(now_ms)
    asked_ms = 0 if day is None else start_ms(day)
    if options.since is not None or last is None:
        return asked_ms
    return max(asked_ms, last.horizon_ms // HOUR_MS * HOUR_MS - _SETTLED_MS)


def measured(evidence: Evidence, catalogs: DataFrame, horizon_ms: int, hot_keys: int) -> DataFrame:
    """Hour, subject, group, and the values: null where there is nothing to tell."""
    horizon = moment(horizon_ms)
    handed = evidence.keep(by_group.deliveries(evidence))
    frames = [
        by_subject.accepted(evidence.raw_messages),
        by_subject.hot_keys(evidence.raw_messages, hot_keys),
        by_subject.scheduled(evidence),
        by_subject.dispatched(evidence),
        by_subject.due(evidence, horizon),
        by_group.delivered(handed),
        by_group.settled(handed),
        by_group.moved(evidence),
        by_group.lag(evidence, groups_of(catalogs), horizon),
    ]
    every = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    return every.groupBy("hour", "subject", "group").agg(*(fn.max(name).alias(name) for name in VALUES))


def _table(rows: DataFrame, now_ms: int) -> DataFrame:
    first = (fn.to_date("hour").alias("day"), "hour", moment(now_ms).alias("computed_at"), "subject", "group")
    return rows.select(*first, *VALUES)
