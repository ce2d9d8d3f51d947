"""Leases that end, and the checkpoint behind them.

A watch remembers which pull rows it has seen open; all below ``scanned`` are closed or remembered. That is
a hint: whoever acts on it reads the row again and changes it by compare-and-set.
"""

import threading
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from hourwheel.faults import Faults
from hourwheel.logs.rows import sort_of
from hourwheel.model import Subject
from hourwheel.ports import Table
from hourwheel.queueing.pulllog import PullLog
from hourwheel.queueing.records import CLOSED, Checkpoint, PullRow, Tail
from hourwheel.queueing.settle import Settler
from hourwheel.retention.kinds import PULLS
from hourwheel.retention.watermarks import removable_below

_PAGE = 200
_GLANCE_MS = 1_000
_GLANCE_ROWS = 100
_BUSY_MS = 60_000
_CHECKPOINT_ROWS = 1_000
_CHECKPOINT_MS = 60_000
_TRIM_MS = 3_600_000


class _Open(NamedTuple):
    """``due_ms``: when there is something to do about the row."""

    due_ms: int
    unsettled: int
    start: Tail

    @classmethod
    def of(cls, row: PullRow, start: Tail) -> "_Open":
        # Transfers that somebody has left behind do not wait for the lease.
        return cls(0 if row.transfers else row.lease_until_ms, len(row.unsettled()), start)


@dataclass
class _Watch:
    """What is known of one pull log. ``scanned`` is the first row not looked at; ``due_ms`` is when there is something
    to do about an open row at the earliest."""

    scanned: Tail | None = None
    open: dict[int, _Open] = field(default_factory=dict)
    due_ms: float = inf
    looked_ms: int = 0
    trimmed_ms: int = 0
    pulled: tuple[PullLog, Subject] | None = None
    pulled_ms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, row: int, entry: _Open) -> None:
        """Remembers an open row."""
        self.open[row] = entry
        self.due_ms = min(self.due_ms, entry.due_ms)


