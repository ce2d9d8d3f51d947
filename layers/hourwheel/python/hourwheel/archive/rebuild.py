"""Rebuilds a store from its archive: after a disaster, into an empty store that no other process uses meanwhile.

The rebuild restores

- subjects and groups, and the archived progress of each group,
- the messages whose retention is not over, at the rows and sequences that they had,
- delayed messages that are not handed over,
- the watermarks of the archive.

It repeats a hand-over that the archive names where the target row was not archived any more.

The rebuild does not restore rows that were stored after the archive was last complete (``archived_ms``). Messages that
were pulled or dispatched since then are delivered again. The archive does not know which sequences were given out since
then: the sequences of each queue go on ``gap`` further than the archive knows, so that no offset means two messages.
The row numbers go on without a gap. Lost are

- the states of dead letters: letters that were redriven or dropped are dead letters again,
- the idempotency keys,
- the deployment's secret: old receipts and scheduled ids are refused,
- cancellations that were not archived yet, and the new time of a message whose move was archived only in part.

    table      meta
    partition  rebuild
    sort       state
    value      Rebuilding, msgpack array

A rebuild that was killed is started again: it recognises by their tokens the rows that it has written, and writes no
row twice.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec

from hourwheel.archive.rebuild_records import Rebuilding, Rebuilt
from hourwheel.archive.rebuilt_logs import RebuiltLogs
from hourwheel.archive.redo_handovers import HandoverReplayer, occupied, queue_number_of, token_of
from hourwheel.archive.restoring import Restorer
from hourwheel.archive.summary import ArchiveSummary, readable, summarize
from hourwheel.buckets.buckets import Bucket, register
from hourwheel.cells.cells import cell_record
from hourwheel.context import Context
from hourwheel.delay.orphans import register_orphan
from hourwheel.errors import Conflict, NotFound
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.log import FILLER_MS, Reservation
from hourwheel.logs.rows import filler
from hourwheel.model.groups import Group
from hourwheel.model.log_names import HOME, LogKind, LogName, is_schedule, source_of
from hourwheel.model.routes import KINDS, CellRecord
from hourwheel.model.subjects import Subject
from hourwheel.ordered.key_states import KeyStates
from hourwheel.ordered.snapshots import Snapshots
from hourwheel.ports.storage import Blobs, Cells, Key, Table
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Checkpoint
from hourwheel.pull_log.skipped import skip
from hourwheel.registry.records import group_record, subject_record
from hourwheel.registry.subject_list import SubjectList
from hourwheel.retention.chain import end_of, folded_end
from hourwheel.retention.kinds import PULLS
from hourwheel.retention.manifests import Manifest, Span
from hourwheel.retention.watermarks import ArchiveHead, advance_watermark, head_record

GAP = 1_000_000_000
"""More than one queue takes in a day at 10,000 messages a second."""

# The partitions of meta in which a store that was ever used has records.
_USED = ("subjects/0", "buckets", "orphans", "archive")

T = TypeVar("T", Subject, Group)


def rebuild(
    context: Context, archive: Blobs, *, gap: int = GAP, skip_damaged: bool = False, workers: int = 1
) -> Rebuilt:
    """Rebuilds the store, or continues a rebuild that was cut off, and returns the report. After the rebuild has ended,
    returns that report again. ``skip_damaged``: skips manifests and segments that cannot be read, and names them in
    the report, instead of raising ``Corrupt``. ``workers``: how many threads put rows at a time.

    Raises ``Conflict`` when the store has other contents, ``NotFound`` when the archive is empty.
    """
    record = _rebuild_record(context)
    current = record.load() or _begun(context, archive, record)
    done = current.value.rebuilt
    if done is not None and done.finished_ms:
        return done
    summary = summarize(archive, current.value.end_manifest, skip_damaged=skip_damaged)
    return _Rebuild(context, archive, record, current, summary, gap, skip_damaged, workers).run()


def unfinished(context: Context) -> bool:
    """Returns whether a rebuild of the store was begun and has not ended: the store must not be used then."""
    current = _rebuild_record(context).load()
    return current is not None and (current.value.rebuilt is None or not current.value.rebuilt.finished_ms)


def _rebuild_record(context: Context) -> CasRecord[Rebuilding]:
    return CasRecord(context.store, context.ids, Key(Table.META, "rebuild", "state"), Rebuilding)


def _begun(context: Context, archive: Blobs, record: CasRecord[Rebuilding]) -> Versioned[Rebuilding]:
    for partition in _USED:
        if context.store.scan(Table.META, partition, limit=1):
            raise Conflict(
                "store-not-empty",
                f"the store is in use, it has {partition.partition('/')[0]}: rebuild into an empty one",
            )
    end_manifest = end_of(archive)
    if not end_manifest:
        raise NotFound("archive-empty", "the archive has no manifest: look at its location")
    current = record.swap(None, Rebuilding(began_ms=context.clock.now_ms(), end_manifest=end_manifest)).current
    assert current is not None
    return current


@dataclass
class _Rebuild:
    context: Context
    archive: Blobs
    record: CasRecord[Rebuilding]
    current: Versioned[Rebuilding]
    summary: ArchiveSummary
    gap: int
    skip_damaged: bool
    workers: int

    def run(self) -> Rebuilt:
        """Restores counters first and names last: a caller that comes too early finds no subject, and gets no row
        number that is taken."""
        # Hand-overs of deleted groups have no target any more.
        self.summary.pulled = [handover for handover in self.summary.pulled if handover.source in self.logs.members]
        # A storage without the mark of this deployment is not opened.
        for cell in self.cells:
            self._opener(cell).claim(cell, new=True)
        self._count()
        for manifest in readable(self.archive, self.summary.end_manifest, self.current.value.restored):
            self._restore(manifest)
        self.restorer.dispatches()
        replayed, lost = HandoverReplayer(self.context, self.logs.members, self.logs.restored).carry_out(
            self.summary.unarchived_handovers
        )
        self._close_logs()
        self._write_checkpoints()
        self._open_buckets()
        self._write_watermark()
        self._register_cells()
        subjects, groups = self._name()
        return self._finished(replayed=replayed, lost=lost, subjects=subjects, groups=groups)

    @cached_property
    def logs(self) -> RebuiltLogs:
        return RebuiltLogs(self.context, self.summary, self.current.value.began_ms)

    @cached_property
    def cells(self) -> list[str]:
        """The cells in which queues have parts that can be read, without the home cell."""
        routes = [route for subject, _ in self.summary.alive for route in subject.all_routes()]
        return sorted({mapping.cell for route in routes for mapping in route.readable} - {HOME})

    @cached_property
    def restorer(self) -> Restorer:
        return Restorer(
            context=self.context,
            archive=self.archive,
            summary=self.summary,
            logs=self.logs.restored,
            buckets=self.logs.buckets,
            needed=self.logs.needed,
            began_ms=self.current.value.began_ms,
            skip_damaged=self.skip_damaged,
            workers=self.workers,
        )

    def _count(self) -> None:
        """Raises the counters of all logs above every row and sequence that the archive names."""
        for log in sorted(self.logs.restored):
            end, store = self.summary.end(log), self.context.store_of(log)
            closed = self.logs.closed.get(log)
            end.pass_over(0, self.logs.starts.get(log, 0))
            numbers = end.numbers + (self.gap if log in self.logs.queues else 0) if closed is None else closed
            totals = store.counter(log)
            if log in self.logs.queues:
                # Before the counter is raised: the lag must not count what was skipped (``skipped``).
                skip(self.context, log, end.numbers, max(totals.numbers, numbers))
            # Only the rest is added: a rebuild that was cut off may have raised the counter already.
            if (totals.rows < end.rows or totals.numbers < numbers) and not totals.sealed:
                store.add(log, rows=max(0, end.rows - totals.rows), numbers=max(0, numbers - totals.numbers))
            if closed is not None:
                store.seal(log)

    def _restore(self, manifest: Manifest) -> None:
        restored, before = self.restorer.messages(manifest), self._report
        if not restored.rows:
            return  # the rows of most manifests have all expired
        report = msgspec.structs.replace(
            before,
            rows=before.rows + restored.rows,
            messages=before.messages + restored.messages,
            unreadable=before.unreadable + restored.unreadable,
            unreadable_segments=self._unreadable_segments,
        )
        self._save(msgspec.structs.replace(self.current.value, restored=manifest.number + 1, rebuilt=report))

    @property
    def _unreadable_segments(self) -> tuple[str, ...]:
        """The segments that this run or an earlier one has skipped."""
        return tuple(
            sorted(
                {
                    *self._report.unreadable_segments,
                    *self.restorer.unreadable_segments,
                    *self.summary.unreadable_segments,
                }
            )
        )

    def _close_logs(self) -> None:
        """Fills the rows that the archive names and does not have, and trims the expired rows at the start of each
        log."""
        now_ms = self.context.clock.now_ms()
        for name in sorted(self.logs.restored):
            log, end = self.context.log(name), self.summary.end(name)
            scheduled = is_schedule(name)
            spare = filler(now_ms, 0 if scheduled else now_ms + FILLER_MS)
            # Fillers for rows that were given out and never archived: no reader has to wait for them.
            for row in range(end.archived, end.rows):
                log.abandon(Reservation(name, row, 0), spare)
            # Rows of a schedule log expire with their bucket alone.
            if not scheduled:
                live = (row_no for row_no, row in log.stored(0) if row.live(self.current.value.began_ms))
                below = min(end.archived, next(live, end.archived))
                if below:
                    log.trim(below)

    def _write_checkpoints(self) -> None:
        """Writes checkpoints, so that each group goes on where its archived progress ends."""
        for partition in sorted(self.logs.members):
            following = self.summary.watermarks.get((PULLS, partition), 0)
            if not following:
                continue  # no pull of the group is archived: it starts again where it once began
            group = self.logs.members[partition][1]
            source = source_of(partition)
            log = self.logs.pull_logs.get(partition) or PullLog(
                self.context, group, self.context.log(source), queue_number_of(source)
            )
            start = self.summary.progress.get(partition) or log.beginning()
            value = Checkpoint(following, start.position, start.seq, self.context.clock.now_ms())
            outcome = log.checkpoint_record.swap(None, value, token=token_of(partition, following))
            # Stored with a token of its own: a repeated rebuild takes its own checkpoint for stored.
            if not outcome.stored:
                raise occupied(f"the checkpoint of {partition}", following)
            if group.ordered:
                state = self.summary.key_states.get(partition) or KeyStates(following, start.position, start.seq)
                state.row_no = following
                snapshot = state.snapshot(value.saved_ms)
                if not Snapshots.of(log).save(None, snapshot, token_of(partition, following)):
                    raise occupied(f"the snapshot of {partition}", following)

    def _open_buckets(self) -> None:
        """Registers the open buckets and orders their timers. Seals the schedule logs of closed buckets. Registers
        orphan logs that have rows."""
        for name in sorted(self.logs.buckets):
            register(self.context, Bucket.parse(name))
        # A producer whose delayed message is late for such a bucket must go to a later one.
        for name in sorted(self.summary.tallies.keys() - self.logs.buckets):
            self.context.log(str(LogName.of_schedule(name))).seal()
        for log in sorted(self.logs.restored):
            if LogName.parse(log).kind is LogKind.ORPHAN and self.context.log(log).first() is not None:
                register_orphan(self.context, log)

    def _write_watermark(self) -> None:
        """Writes the watermarks and the head, so that the archive goes on behind its end."""
        for (kind, log), end in sorted(self.summary.watermarks.items()):
            advance_watermark(self.context, Span(kind=kind, log=log, start=0, end=end, messages=0, behind=0))
        head = ArchiveHead(
            number=self.summary.end_manifest,
            complete_ms=self.summary.complete_ms,
            registry=self.summary.registry,
            store=self.summary.chain_end.store,
            digest=self.summary.chain_end.digest,
            bundled=folded_end(self.archive),
        )
        record = head_record(self.context)
        head_before = record.load()
        # A sweeper or an archiver that ran on the empty store has left a head without a manifest.
        outcome = record.swap(
            head_before.replaced() if head_before is not None and not head_before.value.number else None, head
        )
        if outcome.current is None or outcome.current.value != head:
            raise Conflict(
                "store-in-use",
                "the archive was written meanwhile: stop the server and every archiver until the rebuild has ended",
            )

    def _opener(self, cell: str) -> Cells:
        """Returns the ``Cells`` of this process, which open the cell. Raises ``NotFound`` where they do not know it."""
        cells = self.context.cells
        if cells is None or cells.location(cell) is None:
            detail = f"the archive has queues in cell {cell}: name its storage too, with --cell {cell}=DIRECTORY"
            raise NotFound("cell-unknown", detail)
        return cells

    def _register_cells(self) -> None:
        """Registers the cells again, in the state normal: their records are not archived."""
        for cell in self.cells:
            opener, record = self._opener(cell), cell_record(self.context, cell)
            if record.load() is None:
                kinds, created_ms = opener.kinds(cell) or KINDS, self.context.clock.now_ms()
                location = opener.location(cell) or ""
                record.swap(None, CellRecord(name=cell, kinds=kinds, location=location, created_ms=created_ms))

    def _name(self) -> tuple[int, int]:
        """Writes the records of subjects and groups, deleted ones included, which keep their generations. Returns how
        many subjects and groups are not deleted."""
        subjects, groups = self.summary.remembered()
        listed = SubjectList(self.context)
        listed.divide(len(subjects))  # before the first one: an entry stays in its shard
        for subject in subjects:
            listed.add(self.context.store, subject.name)
            self._put_name(subject_record(self.context, subject.name), subject)
        for group in groups:
            self._put_name(group_record(self.context, group.subject, group.name), group)
        return sum(not subject.deleted for subject in subjects), sum(not group.deleted for group in groups)

    def _put_name(self, record: CasRecord[T], value: T) -> None:
        outcome = record.swap(None, value)
        if outcome.current is None or outcome.current.value != value:
            raise Conflict(
                "store-in-use",
                f"{value.name!r} was created meanwhile: stop every server of the store until the rebuild ends",
            )

    @property
    def _report(self) -> Rebuilt:
        return self.current.value.rebuilt or Rebuilt(
            archived_ms=self.summary.complete_ms, gap=self.gap, manifests=self.summary.end_manifest
        )

    def _finished(self, **metrics: int) -> Rebuilt:
        report = msgspec.structs.replace(
            self._report,
            **metrics,
            gap=max(self._report.gap, self.gap),
            buckets=len(self.logs.buckets),
            unreadable_segments=self._unreadable_segments,
            lost_manifests=tuple(self.summary.lost_manifests.values()),
            lost_rows=self.summary.lost_rows,
            finished_ms=self.context.clock.now_ms(),
        )
        self._save(msgspec.structs.replace(self.current.value, rebuilt=report))
        return report

    def _save(self, value: Rebuilding) -> None:
        outcome = self.record.swap(self.current, value)
        if not outcome.stored or outcome.current is None:
            raise Conflict("store-in-use", "another process rebuilds the store: wait until it has ended")
        self.current = outcome.current
