"""Reconcile: compares the messages that were accepted, dispatched, pulled, retried, given up and settled, and finds
errors. A working system has no findings.

The job reads the three tables of the lake from the beginning, or from a day on (``since``, ``days``). From a part of
the tables it cannot judge rows stored on the first day itself, pulls whose previous row is older, redriven dead
letters, and messages that were moved out of an older bucket.

The job adds its findings to the table ``findings``, those of one run with the same ``found_at``, and notes what it
counted in the summary of the table.
"""

from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from typing import TypeVar

import msgspec
import pyarrow as pa
from pydantic import NonNegativeFloat, PositiveInt
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from hourwheel.errors import NotFound
from hourwheel_pipeline.basis import digest_of, quiet_horizon
from hourwheel_pipeline.checks.chains import chain_findings, expired_unseen
from hourwheel_pipeline.checks.claims import Archive, claims, groups
from hourwheel_pipeline.checks.coverage import MARGIN_MS, Coverage, coverage_of, moment
from hourwheel_pipeline.checks.delays import delay_findings
from hourwheel_pipeline.checks.evidence import Evidence, evidence_of, start_ms
from hourwheel_pipeline.checks.handovers import handover_findings
from hourwheel_pipeline.checks.rows import row_findings
from hourwheel_pipeline.columns import milliseconds_of
from hourwheel_pipeline.days import Days
from hourwheel_pipeline.findings import DDL, SCHEMA, TABLE, dated
from hourwheel_pipeline.integrity import Wholeness, inspect
from hourwheel_pipeline.lake import NAMESPACE, Lake
from hourwheel_pipeline.locations import blobs_at
from hourwheel_pipeline.schemas import DISPATCHES, PULLS, SCHEMAS
from hourwheel_pipeline.segment_rows import ArchivePlace
from hourwheel_pipeline.table_progress import QuarantinedSegment
from hourwheel_pipeline.writing import sized

__all__ = ["ReconcileOptions", "Reconciled", "run"]

NOTE = "hourwheel.reconciled"
"""The note of the table with the report of the last run, a ``_Note``."""

_VERSION = 1
"""The version of the checks. Raise it when a change of the checks makes them judge equal rows differently."""

# As many as a page shows at once; the table has all.
_LISTED = 100
_STORAGE = StorageLevel.MEMORY_AND_DISK


