"""Remembers, for one process, the open pull rows of a log; all others below ``scanned`` are closed.

This is a hint: each action reads the row again, and changes it by compare-and-set.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from hourwheel.logs.cas import Versioned
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.claiming.ahead import first_kept
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, Checkpoint, PullRow, Tail
from hourwheel.times import within

_ACTIVE_MS = 60_000  # one sweep sees each log that was pulled since the sweep before it
_OTHERS_MS = 5_000  # a claim of another process, which may have died since, is found this late at most


class KeptMessages(NamedTuple):
    """The number of messages that rows keep for the next pulls of their consumers, and the row of the source with the
    first of them. They wait, although claims have passed them."""

    messages: int = 0
    row_no: int = 0

    @classmethod
    def of(cls, row: PullRow) -> "KeptMessages":
        kept = len(row.kept)
        return cls(kept, first_kept(row)) if kept else cls()


NONE_KEPT = KeptMessages()


class WatchedRow(NamedTuple):
    """An open pull row. ``due_ms`` is the time from which it needs work: its lease is over, or a transfer was left
    behind. ``start`` is where the row begins."""

    due_ms: int
    unsettled: int
    start: Tail
    kept: KeptMessages
    consumer: str

    @classmethod
    def of(cls, row: PullRow, start: Tail) -> "WatchedRow":
        # Transfers that a process has left behind need not wait for the end of the lease.
        return cls(0 if row.transfers else row.due_ms, len(row.unsettled()), start, KeptMessages.of(row), row.consumer)


@dataclass
class LeaseWatch:
    """A process's view of one pull log. ``scanned`` is the first row that it has not read, or that may still grow, and
    ``tail`` the end behind the last row that it has read. ``due_ms`` is the earliest time at which an open row needs
    work, ``pulled`` the log as the last pull saw it, at ``pulled_ms``.

    The rows from ``scanned`` up to ``claimed`` are claims of this process: they need no read to be known. The earliest
    of their leases ends at ``claimed_due_ms``. ``claimed_keeps``: one of them keeps messages. ``missed``: there is a
    row that this process does not know, so that a look is needed."""

    scanned: Tail | None = None
    tail: Tail | None = None
    open: dict[int, WatchedRow] = field(default_factory=dict)
    due_ms: float = inf
    claimed: int = 0
    claimed_due_ms: float = inf
    claimed_keeps: bool = False
    missed: bool = False
    looked_ms: int = 0
    trimmed_ms: int = 0
    saved: Versioned[Checkpoint] | None = None
    pulled: tuple[PullLog, Subject] | None = None
    pulled_ms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, row_no: int, row: PullRow) -> None:
        """Records the row at ``scanned``, and moves ``scanned`` behind it unless it may still grow."""
        assert self.scanned is not None
        self.open.pop(row_no, None)
        if row.state != CLOSED:
            self.record_end(row_no, WatchedRow.of(row, self.scanned._replace(row_no=row_no)))
        self.tail = Tail(row_no + 1, row.end, row.end_seq)
        if row.is_final:
            self.scanned = self.tail

    def record_page(self, log: PullLog, rows: Sequence[tuple[int, Versioned[PullRow]]]) -> None:
        """Records rows from ``scanned`` on."""
        for row_no, current in rows:
            assert self.scanned is not None
            if row_no > self.scanned.row_no:
                # The rows between were trimmed: a checkpoint has passed them.
                self.scanned = self.tail = max(self.scanned, log.beginning(), key=lambda tail: tail.row_no)
            if row_no < self.scanned.row_no:
                continue
            self.record(row_no, current.value)
            if not current.value.is_final:
                # The next row begins where this one will end: the next look reads it again.
                break

    def record_end(self, row_no: int, entry: WatchedRow) -> None:
        """Records an open row, and the time at which it needs work."""
        self.open[row_no] = entry
        self.due_ms = min(self.due_ms, entry.due_ms)

    def is_active(self, now_ms: int) -> bool:
        """Returns whether there may be leases to end: an open row was seen, the last pull is less than a minute ago, or
        nobody has looked since, as in a process that stood still."""
        return bool(self.open) or now_ms - self.pulled_ms < _ACTIVE_MS or self.looked_ms <= self.pulled_ms

    @property
    def seen_below(self) -> int:
        """The row below which this process knows all rows; -1 before the first look."""
        return -1 if self.tail is None else max(self.tail.row_no, self.claimed)

    @property
    def keeps(self) -> bool:
        """Whether a row that this process knows kept messages when the process saw the row last."""
        # A list: another thread may look meanwhile.
        return self.claimed_keeps or any(entry.kept.messages for entry in list(self.open.values()))

    @property
    def in_flight(self) -> int:
        """The number of messages that consumers hold."""
        return sum(entry.unsettled for entry in self.open.values())

    @property
    def kept(self) -> KeptMessages:
        """The messages of all rows that are kept."""
        kept = [entry.kept for entry in self.open.values() if entry.kept.messages]
        if not kept:
            return NONE_KEPT
        return KeptMessages(sum(messages for messages, _ in kept), min(row_no for _, row_no in kept))

    def record_claim(self, row_no: int, row: PullRow) -> None:
        """Records a claim of this process behind the rows that it knows, or in one of them."""
        self.claimed = max(self.claimed, row_no + 1)
        self.claimed_due_ms = min(self.claimed_due_ms, row.due_ms)
        self.claimed_keeps = self.claimed_keeps or bool(row.kept)

    def is_due(self, now_ms: int) -> bool:
        """Returns whether a lease that this process knows may be over."""
        return min(self.due_ms, self.claimed_due_ms) <= now_ms

    def needs_look(self, now_ms: int, page: int) -> bool:
        """Returns whether a look may find work, or has a ``page`` of rows to read: a later one would take long."""
        unread = self.claimed - (0 if self.tail is None else self.tail.row_no)
        rests = within(self.looked_ms, now_ms, _OTHERS_MS)
        return self.missed or unread >= page or self.is_due(now_ms) or not rests
