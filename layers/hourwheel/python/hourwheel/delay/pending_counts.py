"""Counts delayed messages by subject and by the hour in which they fall due.

A look reads the rows that the schedule and dispatch logs got since the look before. A cancel that came too late counts
as one that came in time, so a count may be too low, by one for each, until its bucket is over.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from hourwheel.buckets.buckets import Bucket, buckets
from hourwheel.context import Context
from hourwheel.delay.ownership import DispatchLog
from hourwheel.errors import Corrupt
from hourwheel.logs.entries import CancelMarker, DueTimes, ScheduleEntry, decode_entry
from hourwheel.logs.rows import Row

_HOUR_MS = 3_600_000

Address: TypeAlias = tuple[str, int, str | None]
"""Subject, generation, and the group, if the messages are a group's retries."""


@dataclass
class _Tally:
    """The counts of one bucket. ``next`` and ``passed`` are the first rows of its schedule log and dispatch log that
    are not read, ``named`` the messages that the last dispatch row with transfers names."""

    next_row: int = 0
    next_dispatch_row: int = 0
    addresses: dict[int, Address] = field(default_factory=dict)
    interned: dict[Address, Address] = field(default_factory=dict)
    cancelled: set[tuple[int, int]] = field(default_factory=set)
    named: frozenset[tuple[int, int]] = frozenset()
    counts: Counter[Address] = field(default_factory=Counter)


@dataclass
class PendingCounts:
    """The counts of the buckets that this process has read. Thread-safe."""

    _tallies: dict[str, _Tally] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hours(self, context: Context, subject: str, generation: int, *, hours: int) -> list[tuple[int, int]]:
        """Returns the number of the subject's messages due in each of the next ``hours`` hours, from the current one
        on, as (start of the hour in Unix milliseconds, messages). Leaves out hours without messages. Overdue messages
        count in the current hour."""
        first_ms = context.clock.now_ms() // _HOUR_MS * _HOUR_MS
        counts_by_hour: Counter[int] = Counter()
        for bucket, counts in self._read(context, first_ms + hours * _HOUR_MS):
            hour_ms = max(first_ms, bucket.start_ms // _HOUR_MS * _HOUR_MS)
            counts_by_hour[hour_ms] += max(0, counts[subject, generation, None])
        return sorted((hour, count) for hour, count in counts_by_hour.items() if count)

    def retries(self, context: Context, subject: str, generation: int, member: str, *, within_ms: int) -> int:
        """Returns the number of the group's messages whose retry is in a bucket that begins before
        ``within_ms``."""
        return sum(max(0, counts[subject, generation, member]) for _, counts in self._read(context, within_ms))

    def _read(self, context: Context, before_ms: int) -> Iterable[tuple[Bucket, Counter[Address]]]:
        with self._lock:
            read = []
            now_ms = context.clock.now_ms()
            for name in [name for name in self._tallies if Bucket.parse(name).end_ms <= now_ms]:
                del self._tallies[name]  # if the bucket is not closed yet, it is read again: only for a short time
            for bucket, record in buckets(context, before_ms=before_ms):
                if record.closed_ms:
                    continue
                tally = self._tallies.setdefault(bucket.name, _Tally())
                self._catch_up(context, bucket, tally)
                read.append((bucket, tally.counts))
            return read

    def _catch_up(self, context: Context, bucket: Bucket, tally: _Tally) -> None:
        for row_no, row in context.log(bucket.log).rows(tally.next_row):
            tally.next_row = row_no + 1
            entry = _entry_of(row)
            if isinstance(entry, DueTimes):
                address = (entry.subject, entry.generation, entry.member)
                # One object for all rows of an address saves memory.
                tally.addresses[row_no] = tally.interned.setdefault(address, address)
                tally.counts[address] += row.count
            elif isinstance(entry, CancelMarker) and (entry.row_no, entry.index) not in tally.cancelled:
                tally.cancelled.add((entry.row_no, entry.index))
                self._discount(tally, entry.row_no)
        for row_no, dispatched in DispatchLog(context, bucket).rows(tally.next_dispatch_row):
            tally.next_dispatch_row = row_no + 1
            if not dispatched.transfers:
                continue
            # A transfer that has to be reserved again is named a second time, in the following row.
            named = frozenset(pick for transfer in dispatched.transfers for pick in transfer.picks)
            for pick in named - tally.named - tally.cancelled:
                self._discount(tally, pick[0])
            tally.named = named

    def _discount(self, tally: _Tally, row_no: int) -> None:
        address = tally.addresses.get(row_no)
        if address is not None:
            tally.counts[address] -= 1


def _entry_of(row: Row) -> ScheduleEntry | None:
    try:
        return decode_entry(row.meta) if row.meta else None
    except Corrupt:
        return None  # the wheel reports the damage
