"""Compares the messages that were accepted, dispatched, pulled, retried, given up and settled, and finds errors. A
working system has no findings.

The job judges the subjects that changed since its last run, and takes over its earlier findings about all others
(``judging/baseline.py``). With ``full`` it judges all subjects. With ``since`` or ``days`` it reads a part of the
tables; with ``days`` it takes over findings of these days for a week, and then judges all subjects again. A run over a
part does not judge rows stored on the first day itself, pulls whose previous row is older, redriven dead letters, and
messages that were moved out of an older bucket.

The job adds its findings to the table ``findings``, all with the ``found_at`` of the run, and records its counts in the
summary of the table.
"""

from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec
import pyarrow as pa
from pydantic import NonNegativeFloat, PositiveInt
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from hourwheel.errors import NotFound
from hourwheel_pipeline.archive_rows.columns import milliseconds_of
from hourwheel_pipeline.jobs.last_runs import leave_reconciled
from hourwheel_pipeline.judging.all_checks import FindingLimits, all_findings, expired, open_until_ms, within_days
from hourwheel_pipeline.judging.baseline import (
    Baseline,
    Scope,
    may_be_carried,
    most_expired,
    numbers_of,
    readable,
    scope_of,
)
from hourwheel_pipeline.judging.basis import digest_of, quiet_horizon
from hourwheel_pipeline.judging.changed_subjects import ChangeSearch, TableState, day_of, is_small, states_of
from hourwheel_pipeline.judging.checks.claims import Archive, claims, groups
from hourwheel_pipeline.judging.checks.coverage import Coverage, coverage_of, moment
from hourwheel_pipeline.judging.checks.evidence import Evidence, evidence_of, start_ms
from hourwheel_pipeline.judging.findings import COLUMNS, SCHEMA, TABLE, dated, found_at
from hourwheel_pipeline.judging.integrity import ArchiveInspection, inspect
from hourwheel_pipeline.judging.reconciliation import Finding, Reconciled, Unknown, UnknownRows
from hourwheel_pipeline.judging.row_counts import added, count_rows, since_day, summed
from hourwheel_pipeline.lake.schemas import SCHEMAS
from hourwheel_pipeline.lake.table_progress import QuarantinedSegment
from hourwheel_pipeline.lake.tables import Lake
from hourwheel_pipeline.lake.writing import sized
from hourwheel_pipeline.runs import words
from hourwheel_pipeline.runs.job_options import ArchiveOptions, Days
from hourwheel_pipeline.runs.progress import stage

__all__ = ["ReconcileOptions", "Reconciled", "run"]

PROPERTY = "hourwheel.reconciled"
"""The note of the table with the report of the last run, a ``_LastReconciliation``."""

_VERSION = 2
"""The version of the checks. Raise it when a change of the checks makes them judge equal rows differently."""

# As many as a page shows at once; the table has all.
_LISTED = 100
_STORAGE = StorageLevel.MEMORY_AND_DISK


class ReconcileOptions(Days, ArchiveOptions):
    """The options of ``reconcile``. ``archive`` and ``lake`` are a folder or ``s3://bucket/prefix``.

    Clocks of writers may differ by ``skew_seconds``. A delayed message is late ``late_seconds`` after it was due, and
    stuck after ``stuck_seconds``. A pull that is open ``lease_seconds`` after its lease is stuck: the sweeper may rest
    for half an hour. ``since`` (a day) or ``days`` limits the reading. The report lists ``listed`` findings of a kind,
    the table holds all. ``deep`` also reads all segments of the archive and compares their checksums. ``full`` judges
    all subjects, also those that did not change.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> reconcile.ReconcileOptions(archive="orders-data/archive", lake="orders-data/lake").late_seconds
        60.0
    """

    skew_seconds: NonNegativeFloat = 5.0
    late_seconds: NonNegativeFloat = 60.0
    stuck_seconds: NonNegativeFloat = 300.0
    lease_seconds: NonNegativeFloat = 2_400.0
    listed: PositiveInt = _LISTED
    deep: bool = False
    full: bool = False


class _LastReconciliation(Reconciled, frozen=True, kw_only=True):
    """The report of a run without its findings, and what the next run needs. ``basis``: a digest of the judged rows and
    of the limits. ``open_until_ms``: while the basis stays the same, a horizon beyond that time changes no finding.
    ``baseline``: that of the last run over the whole lake, ``within_days``: that of the last run over some days; None
    if the next run has to judge all subjects."""

    basis: str = ""
    open_until_ms: int = 0
    baseline: Baseline | None = None
    within_days: Baseline | None = None

    @property
    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def answer(self) -> Reconciled:
        return Reconciled(**{name: getattr(self, name) for name in Reconciled.__struct_fields__})


