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

A run computes the hours from two days before the last horizon on, of the subjects that may have changed since
(``changed_subjects.py``). It reads the rows from which these hours follow, not their history (``measures/window.py``).
The last run left the ends of the logs up to there (``measures/log_ends.py``). A run reads all rows if rows changed in
other ways than by new manifests, or if the ends are missing. A small lake is read as a whole. While all stored messages
span at most 60 hours, a run computes everything.
"""

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
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
from hourwheel_pipeline.judging.checks.coverage import archive_times, moment
from hourwheel_pipeline.judging.checks.evidence import Evidence, evidence_of, start_ms
from hourwheel_pipeline.lake.schemas import QUEUE, SCHEMAS
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.lake.writing import sized
from hourwheel_pipeline.measures.lags import Lags, LastEnds
from hourwheel_pipeline.measures.log_ends import read_ends, remove_ends, write_ends
from hourwheel_pipeline.measures.metrics_rows import SCHEMA, SORTED_BY, rows_of
from hourwheel_pipeline.measures.window import Reader
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
    milliseconds). ``all_days``: the reason why it read all days; "" if it did not.

    Example:
        >>> options = metrics.MetricsOptions(archive="orders-data/archive", lake="orders-data/lake")
        >>> metrics.run(spark, options, now_ms).rows > 0
        True
    """

    computed_ms: int
    horizon_ms: int
    rows: int
    all_days: str = ""


class _LastMetrics(Measured, frozen=True, kw_only=True):
    """The report of a run, and what the next run needs. ``basis``: a digest of the data from which the rows were
    computed. ``last_manifest``: the last manifest of this data. ``tables``: the states of the tables. ``first_ms``: the
    time at which the first message came into a queue. ``hot_keys``: the option of the run. ``ends``: the file with the
    ends of the logs. ``first_manifest``: the newest manifest with a snapshot of the registry from before the hours that
    the next run computes."""

    basis: str = ""
    last_manifest: int = -1
    tables: dict[str, TableState] = {}
    first_ms: int | None = None
    hot_keys: int = 0
    ends: str = ""
    first_manifest: int = 0


class _Changed(NamedTuple):
    """The subjects that changed; None: any subject may have changed. No hour before ``since_ms`` changed; None: the
    run computes the time from the rows. ``whole``: the reason why the run reads all days; "" if it does not."""

    subjects: frozenset[str] | None
    since_ms: int | None
    whole: str = ""


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
        with sized(spark, lake.size(SCHEMAS)), closing(_MetricsRun(spark, lake, options, now_ms)) as job:
            return job.report()


