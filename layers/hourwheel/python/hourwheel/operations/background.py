"""Shows the background work of a deployment: delayed messages by time, the wheels of their buckets, and the archive."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias, TypeVar

import msgspec

from hourwheel.buckets.buckets import LEAD_MS, Bucket, buckets
from hourwheel.buckets.lease import WheelOwner, lacks_wheel
from hourwheel.context import Context
from hourwheel.delay.lists.due_minutes import due_by_minute, first_due_ms
from hourwheel.delay.lists.pending_counts import PendingCounts, count_of
from hourwheel.errors import UNDECODABLE, Rejected
from hourwheel.model.fields import MAX_DELAY_MS
from hourwheel.model.last_runs import REPORT, CompactRun, LeavingJob, ReconcileRun, ReportRun, file_of
from hourwheel.model.overview import (
    ArchiveState,
    BucketWheel,
    BucketWheels,
    DelayedCount,
    DueCount,
    DueCounts,
    LakeState,
    LakeTable,
    LatenessStep,
    ReportState,
)
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Table, transactional
from hourwheel.retention.watermarks import ArchiveHead, behind_seconds, head_record
from hourwheel.times import HOUR_MS, rfc3339

R = TypeVar("R", CompactRun, ReconcileRun, ReportRun)
DueStepSize: TypeAlias = Literal["hour", "minute"]

_LONGEST_MS = MAX_DELAY_MS + 2 * HOUR_MS  # the longest delay, from the start of its first hour to the end of its last
_DEFAULT_MS = 72 * HOUR_MS
_WHEELS = 100  # hour buckets: the next four days, and one batch of counters
_ROWS, _FAR_ROWS = 20_000, 2_000
"""Rows of schedule logs that one call reads: on one machine, and where each read costs money. Later calls go on."""

_STARTING_MS = 5_000  # a wheel whose time has just come may still be starting


@dataclass(frozen=True)
class Background:
    """Shows the background work of a deployment."""

    context: Context
    pending_counts: PendingCounts

    def due(self, subject: Subject | None, since_ms: int | None, until_ms: int | None, step: DueStepSize) -> DueCounts:
        """Returns the delayed messages between the two times (by default from now on, for three days or an hour), by
        hour or minute; without both times also what ``total`` returns. Raises ``Rejected`` for a span of more than two
        years, or by minute of more than an hour.

        On DynamoDB by hour: a query for each 500 buckets, two batches for each 100, and up to 2,000 rows that this
        process has not read before. By minute: up to 4,000 rows of each bucket in the span.
        """
        first_ms, end_ms = self._span(since_ms, until_ms, step)
        owner = None if subject is None else (subject.name, subject.generation)
        everything = since_ms is None and until_ms is None
        total = self.total(owner) if everything else None
        if step == "minute":
            counts, complete = due_by_minute(self.context, (first_ms, end_ms), owner)
        else:
            if not everything:
                self.pending_counts.everywhere(self.context, most_rows=self._most_rows)
            counts, complete = self.pending_counts.by_hour(self.context, (first_ms, end_ms), owner)
        steps = [DueCount(at=rfc3339(at_ms), messages=messages) for at_ms, messages in counts.items()]
        due = DueCounts(messages=sum(counts.values()), steps=steps, complete=complete)
        if total is not None:
            due.total, due.next_at, due.complete = total.messages, total.next_at, complete and total.complete
        return due

    def _span(self, since_ms: int | None, until_ms: int | None, step: DueStepSize) -> tuple[int, int]:
        length_ms, most_ms = (_DEFAULT_MS, _LONGEST_MS) if step == "hour" else (HOUR_MS, HOUR_MS)
        first_ms = self.context.clock.now_ms() // HOUR_MS * HOUR_MS if since_ms is None else since_ms
        end_ms = first_ms + length_ms if until_ms is None else until_ms
        if not 0 < end_ms - first_ms <= most_ms:
            longest = "two years" if step == "hour" else "an hour"
            raise Rejected(
                "field-invalid", f"with step={step}, to must be later than from by {longest} at most", field="to"
            )
        return first_ms, end_ms

    def total(self, owner: tuple[str, int] | None) -> DelayedCount:
        """Returns the number of the delayed messages of the subject (name and generation; None: of all), and when the
        next one is due.

        One query for each 500 buckets and one batch of counters for each 100, and the rows that this process has not
        read before, up to 20,000 (2,000 on DynamoDB). Reads up to 2,000 rows of each log of the first bucket with a
        message.
        """
        counts, complete = self.pending_counts.everywhere(self.context, most_rows=self._most_rows)
        bucket = self.pending_counts.first_bucket(owner)
        next_at = None if bucket is None else rfc3339(first_due_ms(self.context, bucket, owner))
        return DelayedCount(messages=count_of(counts, owner), next_at=next_at, complete=complete)

    @property
    def _most_rows(self) -> int:
        return _ROWS if transactional(self.context.store) else _FAR_ROWS

    def wheels(self) -> BucketWheels:
        """Returns the wheels of the first 100 open buckets. Two queries and a batch; on DynamoDB the first query reads
        the buckets that were closed within a day as well."""
        following = (bucket for bucket, record in buckets(self.context) if not record.closed_ms)
        first = list(islice(following, _WHEELS + 1))
        states = self._bucket_wheels(first[:_WHEELS]) if first else []
        return BucketWheels(wheels=states, lateness=_lateness(self.context), complete=len(first) <= _WHEELS)

    def _bucket_wheels(self, first: Sequence[Bucket]) -> list[BucketWheel]:
        store = self.context.store
        # Records of owners are kept as long as their buckets. Those of closed buckets come before the first open one.
        records = store.scan(Table.META, "wheels", start=first[0].name, limit=_WHEELS)
        owners = {name: msgspec.msgpack.decode(record.value, type=WheelOwner) for name, record in records}
        totals = store.counters([bucket.log for bucket in first])
        now_ms = self.context.clock.now_ms()
        return [_bucket_wheel(bucket, owners.get(bucket.name), totals[bucket.log].numbers, now_ms) for bucket in first]

    def archive(self) -> ArchiveState:
        """Returns how far the archive is, and what the jobs of the pipeline left. Two reads, and where this process
        reaches the lake one for each of three files."""
        enabled = self.context.settings.archive
        current = head_record(self.context).load(consistent=False)
        head = ArchiveHead() if current is None else current.value
        compacted = self._last_run("compact", CompactRun)
        return ArchiveState(
            enabled=enabled,
            manifests=head.number,
            last_at=_time(head.ended_ms),
            complete_at=_time(head.complete_ms),
            since=_time(head.since_ms),
            pass_began_at=_time(head.pass_ms),
            behind_seconds=behind_seconds(self.context) if enabled else None,
            lake=None if compacted is None else _lake(compacted, head.number),
            reconciled=self._last_run("reconcile", ReconcileRun),
            report=self._report(),
        )

    def _report(self) -> ReportState | None:
        run = self._last_run("report", ReportRun)
        if run is None or self.context.lake is None:
            return None
        # A path of the machine tells a browser elsewhere nothing, and the machine's folders to everybody.
        page = run.page if run.page.startswith("s3://") else None
        return ReportState(
            made_at=run.made_at, page=page, served=self.context.lake.serves_report and run.page == REPORT
        )

    def _last_run(self, job: LeavingJob, kind: type[R]) -> R | None:
        """Returns what the last run of the job left; None where it left nothing that this version can read."""
        written = None if self.context.lake is None else self.context.lake.read(file_of(job))
        try:
            return None if written is None else msgspec.json.decode(written, type=kind)
        except UNDECODABLE:
            return None  # another version of the job wrote the file; its next run writes a new one


def _bucket_wheel(bucket: Bucket, owner: WheelOwner | None, messages: int, now_ms: int) -> BucketWheel:
    turning = None if owner is None or not owner.alive(now_ms) else owner
    wakes_ms = owner.first_start_ms if owner is not None and owner.left else bucket.start_ms - LEAD_MS
    return BucketWheel(
        bucket=bucket.name,
        starts_at=rfc3339(bucket.start_ms),
        ends_at=rfc3339(bucket.end_ms),
        state="turning" if turning else _resting_state(bucket, owner, now_ms),
        owner=turning.owner if turning else None,
        lease_until=rfc3339(turning.until_ms) if turning else None,
        wakes_at=None if turning else rfc3339(wakes_ms),
        messages=messages,
    )


def _resting_state(bucket: Bucket, owner: WheelOwner | None, now_ms: int) -> Literal["asleep", "waiting", "overdue"]:
    """Returns the state of a bucket whose wheel does not turn."""
    if owner is None:
        return "overdue" if bucket.start_ms - LEAD_MS <= now_ms - _STARTING_MS else "waiting"
    return "overdue" if lacks_wheel(owner, bucket, now_ms) else "asleep"


def _lateness(context: Context) -> list[LatenessStep] | None:
    """Returns how late this process has handed messages over; None if its meter keeps no times."""
    histogram = getattr(context.meter, "lateness", None)
    if histogram is None:
        return None
    return [LatenessStep(seconds=seconds, handovers=count) for seconds, count in histogram("DispatchLateness")]


def _lake(compacted: CompactRun, manifests: int) -> LakeState:
    tables = [
        LakeTable(
            table=table.table,
            rows=table.rows,
            # Manifests are numbered from 0, and the file may be newer than the head that was read.
            behind=max(0, manifests - 1 - table.last_manifest),
            quarantined=table.quarantined,
            changed_at=table.changed_at,
        )
        for table in compacted.tables
    ]
    return LakeState(tables=tables, problems=compacted.problems)


def _time(ms: int) -> str | None:
    return rfc3339(ms) if ms else None
