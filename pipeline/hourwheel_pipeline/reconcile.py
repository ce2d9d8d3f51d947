"""Reconcile: compares what was accepted, dispatched, pulled, tried again, given up and settled, and finds what went
wrong. A system that works has no findings.

It reads the three tables of the lake whole, or from a day on (``since``, ``days``). Of a part it can judge less: not
what was stored on that day itself, nor pulls whose row before is older, nor dead letters that were sent again, nor
messages that were moved from a bucket before it.

Findings go to the table ``findings``, all those of a run with one ``found_at``. What the run knew and counted stands
in the notes of the table.
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
from hourwheel_pipeline.segmentrows import ArchivePlace
from hourwheel_pipeline.table_progress import QuarantinedSegment
from hourwheel_pipeline.writing import sized

__all__ = ["ReconcileOptions", "Reconciled", "run"]

NOTE = "hourwheel.reconciled"
"""The note of the table with what the last run knew, a ``_Note``."""

_VERSION = 1
"""Of the checks: raised where they judge the same rows differently."""

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
    """See ``findings.py``. Times are Unix milliseconds."""

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
    """Rows ``[start, end)`` of a log of which something is not known, and why."""

    log: str
    start: int
    end: int
    why: str


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """What could not be judged: segments that were set aside, other rows, unreadable catalogs. Counts are whole, lists
    are not."""

    segments: int
    set_aside: list[QuarantinedSegment]
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
    through: dict[str, int]
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
    """An answer, without findings, and what the next run needs. ``basis``: what was judged, and how. ``open_until_ms``:
    a horizon beyond that time changes nothing while the basis is the same."""

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
    """The last answer again where there is nothing new to judge; it is noted that it still holds."""
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
            archive, min(last.through.values()) + 1, max(last_manifest.values()), last.horizon_ms
        )
        if horizon_ms is None or last.horizon_ms < min(horizon_ms, last.open_until_ms):
            return None
        told = msgspec.structs.replace(
            last,
            found_ms=now_ms,
            listed_ms=last.listed_ms or last.found_ms,
            horizon_ms=horizon_ms,
            through=last_manifest,
            new_errors=0,
            archive=_inspected(options, last_manifest),
        )
        lake.commit(TABLE, added=[], notes={NOTE: told.encoded})
        return with_findings(lake, told.answer, options.listed)


def last_of(lake: Lake) -> Reconciled | None:
    """What the last run knew, without its findings; None before the first one."""
    return _last(lake, Reconciled)


def _last(lake: Lake, kind: type[R]) -> R | None:
    try:
        note = lake.notes(TABLE).get(NOTE)
    except NotFound:
        return None
    return None if note is None else msgspec.json.decode(note, type=kind)


def with_findings(lake: Lake, last: Reconciled, listed: int) -> Reconciled:
    """With the first findings of each kind, from the table."""
    if not last.counts:
        return last
    rows = lake.rows(TABLE, _found_at(last.listed_ms or last.found_ms))
    return msgspec.structs.replace(last, findings=_first_of_each_kind(rows, listed))


def _found_at(at_ms: int) -> str:
    """The condition of the rows of a run."""
    return f"found_at = '{datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec='milliseconds')}'"


def _first_of_each_kind(rows: pa.Table, listed: int) -> list[Finding]:
    """The first findings of each kind, at most this many."""
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
    quarantined = [one for progress in holdings.values() for one in progress.quarantined]
    basis = _basis(lake, options, now_ms)
    evidence = evidence_of(spark, lake, last_manifest, since)
    archive = Archive(options.archive, max(last_manifest.values()), options.region, options.endpoint_url)
    named, listed = claims(spark, archive).persist(_STORAGE), groups(spark, archive).persist(_STORAGE)
    since_ms = None if since is None else start_ms(since)
    known = coverage_of(named, listed, evidence, last_manifest, [one.key for one in quarantined], since_ms)
    now = moment(now_ms)
    found = dated(judged(evidence, known, options), lake.read(spark, TABLE), now).persist(_STORAGE)
    unreadable = [row["detail"] for row in listed.where(fn.col("detail").isNotNull()).limit(options.listed).collect()]
    rows = _sizes(evidence)
    told = Reconciled(
        found_ms=now_ms,
        began_ms=known.began_ms,
        horizon_ms=known.horizon_ms,
        through=last_manifest,
        rows=rows,
        totals=_totals(evidence, rows),
        counts={row["kind"]: row["count"] for row in found.groupBy("kind").count().orderBy("kind").collect()},
        new_errors=found.where((fn.col("first_seen") == fn.col("found_at")) & (fn.col("severity") == "error")).count(),
        expired=_expired(evidence, known, options),
        unknown=_unknown(known, quarantined, unreadable, options.listed),
        archive=_inspected(options, last_manifest),
    )
    note = _Note(**msgspec.structs.asdict(told), basis=basis, open_until_ms=_open_until_ms(evidence, options))
    told = msgspec.structs.replace(told, findings=listed_of(found, options.listed))
    lake.append(TABLE, found, notes={NOTE: note.encoded})
    for frame in (named, listed, found):
        frame.unpersist()
    evidence.forget()
    return told


def judged(evidence: Evidence, known: Coverage, options: ReconcileOptions) -> DataFrame:
    """The findings of all checks."""
    skew_ms, late_ms, stuck_ms, lease_ms = (
        round(seconds * 1_000)
        for seconds in (options.skew_seconds, options.late_seconds, options.stuck_seconds, options.lease_seconds)
    )
    every = chain(
        row_findings(evidence, known, ArchivePlace(options.archive, options.region, options.endpoint_url)),
        chain_findings(evidence, known, skew_ms=skew_ms, lease_ms=lease_ms),
        handover_findings(evidence, known, skew_ms=skew_ms),
        delay_findings(evidence, known, skew_ms=skew_ms, late_ms=late_ms, stuck_ms=stuck_ms),
    )
    # One by one: together they are more than Spark can plan in the time that they take.
    found = [some for check in every if check is not None and (some := evidence.some(check)) is not None]
    none = evidence.messages.sparkSession.createDataFrame([], DDL)
    together = reduce(DataFrame.unionByName, found, none)
    if known.whole:
        return together
    return together.where(fn.col("at").isNull() | (fn.col("at") >= moment(known.began_ms)))


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
    """From that time on nothing is left that a later horizon alone would have judged."""
    last = evidence.messages.agg(fn.max(fn.unix_millis("accepted_at")), fn.max(fn.unix_millis("due_at"))).first()
    handed = evidence.dispatches.agg(fn.max(fn.unix_millis("at"))).first()
    assert last is not None
    assert handed is not None
    times = [at for at in (*last, *handed) if at is not None]
    return max(times, default=0) + MARGIN_MS + round(1_000 * max(options.stuck_seconds, options.skew_seconds))


def _sizes(evidence: Evidence) -> dict[str, int]:
    kinds = {f"messages {row['kind']}": row["count"] for row in evidence.messages.groupBy("kind").count().collect()}
    return dict(sorted(kinds.items())) | {PULLS: evidence.pulls.count(), DISPATCHES: evidence.dispatches.count()}


def _expired(evidence: Evidence, known: Coverage, options: ReconcileOptions) -> dict[str, int]:
    found = expired_unseen(evidence, known, round(options.skew_seconds * 1_000))
    most = found.orderBy(fn.desc("messages"), "subject", "group").limit(options.listed).collect()
    return {f"{row['subject']} {row['group']}": row["messages"] for row in most}


def _unknown(known: Coverage, quarantined: list[QuarantinedSegment], catalogs: list[str], listed: int) -> Unknown:
    rows = known.doubtful.orderBy("log", "start").limit(listed).collect()
    return Unknown(
        segments=len(quarantined),
        set_aside=quarantined[:listed],
        ranges=known.doubtful.count(),
        rows=[Lost(log=row["log"], start=row["start"], end=row["end"], why=row["why"]) for row in rows],
        catalogs=catalogs,
    )


def listed_of(found: DataFrame, listed: int) -> list[Finding]:
    """The first findings of each kind, so many."""
    order = Window.partitionBy("kind").orderBy("at", "log", "row", "index")
    first = found.withColumn("nth", fn.row_number().over(order)).where(fn.col("nth") <= listed)
    # As numbers: the times that Spark hands to Python have no zone.
    timed = first.withColumns({"at_ms": fn.unix_millis("at"), "first_seen_ms": fn.unix_millis("first_seen")})
    rows = timed.orderBy("kind", "nth").collect()
    return [Finding(**{name: row[name] for name in Finding.__struct_fields__}) for row in rows]
