"""Reconcile: compares what was accepted, dispatched, pulled, tried again, given up and settled, and finds what went
wrong. A system that works has no findings.

It reads the three tables of the lake whole, or from a day on (``since``, ``days``). Of a part it can judge less: not
what was stored on that day itself, nor pulls whose row before is older, nor dead letters that were sent again, nor
messages that were moved from a bucket before it.

Findings go to the table ``findings``, all those of a run with one ``found_at``. What the run knew and counted stands
in the notes of the table.
"""

from contextlib import closing
from functools import reduce
from itertools import chain

import msgspec
from pydantic import NonNegativeFloat, PositiveInt
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as fn

from hourwheel_pipeline.checks.chains import chain_findings, expired_unseen
from hourwheel_pipeline.checks.claims import Archive, claims, groups
from hourwheel_pipeline.checks.delays import delay_findings
from hourwheel_pipeline.checks.evidence import Evidence, evidence_of, start_ms
from hourwheel_pipeline.checks.handovers import handover_findings
from hourwheel_pipeline.checks.known import Known, known_of, moment
from hourwheel_pipeline.checks.rows import row_findings
from hourwheel_pipeline.days import Days
from hourwheel_pipeline.findings import DDL, SCHEMA, TABLE, dated
from hourwheel_pipeline.holding import SetAside
from hourwheel_pipeline.lake import NAMESPACE, Lake
from hourwheel_pipeline.schemas import DISPATCHES, PULLS, SCHEMAS

NOTE = "hourwheel.reconciled"
"""The note of the table with what the last run knew, a ``Reconciled``."""

_LISTED = 100
_STORAGE = StorageLevel.MEMORY_AND_DISK


class ReconcileOptions(Days):
    """``skew_seconds``: clocks of writers may differ by so much. A delayed message is late ``late_seconds`` after it
    was due, and stuck after ``stuck_seconds``; a pull that is open ``lease_seconds`` after its lease is stuck: the
    sweeper may rest for half an hour. ``since``, ``days``: the day from which on to read. ``listed``: so many findings
    of a kind are in the answer; all are in the table."""

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
    set_aside: list[SetAside]
    ranges: int
    rows: list[Lost]
    catalogs: list[str]


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """``began_ms``: what was stored since is judged, if it was stored before ``horizon_ms``. ``counts``: findings by
    kind. ``new_errors``: findings that are no warnings and that no run had before. ``expired``: messages that expired
    before their group came to them, by subject and group."""

    found_ms: int
    began_ms: int
    horizon_ms: int
    through: dict[str, int]
    rows: dict[str, int]
    counts: dict[str, int]
    new_errors: int = 0
    expired: dict[str, int]
    unknown: Unknown
    findings: list[Finding] = []


def run(spark: SparkSession, options: ReconcileOptions, now_ms: int) -> Reconciled:
    """Judges, appends the findings to their table, and tells."""
    opened = Lake.open(
        options.lake, namespace=options.namespace, region=options.region, endpoint_url=options.endpoint_url
    )
    with closing(opened) as lake:
        lake.ensure(TABLE, SCHEMA, partition=("day",), sorted_by=("kind", "log", "row", "index"))
        return _run(spark, lake, options, now_ms)


def _run(spark: SparkSession, lake: Lake, options: ReconcileOptions, now_ms: int) -> Reconciled:
    since = options.first_day(now_ms)
    holdings = {name: lake.holding(name) for name in SCHEMAS}
    through = {name: holding.through for name, holding in holdings.items()}
    aside = [one for holding in holdings.values() for one in holding.aside]
    evidence = evidence_of(spark, lake, through, since)
    archive = Archive(options.archive, max(through.values()), options.region, options.endpoint_url)
    named, listed = claims(spark, archive).persist(_STORAGE), groups(spark, archive).persist(_STORAGE)
    since_ms = None if since is None else start_ms(since)
    known = known_of(named, listed, evidence, through, [one.key for one in aside], since_ms)
    now = moment(now_ms)
    found = dated(judged(evidence, known, options), lake.read(spark, TABLE), now).persist(_STORAGE)
    unreadable = [row["detail"] for row in listed.where(fn.col("detail").isNotNull()).limit(options.listed).collect()]
    told = Reconciled(
        found_ms=now_ms,
        began_ms=known.began_ms,
        horizon_ms=known.horizon_ms,
        through=through,
        rows=_sizes(evidence),
        counts={row["kind"]: row["count"] for row in found.groupBy("kind").count().orderBy("kind").collect()},
        new_errors=found.where((fn.col("first_seen") == fn.col("found_at")) & (fn.col("severity") == "error")).count(),
        expired=_expired(evidence, known, options),
        unknown=_unknown(known, aside, unreadable, options.listed),
        findings=listed_of(found, options.listed),
    )
    note = msgspec.json.encode(msgspec.structs.replace(told, findings=[])).decode()
    lake.append(TABLE, found, notes={NOTE: note})
    for frame in (named, listed, found):
        frame.unpersist()
    evidence.forget()
    return told


def judged(evidence: Evidence, known: Known, options: ReconcileOptions) -> DataFrame:
    """The findings of all checks."""
    skew_ms, late_ms, stuck_ms, lease_ms = (
        round(seconds * 1_000)
        for seconds in (options.skew_seconds, options.late_seconds, options.stuck_seconds, options.lease_seconds)
    )
    every = chain(
        row_findings(evidence, known),
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


def _sizes(evidence: Evidence) -> dict[str, int]:
    kinds = {f"messages {row['kind']}": row["count"] for row in evidence.messages.groupBy("kind").count().collect()}
    return dict(sorted(kinds.items())) | {PULLS: evidence.pulls.count(), DISPATCHES: evidence.dispatches.count()}


def _expired(evidence: Evidence, known: Known, options: ReconcileOptions) -> dict[str, int]:
    found = expired_unseen(evidence, known, round(options.skew_seconds * 1_000))
    most = found.orderBy(fn.desc("messages"), "subject", "group").limit(options.listed).collect()
    return {f"{row['subject']} {row['group']}": row["messages"] for row in most}


def _unknown(known: Known, aside: list[SetAside], catalogs: list[str], listed: int) -> Unknown:
    rows = known.doubtful.orderBy("log", "start").limit(listed).collect()
    return Unknown(
        segments=len(aside),
        set_aside=aside[:listed],
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