class ReconcileOptions(Days):
    """The options of ``reconcile``. ``archive`` and ``lake`` are a folder or ``s3://bucket/prefix``.

    Clocks of writers may differ by ``skew_seconds``. A delayed message is late ``late_seconds`` after it was due, and
    stuck after ``stuck_seconds``. A pull that is open ``lease_seconds`` after its lease is stuck: the sweeper may rest
    for half an hour. ``since`` (a day) or ``days`` limits the reading. The report lists ``listed`` findings of a kind,
    the table holds all. ``deep`` also reads all segments of the archive and compares their checksums.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> reconcile.ReconcileOptions(archive="orders-data/archive", lake="orders-data/lake").late_seconds
        60.0
    """

    archive: str
    lake: str
    namespace: str = NAMESPACE
    region: str | None = None
    endpoint_url: str | None = None
    skew_seconds: NonNegativeFloat = 5.0
    late_seconds: NonNegativeFloat = 60.0
    stuck_seconds: NonNegativeFloat = 300.0
    lease_seconds: NonNegativeFloat = 2_400.0
    listed: PositiveInt = _LISTED
    deep: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding, as ``findings.py`` describes it. Times are Unix milliseconds."""

    kind: str
    severity: str
    subject: str | None
    group: str | None
    queue: int | None
    log: str
    row: int | None
    index: int | None
    id: str | None
    at_ms: int | None
    first_seen_ms: int
    detail: str


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """Rows ``[start, end)`` of a log whose content is partly unknown, and the reason."""

    log: str
    start: int
    end: int
    why: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be judged: quarantined segments, ranges of rows, unreadable catalogs. ``segments`` and ``ranges``
    count all; the lists are limited to ``listed``."""

    segments: int
    quarantined: list[QuarantinedSegment]
    ranges: int
    rows: list[Lost]
    catalogs: list[str]


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The report of ``reconcile`` about rows stored from ``began_ms`` on, before ``horizon_ms`` (Unix milliseconds).

    ``counts`` are the findings by kind, ``totals`` the messages that were accepted, delivered (acknowledged, once for
    each group) and given up. ``new_errors`` counts the findings that are no warnings and that no run had before.
    ``expired`` counts the messages that expired before their group came to them, by subject and group. ``archive`` says
    whether the archive is complete. ``listed_ms`` is the ``found_at`` of the findings in the table; 0 stands for
    ``found_ms``. A run that has nothing new to judge adds none.

    Example:
        >>> options = reconcile.ReconcileOptions(archive="orders-data/archive", lake="orders-data/lake")
        >>> reconcile.run(spark, options, now_ms).new_errors
        0
    """

    found_ms: int
    began_ms: int
    horizon_ms: int
    last_manifest: dict[str, int]
    rows: dict[str, int]
    counts: dict[str, int]
    totals: dict[str, int] = {}
    new_errors: int = 0
    expired: dict[str, int]
    unknown: Unknown
    archive: Wholeness | None = None
    listed_ms: int = 0
    findings: list[Finding] = []


class _Note(Reconciled, frozen=True, kw_only=True):
    """The report of a run without its findings, and what the next run needs. ``basis``: a digest of what was judged,
    and how. ``open_until_ms``: while the basis stays the same, a horizon beyond that time changes no answer."""

    basis: str = ""
    open_until_ms: int = 0

    @property
    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def answer(self) -> Reconciled:
        return Reconciled(**{name: getattr(self, name) for name in Reconciled.__struct_fields__})


R = TypeVar("R", bound=Reconciled)


def run(spark: SparkSession, options: ReconcileOptions, now_ms: int) -> Reconciled:
    """Compares what was accepted, dispatched, pulled and settled, and adds the findings to their table. ``now_ms`` is
    the time of the run, in Unix milliseconds.

    Raises:
        Broken: the lake was copied or moved, or another version wrote its tables.

    Example:
        >>> options = reconcile.ReconcileOptions(archive="orders-data/archive", lake="orders-data/lake")
        >>> reconcile.run(spark, options, now_ms).counts
        {}
    """
    opened = Lake.open(
        options.lake, namespace=options.namespace, region=options.region, endpoint_url=options.endpoint_url
    )
    with closing(opened) as lake:
        lake.ensure(TABLE, SCHEMA, partition=("day",), sorted_by=("kind", "log", "row", "index"))
        with sized(spark, lake.size(SCHEMAS)):
            return _run(spark, lake, options, now_ms)


def idle(options: ReconcileOptions, now_ms: int) -> Reconciled | None:
    """Returns the last report, and notes that it still holds, if there is nothing new to judge; None otherwise."""
    found = Lake.find(
        options.lake, namespace=options.namespace, region=options.region, endpoint_url=options.endpoint_url
    )
    if found is None:
        return None
    with closing(found) as lake:
        last = _last(lake, _Note)
        if last is None or last.basis != _basis(lake, options, now_ms):
            return None
        last_manifest = {name: lake.last_manifest(name) for name in SCHEMAS}
        archive = blobs_at(options.archive, options.region, options.endpoint_url)
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
            archive=_inspected(options, last_manifest),
        )
        lake.commit(TABLE, added=[], notes={NOTE: repeated.encoded})
        return with_findings(lake, repeated.answer, options.listed)


def last_of(lake: Lake) -> Reconciled | None:
    """Returns the report of the last run without its findings; None before the first run."""
    return _last(lake, Reconciled)


def _last(lake: Lake, kind: type[R]) -> R | None:
    try:
        note = lake.notes(TABLE).get(NOTE)
    except NotFound:
        return None
    return None if note is None else msgspec.json.decode(note, type=kind)


def with_findings(lake: Lake, last: Reconciled, listed: int) -> Reconciled:
    """Returns the report with the first findings of each kind, read from the table."""
    if not last.counts:
        return last
    rows = lake.rows(TABLE, _found_at(last.listed_ms or last.found_ms))
    return msgspec.structs.replace(last, findings=_first_of_each_kind(rows, listed))


def _found_at(at_ms: int) -> str:
    """Returns the Iceberg condition that selects the findings of the run at ``at_ms``."""
    return f"found_at = '{datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec='milliseconds')}'"


def _first_of_each_kind(rows: pa.Table, listed: int) -> list[Finding]:
    """Returns the first findings of each kind, at most ``listed`` of a kind."""
    ordered = rows.sort_by([(name, "ascending") for name in ("kind", "at", "log", "row", "index")])
    for name in ("at", "first_seen"):
        ordered = ordered.append_column(f"{name}_ms", milliseconds_of(ordered[name]))
    found: dict[str, list[Finding]] = {}
    for row in ordered.select(list(Finding.__struct_fields__)).to_pylist():
        of_kind = found.setdefault(row["kind"], [])
        if len(of_kind) < listed:
            of_kind.append(Finding(**row))
    return [finding for of_kind in found.values() for finding in of_kind]


def _basis(lake: Lake, options: ReconcileOptions, now_ms: int) -> str:
    limits = (options.skew_seconds, options.late_seconds, options.stuck_seconds, options.lease_seconds)
    return digest_of(lake, _VERSION, options.first_day(now_ms), options.deep, *limits)


def _inspected(options: ReconcileOptions, last_manifest: Mapping[str, int]) -> Wholeness:
    return inspect(
        options.archive,
        last_manifest=max(last_manifest.values()),
        deep=options.deep,
        region=options.region,
        endpoint_url=options.endpoint_url,
    )


def _run(spark: SparkSession, lake: Lake, options: ReconcileOptions, now_ms: int) -> Reconciled:
    since = options.first_day(now_ms)
    holdings = {name: lake.table_progress(name) for name in SCHEMAS}
    last_manifest = {name: progress.last_manifest for name, progress in holdings.items()}
    quarantined = [segment for progress in holdings.values() for segment in progress.quarantined]
    basis = _basis(lake, options, now_ms)
    evidence = evidence_of(spark, lake, last_manifest, since)
    archive = Archive(options.archive, max(last_manifest.values()), options.region, options.endpoint_url)
    named, listed = claims(spark, archive).persist(_STORAGE), groups(spark, archive).persist(_STORAGE)
    since_ms = None if since is None else start_ms(since)
    coverage = coverage_of(named, listed, evidence, last_manifest, [segment.key for segment in quarantined], since_ms)
    now = moment(now_ms)
    found = dated(judged(evidence, coverage, options), lake.read(spark, TABLE), now).persist(_STORAGE)
    unreadable = [row["detail"] for row in listed.where(fn.col("detail").isNotNull()).limit(options.listed).collect()]
    rows = _sizes(evidence)
    report = Reconciled(
        found_ms=now_ms,
        began_ms=coverage.began_ms,
        horizon_ms=coverage.horizon_ms,
        last_manifest=last_manifest,
        rows=rows,
        totals=_totals(evidence, rows),
        counts={row["kind"]: row["count"] for row in found.groupBy("kind").count().orderBy("kind").collect()},
        new_errors=found.where((fn.col("first_seen") == fn.col("found_at")) & (fn.col("severity") == "error")).count(),
        expired=_expired(evidence, coverage, options),
        unknown=_unknown(coverage, quarantined, unreadable, options.listed),
        archive=_inspected(options, last_manifest),
    )
    note = _Note(**msgspec.structs.asdict(report), basis=basis, open_until_ms=_open_until_ms(evidence, options))
    report = msgspec.structs.replace(report, findings=listed_of(found, options.listed))
    lake.append(TABLE, found, notes={NOTE: note.encoded})
    for frame in (named, listed, found):
        frame.unpersist()
    evidence.forget()
    return report


def judged(evidence: Evidence, coverage: Coverage, options: ReconcileOptions) -> DataFrame:
    """Returns the findings of all checks."""
    skew_ms, late_ms, stuck_ms, lease_ms = (
        round(seconds * 1_000)
        for seconds in (options.skew_seconds, options.late_seconds, options.stuck_seconds, options.lease_seconds)
    )
    every = chain(
        row_findings(evidence, coverage, ArchivePlace(options.archive, options.region, options.endpoint_url)),
        chain_findings(evidence, coverage, skew_ms=skew_ms, lease_ms=lease_ms),
        handover_findings(evidence, coverage, skew_ms=skew_ms),
        delay_findings(evidence, coverage, skew_ms=skew_ms, late_ms=late_ms, stuck_ms=stuck_ms),
    )
    # One by one: to plan all checks together takes Spark longer than to run them.
    frames = [some for check in every if check is not None and (some := evidence.some(check)) is not None]
    none = evidence.messages.sparkSession.createDataFrame([], DDL)
    together = reduce(DataFrame.unionByName, frames, none)
    if coverage.whole:
        return together
    return together.where(fn.col("at").isNull() | (fn.col("at") >= moment(coverage.began_ms)))


def _totals(evidence: Evidence, rows: Mapping[str, int]) -> dict[str, int]:
    handed = evidence.pulls.agg(fn.sum("messages")).first()
    assert handed is not None
    delivered = (handed[0] or 0) - evidence.moves.count()
    return {
        "accepted": rows.get("messages queue", 0),
        "delivered": delivered,
        "dead": rows.get("messages dead", 0),
    }


def _open_until_ms(evidence: Evidence, options: ReconcileOptions) -> int:
    """Returns the time from which on a later horizon alone brings no row into judgement."""
    last = evidence.messages.agg(fn.max(fn.unix_millis("accepted_at")), fn.max(fn.unix_millis("due_at"))).first()
    handed = evidence.dispatches.agg(fn.max(fn.unix_millis("at"))).first()
    assert last is not None
    assert handed is not None
    times = [at for at in (*last, *handed) if at is not None]
    return max(times, default=0) + MARGIN_MS + round(1_000 * max(options.stuck_seconds, options.skew_seconds))


def _sizes(evidence: Evidence) -> dict[str, int]:
    kinds = {f"messages {row['kind']}": row["count"] for row in evidence.messages.groupBy("kind").count().collect()}
    return dict(sorted(kinds.items())) | {PULLS: evidence.pulls.count(), DISPATCHES: evidence.dispatches.count()}


def _expired(evidence: Evidence, coverage: Coverage, options: ReconcileOptions) -> dict[str, int]:
    found = expired_unseen(evidence, coverage, round(options.skew_seconds * 1_000))
    most = found.orderBy(fn.desc("messages"), "subject", "group").limit(options.listed).collect()
    return {f"{row['subject']} {row['group']}": row["messages"] for row in most}


def _unknown(coverage: Coverage, quarantined: list[QuarantinedSegment], catalogs: list[str], listed: int) -> Unknown:
    rows = coverage.doubtful.orderBy("log", "start").limit(listed).collect()
    return Unknown(
        segments=len(quarantined),
        quarantined=quarantined[:listed],
        ranges=coverage.doubtful.count(),
        rows=[Lost(log=row["log"], start=row["start"], end=row["end"], why=row["why"]) for row in rows],
        catalogs=catalogs,
    )


def listed_of(found: DataFrame, listed: int) -> list[Finding]:
    """Returns the first findings of each kind, at most ``listed`` of a kind."""
    order = Window.partitionBy("kind").orderBy("at", "log", "row", "index")
    first = found.withColumn("nth", fn.row_number().over(order)).where(fn.col("nth") <= listed)
    # As integers: times that Spark hands to Python have no zone.
    timed = first.withColumns({"at_ms": fn.unix_millis("at"), "first_seen_ms": fn.unix_millis("first_seen")})
    rows = timed.orderBy("kind", "nth").collect()
    return [Finding(**{name: row[name] for name in Finding.__struct_fields__}) for row in rows]
