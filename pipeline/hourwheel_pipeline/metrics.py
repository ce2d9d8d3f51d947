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
from hourwheel.errors import NotFound
from hourwheel_pipeline.basis import digest_of, quiet_horizon
from hourwheel_pipeline.checks.claims import Archive, claims, groups
from hourwheel_pipeline.checks.coverage import archive_times, groups_of, moment
from hourwheel_pipeline.checks.evidence import Evidence, evidence_of, start_ms
from hourwheel_pipeline.days import Days
from hourwheel_pipeline.lake import NAMESPACE, Lake
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.measures import groups as by_group
from hourwheel_pipeline.measures import subjects as by_subject
from hourwheel_pipeline.measures.hours import PERCENTILES
from hourwheel_pipeline.reporting.steps import step_for
from hourwheel_pipeline.schemas import QUEUE, SCHEMAS, TIMESTAMP
from hourwheel_pipeline.writing import sized

__all__ = ["Measured", "MetricsOptions", "run"]

TABLE: Final = "metrics"
NOTE: Final = "hourwheel.measured"
"""The note of the table with what the last run did, a ``_Note``."""

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
        pa.field("step_seconds", pa.int32(), nullable=False),
        pa.field("computed_at", TIMESTAMP, nullable=False),
        pa.field("subject", pa.string(), nullable=False),
        pa.field("group", pa.string()),
        *(pa.field(name, kind) for name, kind in VALUES.items()),
    ]
)
"""``day`` is that of ``hour``. ``step_seconds``: 3,600. Where all that was stored spans a few hours, the newest run
tells it in finer steps as well: ``hour`` is where a step begins then."""