@dataclass
class Leases:
    """Ends leases and moves checkpoints. Thread-safe."""

    faults: Faults = field(default_factory=Faults)
    _watches: dict[str, _Watch] = field(default_factory=dict)

    def due(self, log: PullLog) -> bool:
        """Whether a lease may be over that the last look saw open. Reads nothing, and takes as long for any number of
        leases: each look of a pull that waits asks this."""
        return self._watch(log).due_ms <= log.context.clock.now_ms()

    def seen(self, log: PullLog, row: int) -> bool:
        """Whether all rows below ``row`` were looked at. Reads nothing."""
        scanned = self._watch(log).scanned
        return scanned is not None and scanned.row >= row

    def record_pull(self, log: PullLog, subject: Subject) -> int:
        """Somebody pulls here: see ``busy``. The time."""
        watch = self._watch(log)
        watch.pulled, watch.pulled_ms = (log, subject), log.context.clock.now_ms()
        return watch.pulled_ms

    def expire_throttled(self, log: PullLog, subject: Subject) -> int:
        """Ends the leases that are over, at most once a second for each log and process; how many."""
        watch = self._watch(log)
        now_ms = self.record_pull(log, subject)
        if 0 <= now_ms - watch.looked_ms < _GLANCE_MS:
            return 0
        return self.expire(log, subject, pages=1, most=_GLANCE_ROWS)

    def active_logs(self, now_ms: int) -> list[tuple[PullLog, Subject]]:
        """The logs pulled in this process whose leases may be open: one was seen, or a pull was a moment ago."""
        return [
            watch.pulled
            for watch in list(self._watches.values())
            if watch.pulled is not None and (watch.open or now_ms - watch.pulled_ms < _BUSY_MS)
        ]

    def expire(self, log: PullLog, subject: Subject, *, pages: int | None = None, most: int | None = None) -> int:
        """Ends the leases that are over, finishes settlements that were left half done; how many. Looks at up to
        ``pages`` pages of new rows, and ends ``most`` at the most: a consumer waits while a pull does this."""
        watch = self._watch(log)
        if not watch.lock.acquire(blocking=False):
            return 0
        try:
            self._look(log, watch, pages)
            return self._expire(log, Settler(log, subject), watch, most)
        finally:
            watch.lock.release()

    def in_flight(self, log: PullLog) -> int:
        """Messages that are leased now."""
        watch = self._watch(log)
        with watch.lock:
            self._look(log, watch, None)
            for row in list(watch.open):
                self._refresh(log, watch, row)
            return sum(entry.unsettled for entry in watch.open.values())

    def snapshot(self, log: PullLog) -> tuple[Tail | None, int]:
        """Where the next claim goes (None: nobody looked) and how many messages are leased, as the last look saw it."""
        watch = self._watch(log)
        with watch.lock:
            return watch.scanned, sum(entry.unsettled for entry in watch.open.values())

    def checkpoint(self, log: PullLog) -> None:
        """Saves the lowest row that is not settled, then lets rows below it go once they are old enough."""
        watch = self._watch(log)
        with watch.lock:
            self._look(log, watch, None)
            for row in list(watch.open):
                self._refresh(log, watch, row)
            lowest = min(watch.open, default=None)
            start = watch.scanned if lowest is None else watch.open[lowest].start
        if start is not None:
            self._save(log, start)
        self._trim(log, watch)

    def _watch(self, log: PullLog) -> _Watch:
        return self._watches.setdefault(log.partition, _Watch())

    def _look(self, log: PullLog, watch: _Watch, pages: int | None) -> None:
        """Takes note of the rows that came since the last look."""
        watch.looked_ms = log.context.clock.now_ms()
        if watch.scanned is None:
            watch.scanned = log.beginning()
        page = 0
        while pages is None or page < pages:
            rows = log.rows(watch.scanned.row, _PAGE)
            for row, held in rows:
                value = held.value
                if row > watch.scanned.row:
                    # Rows before it are gone: the checkpoint has passed them.
                    watch.scanned = max(watch.scanned, log.beginning(), key=lambda tail: tail.row)
                if row < watch.scanned.row:
                    continue
                if value.state != CLOSED:
                    watch.note(row, _Open.of(value, watch.scanned._replace(row=row)))
                watch.scanned = Tail(row + 1, value.end, value.end_number)
            if len(rows) < _PAGE:
                return
            page += 1

    def _refresh(self, log: PullLog, watch: _Watch, row: int) -> None:
        held = log.record(row).load()
        entry = watch.open[row]
        if held is None or held.value.state == CLOSED:
            del watch.open[row]
        else:
            watch.note(row, _Open.of(held.value, entry.start))

    def _expire(self, log: PullLog, settler: Settler, watch: _Watch, most: int | None) -> int:
        ended = 0
        now_ms = log.context.clock.now_ms()
        for row in [row for row, entry in watch.open.items() if entry.due_ms <= now_ms][:most]:
            held = log.record(row).load()
            if held is not None and held.value.state != CLOSED:
                ended += settler.take_over(row, held) or bool(held.value.transfers)
            self._refresh(log, watch, row)
        watch.due_ms = min((entry.due_ms for entry in watch.open.values()), default=inf)
        return ended

    def _save(self, log: PullLog, start: Tail) -> None:
        record = log.checkpoint_record
        held = record.load()
        now_ms = log.context.clock.now_ms()
        if held is not None:
            moved = start.row - held.value.row
            if moved <= 0 or (moved < _CHECKPOINT_ROWS and now_ms - held.value.saved_ms < _CHECKPOINT_MS):
                return
        elif start.row == 0:
            return
        # Refused: another sweeper saved one; the next sweep compares again.
        record.swap(None if held is None else held.token, Checkpoint(start.row, start.position, start.number, now_ms))

    def _trim(self, log: PullLog, watch: _Watch) -> None:
        """Lets go of rows below the checkpoint that were closed long ago, about once an hour."""
        now_ms = log.context.clock.now_ms()
        if 0 <= now_ms - watch.trimmed_ms < _TRIM_MS:
            return
        held = log.checkpoint_record.load()
        if held is None:
            return
        watch.trimmed_ms = now_ms
        # Rows are closed nearly in order: halving finds the boundary to within a lease.
        low, high = 0, held.value.row
        while low < high:
            middle = (low + high) // 2
            row = log.record(middle).load()
            if row is None or (row.value.garbage_ms or now_ms + 1) <= now_ms:
                low = middle + 1
            else:
                high = middle
        low = removable_below(log.context, PULLS, log.partition, low)
        log.context.store.trim(Table.PULL, log.partition, below=sort_of(low))
