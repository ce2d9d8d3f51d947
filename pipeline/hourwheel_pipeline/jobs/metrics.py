"""Computes metrics by the hour: how many messages each subject accepted, how many each group pulled and settled, and
the times that this took.

A row of the table ``metrics`` is an hour of a subject (``group`` is null) or of a group:

    subject    accepted, accepted_bytes, hot_keys     messages that came into its queues
               scheduled                              messages that were sent with a delay
               dispatched, late_*_ms                  delayed messages that were handed over, and their lateness
               due                                    delayed waiting messages, by the hour in which they are due
    group      delivered, attempts_*                  messages that were handed out, and their attempts
               settled, retried, released, dead       how these messages were settled
               pull_*_ms                              time from the acceptance to the first pull
               settle_*_ms                            time from the pull to the acknowledgement
               total_*_ms                             time from the acceptance to the acknowledgement
               lag                                    messages that the group has not pulled at the end of the hour

A delayed message counts as accepted when a wheel hands it over to its queue. Each run adds rows with its
``computed_at``; if several runs computed an hour, the newest row holds.

A run reads only the subjects whose hours may have changed since the last run (``changed_subjects.py``). It computes
their hours from two days before the last horizon on, or from the earliest new row on. A small lake is read as a whole.
While all stored messages span at most 60 hours, a run computes everything.
"""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import reduce
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pydantic import PositiveInt
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from hourwheel.errors import NotFound
from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.basis import digest_of, quiet_horizon
from hourwheel_pipeline.judging.changed_subjects import (
    MAX_SUBJECTS,
    ChangeSearch,
    ChangesUnknown,
    TableState,
    day_of,
    earliest_new_ms,
    is_small,
    states_of,
)
from hourwheel_pipeline.judging.checks.claims import Archive, claims, groups
from hourwheel_pipeline.judging.checks.coverage import archive_times, groups_of, moment
from hourwheel_pipeline.judging.checks.evidence import Evidence, evidence_of, start_ms
from hourwheel_pipeline.lake.schemas import QUEUE, SCHEMAS, TIMESTAMP
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.lake.writing import sized
from hourwheel_pipeline.measures import groups as by_group
from hourwheel_pipeline.measures import subjects as by_subject
from hourwheel_pipeline.measures.hours import PERCENTILES
from hourwheel_pipeline.reporting.steps import step_for
from hourwheel_pipeline.runs.job_options import ArchiveOptions, Days
from hourwheel_pipeline.runs.progress import stage
from hourwheel_pipeline.runs.words import counted

__all__ = ["Measured", "MetricsOptions", "run"]

TABLE: Final = "metrics"
PROPERTY: Final = "hourwheel.measured"
"""The note of the table with the report of the last run, a ``_LastMetrics``."""

_SETTLED_MS = 48 * HOUR_MS
"""Hours may change until this long before the horizon: a pull is archived once it is closed, at most a day after its
claim."""

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


class MetricsOptions(Days, ArchiveOptions):
    """The options of ``metrics``. ``archive`` and ``lake`` are a folder or ``s3://bucket/prefix``.

    The job computes the hours from the day ``since`` on, also those that it computed before. Without ``since`` it
    computes the hours from two days before the last run's horizon on, or from the earliest new row on, of at most
    ``days``. It names at most ``hot_keys`` keys for each hour and subject.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> metrics.MetricsOptions(archive="orders-data/archive", lake="orders-data/lake").hot_keys
        10
    """

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


class _LastMetrics(Measured, frozen=True, kw_only=True):
    """The report of a run, and what the next run needs. ``basis``: a digest of the data from which the rows were
    computed. ``last_manifest``: the last manifest of this data. ``tables``: the states of the tables. ``first_ms``: the
    time at which the first message came into a queue. ``hot_keys``: the option of the run."""

    basis: str = ""
    last_manifest: int = -1
    tables: dict[str, TableState] = {}
    first_ms: int | None = None
    hot_keys: int = 0