R = TypeVar("R", bound=Reconciled)


def run(spark: SparkSession, options: ReconcileOptions, now_ms: int) -> Reconciled:
    """Compares the messages that were accepted, dispatched, pulled and settled, and adds the findings to their table.
    ``now_ms`` is the time of the run, in Unix milliseconds.

    Raises:
        Broken: the lake was copied or moved, or another version wrote its tables.

    Example:
        >>> options = reconcile.ReconcileOptions(archive="orders-data/archive", lake="orders-data/lake")
        >>> reconcile.run(spark, options, now_ms).counts
        {}
    """
    with closing(options.open_lake()) as lake:
        lake.ensure(TABLE, SCHEMA, sorted_by=("kind", "log", "row", "index"), bounded=("found_at",))
        with sized(spark, lake.size(SCHEMAS)), closing(_Reconciliation(spark, lake, options, now_ms)) as job:
            report = job.report()
        leave_reconciled(lake, report)
        return report


def idle(options: ReconcileOptions, now_ms: int) -> Reconciled | None:
    """Returns the last report, and records that it still holds, if there is nothing new to judge; None otherwise."""
    existing = options.find_lake()
    if existing is None or options.full:
        return None
    with closing(existing) as lake:
        last = _last(lake, _LastReconciliation)
        if last is None or last.basis != _basis(lake, options, now_ms):
            return None
        last_manifest = {name: lake.last_manifest(name) for name in SCHEMAS}
        archive = options.open_archive()
        horizon_ms = quiet_horizon(
            archive, min(last.last_manifest.values()) + 1, max(last_manifest.values()), last.horizon_ms
        )
        if horizon_ms is None or last.horizon_ms < min(horizon_ms, last.open_until_ms):
            return None
        repeated = msgspec.structs.replace(
            last,
            found_ms=now_ms,
            listed_ms=last.listed_ms or last.found_ms,
            horizon_ms=horizon_ms,
            last_manifest=last_manifest,
            new_errors=0,
            archive=_inspected(options, lake),
        )
        lake.files.write(_repeated(lake), repeated.encoded.encode())
        leave_reconciled(lake, repeated)
        return with_findings(lake, repeated.answer, options.listed)


def last_of(lake: Lake) -> Reconciled | None:
    """Returns the report of the last run without its findings; None before the first run."""
    return _last(lake, Reconciled)


def _last(lake: Lake, kind: type[R]) -> R | None:
    """Returns the report of the last run: that of the table, or the one beside the table that repeats it."""
    try:
        note = lake.properties(TABLE).get(PROPERTY)
    except NotFound:
        return None
    if note is None:
        return None
    last, repeated = msgspec.json.decode(note, type=kind), lake.files.read(_repeated(lake))
    if repeated is None:
        return last
    again = msgspec.json.decode(repeated, type=kind)
    # Another run may have judged since, or an operator gone back to an earlier snapshot of the table.
    return again if again.listed_ms == (last.listed_ms or last.found_ms) else last


def _repeated(lake: Lake) -> str:
    """Returns the path of the report that a run without anything new leaves. In the table each would add a snapshot."""
    return f"{lake.location}/last-runs/reconcile-repeated.json"


def with_findings(lake: Lake, last: Reconciled, listed: int) -> Reconciled:
    """Returns the report with the first findings of each kind, read from the table."""
    if not last.counts:
        return last
    rows = lake.rows(TABLE, found_at(last.listed_ms or last.found_ms))
    return msgspec.structs.replace(last, findings=_first_of_each_kind(rows, listed))


def _first_of_each_kind(rows: pa.Table, listed: int) -> list[Finding]:
    """Returns the first findings of each kind, at most ``listed`` of a kind."""
    ordered = rows.sort_by([(name, "ascending") for name in ("kind", "at", "log", "row", "index")])
    for name in ("at", "first_seen"):
        ordered = ordered.append_column(f"{name}_ms", milliseconds_of(ordered[name]))
    by_kind: dict[str, list[Finding]] = {}
    for row in ordered.select(list(Finding.__struct_fields__)).to_pylist():
        of_kind = by_kind.setdefault(row["kind"], [])
        if len(of_kind) < listed:
            of_kind.append(Finding(**row))
    return [finding for of_kind in by_kind.values() for finding in of_kind]


def _basis(lake: Lake, options: ReconcileOptions, now_ms: int) -> str:
    return digest_of(lake, options.first_day(now_ms), options.deep, *_criteria(options))


