"""Ends leases that are over, and moves the checkpoint behind the settled pull rows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from hourwheel.faults import Faults
from hourwheel.logs.cas import value_of
from hourwheel.logs.rows import sort_of
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Table
from hourwheel.pull_log.claiming.claims import SettledRow
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, OPEN, Checkpoint, PullRow, Tail
from hourwheel.registry.removed_names import RemovedNames, drop_logs
from hourwheel.retention.kinds import PULLS
from hourwheel.retention.watermarks import removable_below
from hourwheel.settling.lease_watch import NONE_KEPT, KeptMessages, LeaseWatch, WatchedRow
from hourwheel.settling.settle import Settler
from hourwheel.times import within

_PAGE = 200  # pull rows have about 150 bytes: 30 KB
_THROTTLE_MS = 1_000  # many consumers of a group pull in one process: one of them looks for ended leases
_THROTTLED_ROWS = 100  # a consumer waits while its pull ends other leases
_SEEN_MS = 5_000  # a sweep looks for ended leases just before it saves the checkpoint
_CHECKPOINT_ROWS = 1_000  # saved after this many rows: a process that starts scans the rows behind the checkpoint
_CHECKPOINT_MS = 60_000  # or, after fewer rows, once a minute: each save costs a write
_TRIM_MS = 3_600_000  # rows are kept for days: an hour more is cheaper than a search each minute


class LeaseCounts(NamedTuple):
    """The state of a pull log: where the next claim goes (None: not scanned yet), the number of messages that consumers
    hold, and those that rows keep. ``complete`` is False where a limit ended the count, so that the numbers may be out
    of date."""

    tail: Tail | None
    in_flight: int
    kept: KeptMessages = NONE_KEPT
    complete: bool = True


class OpenLeaseRow(NamedTuple):
    """An open pull row, and where it starts in its source log."""

    row: PullRow
    start: Tail

    @property
    def seq(self) -> int:
        """The sequence of the first message of the claim, which in a row that has grown is behind earlier ones."""
        base_seq = self.row.base_seq
        return self.start.seq if base_seq is None else base_seq


@dataclass
class Leases:
    """Ends leases and moves checkpoints. Thread-safe."""

    faults: Faults = field(default_factory=Faults)
    _watches: dict[str, LeaseWatch] = field(default_factory=dict)

    def drop(self, deleted: RemovedNames) -> None:
        """Drops what is known of the logs of deleted subjects and groups."""
        drop_logs(deleted, self._watches)

    def due(self, log: PullLog) -> bool:
        """Returns whether a lease that this process knows may be over. Reads nothing, and takes constant time: every
        look of a waiting pull calls this."""
        return self._watch(log).is_due(log.context.clock.now_ms())

    def seen(self, log: PullLog, row_no: int) -> bool:
        """Returns whether this process knows all pull rows below ``row_no``, and otherwise makes the next pull look.
        Reads nothing."""
        watch = self._watch(log)
        if watch.seen_below >= row_no:
            return True
        watch.missed = True
        return False

    def record_claim(self, log: PullLog, row_no: int, row: PullRow) -> None:
        """Records a claim of this process, which is stored, so that ``seen`` need not wait for the next look."""
        watch = self._watch(log)
        # Another thread holds the lock because it looks, and it may have read the row already. A claim that is not
        # recorded here is found by that look, or by the next one.
        if not watch.lock.acquire(blocking=False):
            watch.missed = True
            return
        try:
            # A row that has grown was recorded before.
            if watch.seen_below >= row_no:
                watch.record_claim(row_no, row)
            else:
                watch.missed = True
        finally:
            watch.lock.release()

    def keeps(self, log: PullLog) -> bool:
        """Returns whether a row may keep messages for its consumer, which nobody else is handed before that consumer
        has been silent. Reads rows only where this process has missed some."""
        watch = self._watch(log)
        if watch.missed:
            with watch.lock:
                self._look(log, watch, pages=1)
        return watch.missed or watch.keeps

    def open_from(self, log: PullLog, consumer: str) -> int:
        """Returns the row below which this process knows of no open row of the consumer, and has read all. Reads
        nothing."""
        watch = self._watch(log)
        scanned = watch.scanned  # before the open rows: another thread may read further ones meanwhile
        if scanned is None:
            return 0
        own = [row_no for row_no, entry in list(watch.open.items()) if entry.consumer == consumer]
        return min([*own, scanned.row_no])

    def bounded(self, log: PullLog, acknowledged: Mapping[str, SettledRow], consumer: str) -> SettledRow | None:
        """Returns the row that a consumer has acknowledged in this log, with the first one that it may hold besides
        where the row does not tell that there is none."""
        before = acknowledged.get(log.partition)
        if before is None or before.serial:
            return before
        return before._replace(open_from=self.open_from(log, consumer))

    def record_pull(self, log: PullLog, subject: Subject) -> None:
        """Records that a consumer pulls from the log now (see ``active_logs``)."""
        watch = self._watch(log)
        watch.pulled, watch.pulled_ms = (log, subject), log.context.clock.now_ms()

    def expire_throttled(self, log: PullLog, subject: Subject) -> int:
        """Ends leases that are over, at most once a second for each log and process, and returns their number."""
        return 0 if self.rests(log, subject) else self.expire(log, subject, pages=1, most=_THROTTLED_ROWS)

    def rests(self, log: PullLog, subject: Subject) -> bool:
        """Records that a consumer pulls from the log now. Returns whether a look for ended leases would find none, or
        this process has looked there less than a second ago."""
        watch = self._watch(log)
        now_ms = log.context.clock.now_ms()
        watch.pulled, watch.pulled_ms = (log, subject), now_ms
        return within(watch.looked_ms, now_ms, _THROTTLE_MS) or not watch.needs_look(now_ms, _PAGE)

    def active_logs(self, now_ms: int) -> list[tuple[PullLog, Subject]]:
        """Returns the logs pulled in this process that may have leases to end, and need a look."""
        return [
            watch.pulled
            for watch in list(self._watches.values())
            if watch.pulled is not None and watch.is_active(now_ms) and watch.needs_look(now_ms, _PAGE)
        ]

    def expire(self, log: PullLog, subject: Subject, *, pages: int | None = None, most: int | None = None) -> int:
        """Ends leases that are over and finishes settlements that were cut off, and returns the number of both.

        Scans at most ``pages`` pages of new rows, and ends at most ``most`` leases: a consumer waits while a pull does
        this. Returns 0 at once while another thread works on the log.
        """
        watch = self._watch(log)
        # The thread that has the lock ends the same leases: to wait for it would only hold up a pull.
        if not watch.lock.acquire(blocking=False):
            return 0
        try:
            self._look(log, watch, pages)
            return self._expire(log, Settler(log, subject), watch, most)
        finally:
            watch.lock.release()

    def in_flight(self, log: PullLog) -> int:
        """Returns the number of messages that consumers hold now."""
        return self.leased(log).in_flight

    def leased(self, log: PullLog) -> LeaseCounts:
        """Returns the state of the log as it is now."""
        with self._open_pulls(log) as watch:
            return LeaseCounts(watch.tail, watch.in_flight, watch.kept)

    def counted(self, log: PullLog, *, pages: int, most: int) -> LeaseCounts:
        """Returns the state of the log from at most ``pages`` pages of new pull rows and ``most`` open ones that are
        read again, the oldest first. One read where nothing has changed."""
        watch = self._watch(log)
        with watch.lock:
            complete = self._look(log, watch, pages)
            for row_no in sorted(watch.open)[:most]:
                self._refresh(log, watch, row_no)
            assert watch.tail is not None
            tail = watch.tail if complete else log.tail()
            return LeaseCounts(tail, watch.in_flight, watch.kept, complete and len(watch.open) <= most)

    def ending(self, log: PullLog, *, pages: int, most: int) -> tuple[list[OpenLeaseRow], bool]:
        """Returns the open pull rows whose leases end first, at most about ``most``, and whether these are all. Looks
        at ``pages`` pages of new rows; one read more for each row that it returns."""
        watch = self._watch(log)
        with watch.lock:
            complete = self._look(log, watch, pages)
            first = sorted(watch.open.items(), key=lambda item: item[1].due_ms)
        ending = []
        for row_no, entry in first[:most]:
            current = log.record(row_no).load()
            if current is not None and current.value.state == OPEN:
                ending.append(OpenLeaseRow(current.value, entry.start))
        return ending, complete and len(first) <= most

    def open_rows(self, log: PullLog) -> list[tuple[int, PullRow]]:
        """Returns the open pull rows as they are now, each with its number."""
        with self._open_pulls(log) as watch:
            current = [(row_no, log.record(row_no).load()) for row_no in sorted(watch.open)]
        return [(row_no, pull_row.value) for row_no, pull_row in current if pull_row is not None]

    def snapshot(self, log: PullLog) -> LeaseCounts:
        """Returns the state of the log as the last look saw it. Reads nothing."""
        watch = self._watch(log)
        with watch.lock:
            return LeaseCounts(watch.tail, watch.in_flight, watch.kept)

    def idle(self, log: PullLog) -> int | None:
        """Returns the row behind the last pull row, if every pull of the log is closed, and None if one is open."""
        with self._open_pulls(log) as watch:
            # A row that grew when it was read, and was closed since, may have others behind it.
            if watch.open or watch.scanned is None or watch.scanned != watch.tail:
                return None
            return watch.scanned.row_no

    def checkpoint(self, log: PullLog) -> None:
        """Saves the lowest row that is not settled, and about once an hour trims rows below it that are old enough."""
        # Rows that are new since the last look are behind the checkpoint in any case.
        with self._open_pulls(log, seen_ms=_SEEN_MS) as watch:
            lowest = min(watch.open, default=None)
            start = watch.scanned if lowest is None else watch.open[lowest].start
        # Saved before rows are trimmed: whoever finds no row begins at the checkpoint.
        if start is not None:
            self._trim(log, watch, self._save(log, watch, start))

    @contextmanager
    def _open_pulls(self, log: PullLog, *, seen_ms: int = 0) -> Iterator[LeaseWatch]:
        """Locks the log, and reads the rows of its open pulls, and before them its new rows, unless a look has done so
        in the last ``seen_ms``."""
        watch = self._watch(log)
        with watch.lock:
            if watch.scanned is None or not within(watch.looked_ms, log.context.clock.now_ms(), seen_ms):
                self._look(log, watch, None)
            for row_no in list(watch.open):
                self._refresh(log, watch, row_no)
            yield watch

    def _watch(self, log: PullLog) -> LeaseWatch:
        watch = self._watches.get(log.partition)
        # Each pull asks this about each of its logs: a watch and its lock are not made in vain.
        return self._watches.setdefault(log.partition, LeaseWatch()) if watch is None else watch

    def _look(self, log: PullLog, watch: LeaseWatch, pages: int | None) -> bool:
        """Scans the pull rows that were stored since the last look, and one that grew then. Returns whether it has come
        to the last one."""
        watch.looked_ms = log.context.clock.now_ms()
        # A claim sets it at any moment, without the lock: only what is known to be True is set to False.
        missed = watch.missed
        if missed:
            watch.missed = False
        complete = False
        try:
            complete = self._scan(log, watch, pages)
        finally:
            # The row that this process does not know may lie behind those that were read.
            if missed and not complete:
                watch.missed = True
        return complete

    @staticmethod
    def _scan(log: PullLog, watch: LeaseWatch, pages: int | None) -> bool:
        """Makes the scan of ``_look``."""
        if watch.scanned is None:
            watch.saved = log.checkpoint_record.load()
            watch.scanned = watch.tail = log.beginning_at(watch.saved)
        page = 0
        while pages is None or page < pages:
            rows = log.rows(watch.scanned.row_no, _PAGE)
            watch.record_page(log, rows)
            assert watch.tail is not None
            if watch.tail.row_no >= watch.claimed:
                watch.claimed_due_ms, watch.claimed_keeps = inf, False
            if len(rows) < _PAGE or watch.tail != watch.scanned:
                return True
            page += 1
        return False

    def _refresh(self, log: PullLog, watch: LeaseWatch, row_no: int) -> None:
        current = log.record(row_no).load()
        entry = watch.open[row_no]
        if current is None or current.value.state == CLOSED:
            del watch.open[row_no]
        else:
            watch.record_end(row_no, WatchedRow.of(current.value, entry.start))

    def _expire(self, log: PullLog, settler: Settler, watch: LeaseWatch, most: int | None) -> int:
        ended = 0
        now_ms = log.context.clock.now_ms()
        due = sorted(row_no for row_no, entry in watch.open.items() if entry.due_ms <= now_ms)[:most]
        for row_no, current in log.current(due):
            if current is None or current.value.state == CLOSED:
                del watch.open[row_no]
            elif not current.value.transfers and current.value.due_ms > now_ms:
                watch.record_end(row_no, WatchedRow.of(current.value, watch.open[row_no].start))
            else:
                ended += settler.take_over(row_no, current) or bool(current.value.transfers)
                self._refresh(log, watch, row_no)
        watch.due_ms = min((entry.due_ms for entry in watch.open.values()), default=inf)
        return ended

    def _save(self, log: PullLog, watch: LeaseWatch, start: Tail) -> Checkpoint | None:
        """Saves the checkpoint if it has moved far enough, and returns the one that is stored."""
        if not start.row_no:
            return None
        record = log.checkpoint_record
        watch.saved = current = watch.saved or record.load()
        now_ms = log.context.clock.now_ms()
        if current is not None and current.value.erased:
            return None
        if current is not None:
            moved = start.row_no - current.value.row_no
            if moved <= 0 or (moved < _CHECKPOINT_ROWS and now_ms - current.value.saved_ms < _CHECKPOINT_MS):
                return current.value
        # A refused swap needs no repeat: another sweeper saved a checkpoint, and the next sweep compares again.
        _, watch.saved = record.swap(current, Checkpoint(start.row_no, start.position, start.seq, now_ms))
        return value_of(watch.saved)

    def _trim(self, log: PullLog, watch: LeaseWatch, checkpoint: Checkpoint | None) -> None:
        """Trims rows below the checkpoint that were closed long ago, about once an hour."""
        now_ms = log.context.clock.now_ms()
        if checkpoint is None or 0 <= now_ms - watch.trimmed_ms < _TRIM_MS:
            return
        watch.trimmed_ms = now_ms
        # Rows are closed nearly in order: halving finds the boundary to within a lease. A row that is missing was
        # trimmed before; one without ``garbage_ms`` is not closed yet, and stays.
        low, high = 0, checkpoint.row_no
        while low < high:
            middle = (low + high) // 2
            row = log.record(middle).load()
            if row is None or (row.value.garbage_ms or now_ms + 1) <= now_ms:
                low = middle + 1
            else:
                high = middle
        low = removable_below(log.context, PULLS, log.partition, low)
        log.source.store.trim(Table.PULL, log.partition, below=sort_of(low))