class _Changed(NamedTuple):
    """The subjects that changed; None: any subject may have changed. No hour before ``since_ms`` changed; None: the
    run computes the time from the rows."""

    subjects: frozenset[str] | None
    since_ms: int | None


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
    with closing(options.open_lake()) as lake:
        lake.ensure(TABLE, SCHEMA, sorted_by=SORTED_BY)
        with sized(spark, lake.size(SCHEMAS)):
            return _run(spark, lake, options, now_ms)


def _run(spark: SparkSession, lake: Lake, options: MetricsOptions, now_ms: int) -> Measured:
    basis, tables, last = _basis(lake, options), states_of(lake), _last(lake)
    last_manifest = {name: state.progress.last_manifest for name, state in tables.items()}
    archive = Archive(options.archive, max(last_manifest.values()), options.region, options.endpoint_url)
    _, horizon_ms = archive_times(claims(spark, archive), min(last_manifest.values()))
    with ExitStack() as cached:
        snapshots = groups(spark, archive).persist()
        cached.callback(snapshots.unpersist)
        changed = _changed(spark, lake, options, last, tables, snapshots)
        reads = "all subjects" if changed.subjects is None else counted(len(changed.subjects), "subject")
        stage("metrics", f"reads {reads}")
        evidence = evidence_of(spark, lake, last_manifest, subjects=changed.subjects)
        cached.callback(evidence.forget)
        oldest_ms = _oldest_ms(evidence, None if changed.subjects is None else last)
        rows = _rows(evidence, snapshots, horizon_ms, oldest_ms, options, now_ms)
        changed_ms = changed.since_ms
        if changed_ms is None and last is not None:
            changed_ms = earliest_new_ms(evidence, last.tables, tables, last.horizon_ms)
        since_ms = first_ms(options, last, now_ms, changed_ms or 0)
        rows = evidence.keep(rows.where(fn.col("hour") >= moment(since_ms)))
        report = Measured(computed_ms=now_ms, horizon_ms=horizon_ms, rows=rows.count())
        note = _LastMetrics(
            **msgspec.structs.asdict(report),
            basis=basis,
            last_manifest=min(last_manifest.values()),
            tables=tables,
            first_ms=oldest_ms,
            hot_keys=options.hot_keys,
        )
        lake.append(TABLE, rows, properties={PROPERTY: msgspec.json.encode(note).decode()})
    return report


def _changed(
    spark: SparkSession,
    lake: Lake,
    options: MetricsOptions,
    last: _LastMetrics | None,
    tables: Mapping[str, TableState],
    snapshots: DataFrame,
) -> _Changed:
    """Returns the subjects that this run has to read. A run that adds shorter steps reads all subjects, because such
    steps cover all subjects."""
    if last is None or options.since is not None:
        return _Changed(None, 0)
    if not last.tables:
        return _Changed(None, last.horizon_ms)
    fine = last.first_ms is None or step_for(last.horizon_ms - last.first_ms) < HOUR_MS
    if fine or last.hot_keys != options.hot_keys:
        return _Changed(None, 0)
    if is_small(tables):
        return _Changed(None, None)
    archive = options.open_archive()
    search = ChangeSearch(spark, lake, archive, last.tables, tables, last.horizon_ms)
    try:
        new = search.new_rows()
    except ChangesUnknown:
        return _Changed(None, 0)
    subjects = new.subjects | _waiting(lake, last.horizon_ms) | search.regrouped(snapshots)
    return _Changed(subjects if len(subjects) <= MAX_SUBJECTS else None, new.since_ms)


def _waiting(lake: Lake, horizon_ms: int) -> set[str]:
    """Returns the subjects of which messages waited at the last horizon, in a queue or for their time: each later hour
    counts the messages that still wait."""
    hour_ms = horizon_ms // HOUR_MS * HOUR_MS
    try:
        rows = lake.rows(TABLE, f"day >= '{day_of(hour_ms)}' and (lag > 0 or due > 0)")
    except NotFound:
        return set()
    hour = datetime.fromtimestamp(hour_ms / 1_000, UTC)
    return {row["subject"] for row in rows.select(["subject", "hour"]).to_pylist() if row["hour"] >= hour}


