"""Decides what a run of ``reconcile`` takes over from the last run that judged the whole lake, or the same number of
days, and what it judges again.

The findings about a subject follow from its own rows and from rows that name no subject (cancel markers, dropped
messages). They also follow from the manifests and the snapshots of the registry in the archive, and from the horizon.
So a run judges these subjects, each with all of its rows, and takes the findings of all others over:

- subjects with new rows, or with logs of which the archive has more rows;
- subjects with rows stored within a day before the last horizon: only a later horizon decides about these rows;
- subjects with messages that fell due since;
- subjects with overdue messages, and those from whose buckets a wheel dropped messages since;
- subjects with groups that were created, deleted, changed, or begin elsewhere.

Rows that are missing or doubled, and new damage of the archive, are not judged by subject. Then the run judges the
whole lake, and so does the next one until no such finding is left.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from hourwheel.model.log_names import SCHEDULE_PREFIX, is_schedule
from hourwheel.times import HOUR_MS
from hourwheel_pipeline.judging.changed_subjects import (
    MAX_SUBJECTS,
    ChangeSearch,
    ChangesUnknown,
    TableState,
    day_of,
    subject_of,
)
from hourwheel_pipeline.judging.checks.coverage import MARGIN_MS, missing_of, stored_of
from hourwheel_pipeline.judging.findings import TABLE, found_at
from hourwheel_pipeline.judging.lacking import IDENTITY
from hourwheel_pipeline.judging.row_counts import RowCounts
from hourwheel_pipeline.lake.schemas import DISPATCHES, MESSAGES, SCHEMAS

BY_ROW: Final = ("missing_rows", "doubled_rows")
"""Findings about rows of the lake, not about messages: with any of them, the next run judges everything."""

_MAX_LOGS = 200
"""Iceberg compares a column with at most this many values when it chooses files."""

_WHOLE_EVERY_MS = 7 * 24 * HOUR_MS
"""For at most this long a run limited to some days keeps a finding that these days alone would no longer give."""

_BEFORE_DUE_MS = 2 * HOUR_MS
"""A bucket begins at most this long before its messages are due."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A run that judged the whole lake, with ``limits``: what the next run needs to judge only changes.

    ``days``: the run was limited to this many days. ``whole_ms``: the time of the last run that judged all subjects.
    ``found_ms``: the time of its findings in the table. ``tables``: the states of the tables then. ``manifests``,
    ``snapshots``: the numbers of manifests and of groups in snapshots that could be read. ``expired``: the messages
    that expired, by subject and group."""

    limits: tuple[float, ...]
    days: int | None = None
    whole_ms: int = 0
    found_ms: int
    horizon_ms: int
    open_until_ms: int
    tables: dict[str, TableState]
    manifests: int
    snapshots: int
    counts: dict[str, RowCounts]
    expired: dict[str, int]

    def outdated(self, now_ms: int) -> bool:
        """Returns whether a run limited to some days has to judge all subjects. The days move on with each run, and a
        finding that was taken over may rest on days that are no longer read."""
        return self.days is not None and now_ms - self.whole_ms >= _WHOLE_EVERY_MS


class Scope(NamedTuple):
    """The subjects that a run judges. ``logs``: schedule logs from which messages were dropped since the last run."""

    subjects: frozenset[str]
    logs: frozenset[str]

    def decided(self, findings: DataFrame) -> DataFrame:
        """Returns the findings that this run decides: those about its subjects, those about messages that were dropped
        from its schedule logs, and those about rows of the lake."""
        return findings.where(self._covers() | fn.col("kind").isin(*BY_ROW))

    def kept(self, findings: DataFrame) -> DataFrame:
        """Returns the findings of the last run that this run takes over."""
        return findings.where(~self._covers())

    def without(self, expired: Mapping[str, int]) -> dict[str, int]:
        """Returns the numbers of expired messages, by ``subject group``, of all other subjects."""
        return {name: count for name, count in expired.items() if name.partition(" ")[0] not in self.subjects}

    def _covers(self) -> Column:
        subject = fn.coalesce("subject", fn.lit(""))
        return subject.isin(*self.subjects) | ((subject == "") & fn.col("log").isin(*self.logs))


def readable(claims: DataFrame, snapshots: DataFrame, last: int) -> tuple[int, int]:
    """Returns the numbers of manifests, and of groups in snapshots, that can be read up to the manifest ``last``."""
    begun = (fn.col("claim") == "began") & (fn.col("manifest") <= last)
    readable_snapshots = (fn.col("manifest") <= last) & fn.col("detail").isNull()
    return claims.where(begun).count(), snapshots.where(readable_snapshots).count()


def numbers_of(tables: Mapping[str, TableState]) -> dict[str, int]:
    """Returns the number of the last manifest that each table held."""
    return {name: state.progress.last_manifest for name, state in tables.items()}


def may_be_carried(counts: Mapping[str, int]) -> bool:
    """Returns whether the next run may take findings over from a run with these numbers of findings by kind."""
    return counts.keys().isdisjoint(BY_ROW)


def most_expired(expired: Mapping[str, int], listed: int) -> dict[str, int]:
    """Returns the ``listed`` groups with the most expired messages, the largest number first."""
    ordered = sorted(expired.items(), key=lambda item: (-item[1], *item[0].split(" ")))
    return dict(ordered[:listed])


def scope_of(
    search: ChangeSearch, before: Baseline, claims: DataFrame, snapshots: DataFrame, stuck_ms: int
) -> Scope | None:
    """Returns the subjects that a run after ``before`` judges again; None for all subjects. ``stuck_ms``: the time
    after which a delayed message is stuck."""
    try:
        return _scope(search, before, claims, snapshots, stuck_ms)
    except ChangesUnknown:
        return None


def _scope(search: ChangeSearch, before: Baseline, claims: DataFrame, snapshots: DataFrame, stuck_ms: int) -> Scope:
    if (before.manifests, before.snapshots) != readable(claims, snapshots, max(numbers_of(before.tables).values())):
        raise ChangesUnknown  # a manifest or a snapshot of the registry was lost or put back
    # Doubt about rows of a dispatch log is doubt about the messages of all subjects in its hours.
    for table in SCHEMAS:
        before_progress, now = search.before[table].progress, search.now[table].progress
        if (before_progress.quarantined, before_progress.lost) != (now.quarantined, now.lost):
            raise ChangesUnknown
    if any(manifest.unreadable or manifest.missing for manifest in search.manifests()):
        raise ChangesUnknown
    subjects = search.new_rows().subjects | _with_longer_logs(search) | search.regrouped(snapshots)
    if _lacks_new_rows(search, claims):
        raise ChangesUnknown
    logs = _dropped_from(search)
    subjects |= _lately_active(search, stuck_ms) | _due_since(search, stuck_ms) | _waiting_in(search, logs)
    subjects |= _overdue(search, before)
    if len(subjects) > MAX_SUBJECTS:
        raise ChangesUnknown
    return Scope(frozenset(subjects - {""}), frozenset(logs))


def _with_longer_logs(search: ChangeSearch) -> set[str]:
    spans = (span for manifest in search.manifests() for span in manifest.spans)
    return {subject_of(span.kind, span.log) for span in spans if span.kind != DISPATCHES and not is_schedule(span.log)}


def _lacks_new_rows(search: ChangeSearch, claims: DataFrame) -> bool:
    """Returns whether the lake lacks rows that the new manifests say they brought."""
    for table in SCHEMAS:
        state = search.before[table].progress
        new = claims.where(fn.col("manifest") > state.last_manifest)
        new = new.where(fn.col("manifest") <= search.now[table].progress.last_manifest)
        brought = new.where((fn.col("table") == table) | (fn.col("claim") == "removed"))
        rows = search.rows_of(table)
        if rows is None:
            # No rows, with the columns of the table.
            rows = search.lake.read(search.spark, table, subjects=())
        kind = ("kind",) if table == MESSAGES else ()
        stored = stored_of(table, rows.select(*IDENTITY[table], *kind, "manifest").distinct())
        quarantined = [segment.key for segment in search.now[table].progress.quarantined]
        if not missing_of(brought, stored, quarantined).isEmpty():
            return True
    return False


def _lately_active(search: ChangeSearch, stuck_ms: int) -> set[str]:
    since = day_of(max(0, search.horizon_ms - MARGIN_MS - stuck_ms))
    return set().union(*(search.lake.subjects_of_rows(table, f"day >= '{since}'") for table in SCHEMAS))


def _due_since(search: ChangeSearch, stuck_ms: int) -> set[str]:
    """Returns the subjects with delayed messages that could not be judged at the last horizon, and can be at the new
    one."""
    horizon_ms = max([search.horizon_ms, *(manifest.complete_ms for manifest in search.manifests())])
    first_ms = max(0, search.horizon_ms - stuck_ms - _BEFORE_DUE_MS)
    low, high = (f"{SCHEDULE_PREFIX}{at_ms:013d}" for at_ms in (first_ms, horizon_ms))
    return search.lake.subjects_of_rows(MESSAGES, f"log >= '{low}' and log < '{high}'")


def _dropped_from(search: ChangeSearch) -> set[str]:
    """Returns the schedule logs of messages that wheels dropped since, because their group was deleted or their row
    could not be read."""
    rows = search.rows_of(DISPATCHES)
    if rows is None:
        return set()
    logs = {row["source_log"] for row in rows.where("subject = ''").select("source_log").distinct().collect()}
    if len(logs) > _MAX_LOGS:
        raise ChangesUnknown
    return logs


def _waiting_in(search: ChangeSearch, logs: set[str]) -> set[str]:
    if not logs:
        return set()
    names = ", ".join(f"'{log}'" for log in sorted(logs))
    return search.lake.subjects_of_rows(MESSAGES, f"log in ({names})")


def _overdue(search: ChangeSearch, before: Baseline) -> set[str]:
    """Returns the subjects with overdue messages: a cancel marker ends the finding, and each horizon changes it."""
    rows = search.lake.rows(TABLE, f"{found_at(before.found_ms)} and kind = 'stuck'")
    return {subject for subject in rows["subject"].to_pylist() if subject is not None}