def _inspected(options: ReconcileOptions, lake: Lake) -> ArchiveInspection:
    last = lake.newest_progress()
    return inspect(
        options.archive,
        last_manifest=last.last_manifest,
        last_digest=last.digest,
        deep=options.deep,
        region=options.region,
        endpoint_url=options.endpoint_url,
    )


class _Carried(NamedTuple):
    """The baseline from which this run goes on, and the subjects that the run judges again."""

    before: Baseline
    scope: Scope


@dataclass(frozen=True)
class _Reconciliation:
    """One run of the job over an open lake."""

    spark: SparkSession
    lake: Lake
    options: ReconcileOptions
    now_ms: int
    _cached: ExitStack = field(default_factory=ExitStack)

    def report(self) -> Reconciled:
        """Judges the evidence, adds the findings and the note to the table, and returns the report."""
        last, basis = _last(self.lake, _LastReconciliation), _basis(self.lake, self.options, self.now_ms)
        carried = self._carried(last)
        subjects = "all subjects" if carried is None else words.counted(len(carried.scope.subjects), "subject")
        stage("reconcile", f"judges {subjects}")
        evidence = evidence_of(
            self.spark, self.lake, self._numbers, self._since, None if carried is None else carried.scope.subjects
        )
        self._cached.callback(evidence.forget)
        coverage = self._coverage(evidence, counted=carried is not None)
        findings = self._keep(self._findings(evidence, coverage, carried))
        baseline = self._baseline(evidence, coverage, carried)
        report = self._report(coverage, findings, baseline)
        note = _LastReconciliation(
            **msgspec.structs.asdict(report),
            basis=basis,
            open_until_ms=baseline.open_until_ms,
        )
        kept = self._baselines(last, baseline if may_be_carried(report.counts) else None)
        note = msgspec.structs.replace(note, **kept)
        report = msgspec.structs.replace(report, findings=listed_of(findings, self.options.listed))
        self.lake.append(TABLE, findings, properties={PROPERTY: note.encoded})
        return report

    def close(self) -> None:
        """Frees the frames that the run has cached. If a frame stayed cached, Spark would use it for an equal frame of
        a later run, which would then see old manifests."""
        self._cached.close()

    def _keep(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist(_STORAGE)
        self._cached.callback(kept.unpersist)
        return kept

    @cached_property
    def _tables(self) -> dict[str, TableState]:
        return states_of(self.lake)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: state.progress.last_manifest for name, state in self._tables.items()}

    @cached_property
    def _quarantined(self) -> list[QuarantinedSegment]:
        return [segment for state in self._tables.values() for segment in state.progress.quarantined]

    @cached_property
    def _archive(self) -> Archive:
        return Archive(
            self.options.archive, max(self._numbers.values()), self.options.region, self.options.endpoint_url
        )

    @cached_property
    def _claims(self) -> DataFrame:
        return self._keep(claims(self.spark, self._archive))

    @cached_property
    def _snapshots(self) -> DataFrame:
        return self._keep(groups(self.spark, self._archive))

    @property
    def _since(self) -> date | None:
        return self.options.first_day(self.now_ms)

    def _baselines(self, last: "_LastReconciliation | None", baseline: Baseline | None) -> dict[str, Baseline | None]:
        """Returns the baselines from which the next runs may go on: this one, and the last one of the other kind."""
        kept = {} if last is None else {"baseline": last.baseline, "within_days": last.within_days}
        if self.options.since is not None:
            return kept
        return {**kept, "baseline" if self.options.days is None else "within_days": baseline}

    def _carried(self, last: "_LastReconciliation | None") -> _Carried | None:
        """Returns the baseline from which this run goes on; None if the run judges all subjects."""
        if last is None:
            return None
        before = last.baseline if self.options.days is None else last.within_days
        if before is None or self.options.full or is_small(self._tables) or before.outdated(self.now_ms):
            return None
        if self.options.since is not None or not self._continues(before):
            return None
        archive = self.options.open_archive()
        search = ChangeSearch(self.spark, self.lake, archive, before.tables, self._tables, before.horizon_ms)
        scope = scope_of(search, before, self._claims, self._snapshots, _limits(self.options).stuck_ms)
        return None if scope is None else _Carried(before, scope)

    def _continues(self, before: Baseline) -> bool:
        """Returns whether the baseline has the criteria and the days of this run."""
        return (before.limits, before.days) == (_criteria(self.options), self.options.days)

    def _coverage(self, evidence: Evidence, *, counted: bool) -> Coverage:
        return coverage_of(
            self._claims,
            self._snapshots,
            evidence,
            self._numbers,
            [segment.key for segment in self._quarantined],
            None if self._since is None else start_ms(self._since),
            counted=counted,
            lost=any(state.progress.lost for state in self._tables.values()),
        )

    def _findings(self, evidence: Evidence, coverage: Coverage, carried: _Carried | None) -> DataFrame:
        """Returns the findings of this run and those that it takes over, as rows of the table."""
        findings = all_findings(evidence, coverage, _limits(self.options), self.options.location)
        if carried is not None:
            day = day_of(carried.before.found_ms)
            last = self.lake.read(self.spark, TABLE, since=day, until=day + timedelta(days=1))
            last = last.where(fn.col("found_at") == moment(carried.before.found_ms)).select(*COLUMNS)
            last = within_days(last, coverage)
            findings = carried.scope.decided(findings).unionByName(carried.scope.kept(last))
        return dated(findings, self.lake.read(self.spark, TABLE), moment(self.now_ms))

    def _baseline(self, evidence: Evidence, coverage: Coverage, carried: _Carried | None) -> Baseline:
        """Returns what the next run may go on from: the counts of this run together with those that it takes over."""
        after = dict.fromkeys(SCHEMAS, -1) if carried is None else numbers_of(carried.before.tables)
        counts = count_rows(evidence, after, by_day=self._since is not None)
        until_ms = open_until_ms(evidence, _limits(self.options))
        unseen = expired(evidence, coverage, _limits(self.options))
        if carried is not None:
            counts = added(carried.before.counts, counts)
            until_ms = max(until_ms, carried.before.open_until_ms)
            unseen = carried.scope.without(carried.before.expired) | unseen
        manifests, snapshots = readable(self._claims, self._snapshots, self._archive.last_manifest)
        return Baseline(
            limits=_criteria(self.options),
            days=self.options.days,
            whole_ms=self.now_ms if carried is None else carried.before.whole_ms,
            found_ms=self.now_ms,
            horizon_ms=coverage.horizon_ms,
            open_until_ms=until_ms,
            tables=self._tables,
            manifests=manifests,
            snapshots=snapshots,
            counts=counts if self._since is None else since_day(counts, self._since),
            expired=unseen,
        )

    def _report(self, coverage: Coverage, findings: DataFrame, baseline: Baseline) -> Reconciled:
        new = (fn.col("first_seen") == fn.col("found_at")) & (fn.col("severity") == "error")
        counted = summed(baseline.counts)
        return Reconciled(
            found_ms=self.now_ms,
            began_ms=coverage.began_ms,
            horizon_ms=coverage.horizon_ms,
            last_manifest=self._numbers,
            rows=counted.rows,
            totals=counted.totals,
            counts={row["kind"]: row["count"] for row in findings.groupBy("kind").count().orderBy("kind").collect()},
            new_errors=findings.where(new).count(),
            expired=most_expired(baseline.expired, self.options.listed),
            unknown=_unknown(coverage, self._quarantined, self._snapshots, self.options.listed),
            archive=_inspected(self.options, self.lake),
        )