def idle(options: MetricsOptions, now_ms: int) -> Measured | None:
    """Returns a report without rows, and writes nothing, if the last run computed all hours and no hour has begun
    since; None otherwise."""
    existing = options.find_lake()
    if existing is None or options.since is not None:
        return None
    with closing(existing) as lake:
        last = _last(lake)
        if last is None or last.basis != _basis(lake, options):
            return None
        archive = options.open_archive()
        last_manifest = max(lake.last_manifest(name) for name in SCHEMAS)
        horizon_ms = quiet_horizon(archive, last.last_manifest + 1, last_manifest, last.horizon_ms)
        if horizon_ms is None or horizon_ms // HOUR_MS != last.horizon_ms // HOUR_MS:
            return None
        return Measured(computed_ms=now_ms, horizon_ms=horizon_ms, rows=0)


def _basis(lake: Lake, options: MetricsOptions) -> str:
    return digest_of(lake, options.hot_keys, options.days)


def _last(lake: Lake) -> _LastMetrics | None:
    try:
        note = lake.properties(TABLE).get(PROPERTY)
    except NotFound:
        return None
    return None if note is None else msgspec.json.decode(note, type=_LastMetrics)


def first_ms(options: MetricsOptions, last: Measured | None, now_ms: int, changed_ms: int) -> int:
    """Returns the first hour to compute. ``last``: the report of the last run. ``changed_ms``: the hour of the earliest
    new row."""
    day = options.first_day(now_ms)
    limit_ms = 0 if day is None else start_ms(day)
    if options.since is not None or last is None:
        return limit_ms
    return max(limit_ms, min(changed_ms, last.horizon_ms // HOUR_MS * HOUR_MS - _SETTLED_MS))


def _rows(
    evidence: Evidence,
    snapshots: DataFrame,
    horizon_ms: int,
    oldest_ms: int | None,
    options: MetricsOptions,
    now_ms: int,
) -> DataFrame:
    hours = _table(measured(evidence, snapshots, horizon_ms, options.hot_keys), HOUR_MS, now_ms)
    step_ms = step_for(0 if oldest_ms is None else max(0, horizon_ms - oldest_ms))
    if step_ms >= HOUR_MS:
        return hours
    fine = measured(evidence, snapshots, horizon_ms, 0, step_ms)
    return hours.unionByName(_table(fine, step_ms, now_ms), allowMissingColumns=True)


def _oldest_ms(evidence: Evidence, last: _LastMetrics | None) -> int | None:
    """Returns the time at which the first message came into a queue, by the evidence and by the last run; None if no
    message has come."""
    first = evidence.messages.where(fn.col("kind") == QUEUE).agg(fn.min(fn.unix_millis("accepted_at"))).first()
    times = (None if first is None else first[0], None if last is None else last.first_ms)
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


def measured(
    evidence: Evidence, snapshots: DataFrame, horizon_ms: int, hot_keys: int, step_ms: int = HOUR_MS
) -> DataFrame:
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
        by_group.lag(evidence, groups_of(snapshots), horizon, step_ms),
    ]
    joined: DataFrame = reduce(lambda rows, more: rows.unionByName(more, allowMissingColumns=True), frames)
    values = [fn.max(name).alias(name) for name in VALUES if name in joined.columns]
    return joined.groupBy("hour", "subject", "group").agg(*values)


def _table(rows: DataFrame, step_ms: int, now_ms: int) -> DataFrame:
    step, computed_at = fn.lit(step_ms // 1_000).alias("step_seconds"), moment(now_ms).alias("computed_at")
    identity = (fn.to_date("hour").alias("day"), "hour", step, computed_at, "subject", "group")
    return rows.select(*identity, *(name for name in VALUES if name in rows.columns))


def newest_of(rows: DataFrame) -> DataFrame:
    """Returns the rows of the table without those that a later run computed again."""
    same = Window.partitionBy("step_seconds", "hour", "subject", "group").orderBy(fn.desc("computed_at"))
    return rows.withColumn("nth", fn.row_number().over(same)).where("nth = 1").drop("nth")