class MetricsOptions(Days):
    """The options of ``metrics``. ``archive`` and ``lake`` are a folder or ``s3://bucket/prefix``.

    The job computes the hours from the day ``since`` on, also those that it computed before; without ``since``, the
    hours from two days before the last run's horizon on, of at most ``days``. It names at most ``hot_keys`` keys for
    each hour and subject.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> metrics.MetricsOptions(archive="orders-data/archive", lake="orders-data/lake").hot_keys
        10
    """

    archive: str
    lake: str
    namespace: str = NAMESPACE
    region: str | None = None
    endpoint_url: str | None = None
    hot_keys: PositiveInt = 10


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``metrics``: it added ``rows`` to the table, about messages stored before ``horizon_ms`` (Unix
    milliseconds).

    Example:
        >>> options = metrics.MetricsOptions(archive="orders-data/archive", lake="orders-data/lake")
        >>> metrics.run(spark, options, now_ms).rows > 0
        True
    """

    computed_ms: int
    horizon_ms: int
    rows: int


class _Note(Measured, frozen=True, kw_only=True):
    """A report, and what the next run needs. ``basis``: of what the rows were computed, from manifests up to
    ``through``."""

    basis: str = ""
    through: int = -1


def run(spark: SparkSession, options: MetricsOptions, now_ms: int) -> Measured:
    """Adds the metrics of each hour, by subject and by group, to their table. ``now_ms`` is the time of the run, in
    Unix milliseconds.

    Raises:
        Broken: the lake was copied or moved, or another version wrote its tables.

    Example:
        >>> options = metrics.MetricsOptions(archive="orders-data/archive", lake="orders-data/lake")
        >>> metrics.run(spark, options, now_ms).computed_ms == now_ms
        True
    """
    opened = Lake.open(
        options.lake, namespace=options.namespace, region=options.region, endpoint_url=options.endpoint_url
    )
    with closing(opened) as lake:
        lake.ensure(TABLE, SCHEMA, partition=("day",), sorted_by=("subject", "group", "hour"))
        with sized(spark, lake.size(SCHEMAS)):
            return _run(spark, lake, options, now_ms)


def _run(spark: SparkSession, lake: Lake, options: MetricsOptions, now_ms: int) -> Measured:
    last_manifest = {name: lake.last_manifest(name) for name in SCHEMAS}
    archive = Archive(options.archive, max(last_manifest.values()), options.region, options.endpoint_url)
    _, horizon_ms = archive_times(claims(spark, archive), min(last_manifest.values()))
    basis = _basis(lake, options)
    evidence = evidence_of(spark, lake, last_manifest)
    rows = _rows(evidence, groups(spark, archive), horizon_ms, options, now_ms)
    rows = evidence.keep(rows.where(fn.col("hour") >= moment(first_ms(options, _last(lake), now_ms))))
    found = Measured(computed_ms=now_ms, horizon_ms=horizon_ms, rows=rows.count())
    note = _Note(**msgspec.structs.asdict(found), basis=basis, through=min(last_manifest.values()))
    lake.append(TABLE, rows, notes={NOTE: msgspec.json.encode(note).decode()})
    evidence.forget()
    return found


def idle(options: MetricsOptions, now_ms: int) -> Measured | None:
    """The report where every hour was told, and none has begun since; nothing is written."""
    found = Lake.find(
        options.lake, namespace=options.namespace, region=options.region, endpoint_url=options.endpoint_url
    )
    if found is None or options.since is not None:
        return None
    with closing(found) as lake:
        last = _last(lake)
        if last is None or last.basis != _basis(lake, options):
            return None
        archive = blobs_at(options.archive, options.region, options.endpoint_url)
        last_manifest = max(lake.last_manifest(name) for name in SCHEMAS)
        horizon_ms = quiet_horizon(archive, last.through + 1, last_manifest, last.horizon_ms)
        if horizon_ms is None or horizon_ms // HOUR_MS != last.horizon_ms // HOUR_MS:
            return None
        return Measured(computed_ms=now_ms, horizon_ms=horizon_ms, rows=0)


def _basis(lake: Lake, options: MetricsOptions) -> str:
    return digest_of(lake, options.hot_keys, options.days)


def _last(lake: Lake) -> _Note | None:
    try:
        note = lake.notes(TABLE).get(NOTE)
    except NotFound:
        return None
    return None if note is None else msgspec.json.decode(note, type=_Note)


def first_ms(options: MetricsOptions, last: Measured | None, now_ms: int) -> int:
    """From when on hours are told; ``last``: what the run before did."""
    day = options.first_day(now_ms)
    asked_ms = 0 if day is None else start_ms(day)
    if options.since is not None or last is None:
        return asked_ms
    return max(asked_ms, last.horizon_ms // HOUR_MS * HOUR_MS - _SETTLED_MS)


def _rows(evidence: Evidence, catalogs: DataFrame, horizon_ms: int, options: MetricsOptions, now_ms: int) -> DataFrame:
    hours = _table(measured(evidence, catalogs, horizon_ms, options.hot_keys), HOUR_MS, now_ms)
    step_ms = step_for(_span_ms(evidence, horizon_ms))
    if step_ms >= HOUR_MS:
        return hours
    fine = measured(evidence, catalogs, horizon_ms, 0, step_ms)
    return hours.unionByName(_table(fine, step_ms, now_ms), allowMissingColumns=True)


def _span_ms(evidence: Evidence, horizon_ms: int) -> int:
    """From the first message that came into a queue to the horizon."""
    first = evidence.messages.where(fn.col("kind") == QUEUE).agg(fn.min(fn.unix_millis("accepted_at"))).first()
    return 0 if first is None or first[0] is None else max(0, horizon_ms - first[0])


def measured(
    evidence: Evidence, catalogs: DataFrame, horizon_ms: int, hot_keys: int, step_ms: int = HOUR_MS
) -> DataFrame:
    """Hour, or a step of that length; subject, group, and the values: null where there is nothing to tell. What comes
    later is told by the hour alone, and so are keys."""
    horizon = moment(horizon_ms)
    handed = evidence.keep(by_group.deliveries(evidence))
    by_hour = [by_subject.hot_keys(evidence.raw_messages, hot_keys), by_subject.due(evidence, horizon)]
    frames = [
        *(by_hour if step_ms == HOUR_MS else ()),
        by_subject.accepted(evidence.raw_messages, step_ms),
        by_subject.scheduled(evidence, step_ms),
        by_subject.dispatched(evidence, step_ms),
        by_group.delivered(handed, step_ms),
        by_group.settled(handed, step_ms),
        by_group.moved(evidence, step_ms),
        by_group.lag(evidence, groups_of(catalogs), horizon, step_ms),
    ]
    every: DataFrame = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
    values = [fn.max(name).alias(name) for name in VALUES if name in every.columns]
    return every.groupBy("hour", "subject", "group").agg(*values)


def _table(rows: DataFrame, step_ms: int, now_ms: int) -> DataFrame:
    step, told = fn.lit(step_ms // 1_000).alias("step_seconds"), moment(now_ms).alias("computed_at")
    first = (fn.to_date("hour").alias("day"), "hour", step, told, "subject", "group")
    return rows.select(*first, *(name for name in VALUES if name in rows.columns))