def _limits(options: ReconcileOptions) -> FindingLimits:
    seconds = (options.skew_seconds, options.late_seconds, options.stuck_seconds, options.lease_seconds)
    return FindingLimits(*(round(second * 1_000) for second in seconds))


def _criteria(options: ReconcileOptions) -> tuple[float, ...]:
    """Returns the version of the checks and the limits: besides the rows they alone decide about findings."""
    return (_VERSION, *_limits(options))


def _unknown(coverage: Coverage, quarantined: list[QuarantinedSegment], snapshots: DataFrame, listed: int) -> Unknown:
    rows = coverage.doubtful.orderBy("log", "start").limit(listed).collect()
    unreadable = snapshots.where(fn.col("detail").isNotNull()).limit(listed).collect()
    return Unknown(
        segments=len(quarantined),
        quarantined=quarantined[:listed],
        ranges=coverage.doubtful.count(),
        rows=[UnknownRows(log=row["log"], start=row["start"], end=row["end"], why=row["why"]) for row in rows],
        snapshots=[row["detail"] for row in unreadable],
    )


def listed_of(findings: DataFrame, listed: int) -> list[Finding]:
    """Returns the first findings of each kind, at most ``listed`` of a kind."""
    order = Window.partitionBy("kind").orderBy("at", "log", "row", "index")
    first = findings.withColumn("nth", fn.row_number().over(order)).where(fn.col("nth") <= listed)
    # As integers: times that Spark hands to Python have no zone.
    timed = first.withColumns({"at_ms": fn.unix_millis("at"), "first_seen_ms": fn.unix_millis("first_seen")})
    rows = timed.orderBy("kind", "nth").collect()
    return [Finding(**{name: row[name] for name in Finding.__struct_fields__}) for row in rows]