@dataclass(frozen=True)
class _MetricsRun:
    """One run of the job over an open lake."""

    spark: SparkSession
    lake: Lake
    options: MetricsOptions
    now_ms: int
    _cached: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Frees the frames that the run has cached."""
        self._cached.close()

    def report(self) -> Measured:
        """Adds the rows and the note to the table, and returns the report."""
        basis, tables, last = _basis(self.lake, self.options), self._tables, _last(self.lake)
        ends = None if last is None or not last.ends else read_ends(self.spark, self.lake, last.ends)
        snapshots = self._snapshots(0 if ends is None or last is None else last.first_manifest)
        changed = self._changed(last, ends, snapshots)
        window = ends is not None and last is not None and not changed.whole
        first_manifest = last.first_manifest if window and last is not None else 0
        if not window:
            snapshots = self._snapshots(0)
        reads = "all subjects" if changed.subjects is None else counted(len(changed.subjects), "subject")
        stage("metrics", f"reads {reads}" + (f", of all days: {changed.whole}" if changed.whole else ""))
        evidence, lags = self._evidence(changed, snapshots, last if window else None, ends)
        horizon_ms = self._horizon_ms(first_manifest, last if window else None)
        oldest_ms = _oldest_ms(evidence, last if window else None)
        rows = rows_of(evidence, lags, horizon_ms, oldest_ms, self.options.hot_keys, self.now_ms)
        changed_ms = changed.since_ms
        if changed_ms is None and last is not None:
            changed_ms = earliest_new_ms(evidence, last.tables, tables, last.horizon_ms)
        since_ms = first_ms(self.options, last, self.now_ms, changed_ms or 0)
        rows = evidence.keep(rows.where(fn.col("hour") >= moment(since_ms)))
        report = Measured(computed_ms=self.now_ms, horizon_ms=horizon_ms, rows=rows.count(), all_days=changed.whole)
        note = _LastMetrics(
            **msgspec.structs.asdict(report),
            basis=basis,
            last_manifest=min(self._numbers.values()),
            tables=tables,
            first_ms=oldest_ms,
            hot_keys=self.options.hot_keys,
            ends=write_ends(self.lake, lags.left(kept_from_ms(horizon_ms))),
            first_manifest=_first_manifest(snapshots, kept_from_ms(horizon_ms), first_manifest),
        )
        self.lake.append(TABLE, rows, properties={PROPERTY: msgspec.json.encode(note).decode()})
        remove_ends(self.lake, {note.ends, *([] if last is None else [last.ends])})
        return report

    @cached_property
    def _tables(self) -> dict[str, TableState]:
        return states_of(self.lake)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: state.progress.last_manifest for name, state in self._tables.items()}

    def _archive(self, first_manifest: int = 0) -> Archive:
        options = self.options
        last = max(self._numbers.values())
        return Archive(options.archive, last, options.region, options.endpoint_url, first_manifest)

    def _snapshots(self, first_manifest: int) -> DataFrame:
        snapshots = groups(self.spark, self._archive(first_manifest)).persist()
        self._cached.callback(snapshots.unpersist)
        return snapshots

    def _horizon_ms(self, first_manifest: int, last: "_LastMetrics | None") -> int:
        archived = claims(self.spark, self._archive(first_manifest))
        _, horizon_ms = archive_times(archived, min(self._numbers.values()))
        return horizon_ms if last is None else max(horizon_ms, last.horizon_ms)

    def _evidence(
        self, changed: _Changed, snapshots: DataFrame, last: "_LastMetrics | None", ends: DataFrame | None
    ) -> tuple[Evidence, Lags]:
        """Returns the rows of the run. ``last``: None if it reads all days."""
        if last is None or ends is None:
            evidence = evidence_of(self.spark, self.lake, self._numbers, subjects=changed.subjects)
            self._cached.callback(evidence.forget)
            return evidence, Lags(evidence, snapshots, None)
        reader = Reader(self.spark, self.lake, self._archive(), self._numbers, changed.subjects)
        cut_ms = kept_from_ms(last.horizon_ms)
        evidence = reader.window(cut_ms)
        self._cached.callback(evidence.forget)
        return evidence, Lags(evidence, snapshots, LastEnds(ends, cut_ms, changed.subjects, reader.history))

    def _changed(self, last: "_LastMetrics | None", ends: DataFrame | None, snapshots: DataFrame) -> _Changed:
        """Returns the subjects that this run has to read. A run that adds shorter steps reads all subjects, because
        such steps cover all subjects."""
        options, tables = self.options, self._tables
        if last is None:
            return _Changed(None, 0, "the first run")
        if not last.tables:
            return _Changed(None, last.horizon_ms, "a former version ran last")
        fine = last.first_ms is None or step_for(last.horizon_ms - last.first_ms) < HOUR_MS
        if fine or last.hot_keys != options.hot_keys:
            return _Changed(None, 0, "the archive is young" if fine else "other hot keys are wanted")
        if is_small(tables):
            return _Changed(None, 0 if options.since else None, "the lake is small")
        cut_ms = kept_from_ms(last.horizon_ms)
        if options.since is not None and start_ms(options.since) < cut_ms:
            return _Changed(None, 0, f"hours from {options.since} on are wanted")
        search = ChangeSearch(self.spark, self.lake, options.open_archive(), last.tables, tables, last.horizon_ms)
        try:
            new = search.new_rows()
        except ChangesUnknown:
            return _Changed(None, 0, "rows were removed, repaired or taken again")
        subjects = new.subjects | _waiting(self.lake, last.horizon_ms) | search.regrouped(snapshots)
        everyone = options.since is not None or len(subjects) > MAX_SUBJECTS
        whole = ""
        if ends is None:
            whole = "the ends of logs that the last run left are missing or damaged"
        elif new.since_ms < cut_ms:
            whole = "rows came that are older than two days"
        # The ends that a run over all days leaves are those of all subjects.
        return _Changed(None if everyone or whole else subjects, new.since_ms, whole)


def kept_from_ms(horizon_ms: int) -> int:
    """Returns the first hour that may still change after a run up to the horizon."""
    return horizon_ms // HOUR_MS * HOUR_MS - _SETTLED_MS


def _first_manifest(snapshots: DataFrame, keep_ms: int, first: int) -> int:
    """Returns the newest manifest with a readable snapshot from before the hour that precedes ``keep_ms``."""
    before = snapshots.where(fn.col("detail").isNull() & (fn.col("at") < moment(keep_ms - HOUR_MS)))
    newest = before.agg(fn.max("manifest")).first()
    return first if newest is None or newest[0] is None else newest[0]


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
    return max(limit_ms, min(changed_ms, kept_from_ms(last.horizon_ms)))


def _oldest_ms(evidence: Evidence, last: _LastMetrics | None) -> int | None:
    """Returns the time at which the first message came into a queue, by the evidence and by the last run; None if no
    message has come."""
    first = evidence.messages.where(fn.col("kind") == QUEUE).agg(fn.min(fn.unix_millis("accepted_at"))).first()
    times = (None if first is None else first[0], None if last is None else last.first_ms)
    return min((at_ms for at_ms in times if at_ms is not None), default=None)


def newest_of(rows: DataFrame) -> DataFrame:
    """Returns the rows of the table without those that a later run computed again."""
    same = Window.partitionBy("step_seconds", "hour", "subject", "group").orderBy(fn.desc("computed_at"))
    return rows.withColumn("nth", fn.row_number().over(same)).where("nth = 1").drop("nth")
