"""Counts delayed messages by subject and by the hour in which they fall due.

A look reads the rows that the schedule and dispatch logs got since the look before. A cancel that came too late counts
as one that came in time, so a count may be too low, by one for each, until its bucket is over.
"""

import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from hourwheel.buckets.buckets import Bucket, BucketRecord, buckets
from hourwheel.context import Context
from hourwheel.delay.ownership import DispatchLog
from hourwheel.logs.entries import CancelMarker, DueTimes, readable_entry
from hourwheel.ports.storage import GET_MANY
from hourwheel.ports.storage import Counter as LogTotals
from hourwheel.times import HOUR_MS

_MOST_ROWS = 500_000
"""The counts of all buckets keep an entry of about 100 bytes for each row that they have read, for at most this many
rows."""

Address: TypeAlias = tuple[str, int, str | None]
"""Subject, generation, and the group, if the messages are a group's retries."""


@dataclass
class _Tally:
    """The counts of one bucket. ``next_row`` and ``next_dispatch_row`` are the first rows of its schedule log and
    dispatch log that are not read, ``named`` the messages that the last dispatch row with transfers names."""

    next_row: int = 0
    next_dispatch_row: int = 0
    addresses: dict[int, Address] = field(default_factory=dict)
    interned: dict[Address, Address] = field(default_factory=dict)
    cancelled: set[tuple[int, int]] = field(default_factory=set)
    named: frozenset[tuple[int, int]] = frozenset()
    counts: Counter[Address] = field(default_factory=Counter)


@dataclass
class PendingCounts:
    """Keeps the counts of the buckets that this process has read. Thread-safe."""

    _tallies: dict[str, _Tally] = field(default_factory=dict)
    _totals: Counter[Address] = field(default_factory=Counter)
    """The sums of all tallies."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hours(self, context: Context, subject: str, generation: int, *, hours: int) -> list[tuple[int, int]]:
        """Returns the number of the subject's messages due in each of the next ``hours`` hours, from the current one
        on, as (start of the hour in Unix milliseconds, messages). Leaves out hours without messages. Overdue messages
        count in the current hour."""
        first_ms = context.clock.now_ms() // HOUR_MS * HOUR_MS
        counts_by_hour: Counter[int] = Counter()
        for bucket, counts in self._read(context, first_ms + hours * HOUR_MS):
            hour_ms = max(first_ms, bucket.start_ms // HOUR_MS * HOUR_MS)
            counts_by_hour[hour_ms] += max(0, counts[subject, generation, None])
        return sorted((hour, count) for hour, count in counts_by_hour.items() if count)

    def retries(self, context: Context, subject: str, generation: int, member: str, *, within_ms: int) -> int:
        """Returns the number of the group's messages whose retry is in a bucket that begins before
        ``within_ms``."""
        return sum(max(0, counts[subject, generation, member]) for _, counts in self._read(context, within_ms))

    def everywhere(self, context: Context, *, most_rows: int) -> tuple[Counter[Address], bool]:
        """Returns the number of delayed messages by address over all buckets, and whether every bucket was read. Reads
        at most about ``most_rows`` rows, so the calls after this one complete the counts; keeps at most
        ``_MOST_ROWS``. One read for each 500 buckets and for each 100, and two for each bucket with new rows."""
        with self._lock:
            now_ms = context.clock.now_ms()
            open_buckets = self._open(buckets(context), now_ms)
            left = min(most_rows, _MOST_ROWS - sum(len(tally.addresses) for tally in self._tallies.values()))
            for bucket in self._changed(context, open_buckets, now_ms):
                if left <= 0:
                    return Counter(self._totals), False
                tally = self._tallies.setdefault(bucket.name, _Tally())
                before = tally.next_row + tally.next_dispatch_row
                read = self._catch_up(context, bucket, tally, most_rows=left)
                left -= tally.next_row + tally.next_dispatch_row - before
                if not read:
                    return Counter(self._totals), False
            return Counter(self._totals), True

    def by_hour(
        self, context: Context, span: tuple[int, int], subject: tuple[str, int] | None
    ) -> tuple[dict[int, int], bool]:
        """Returns the number of delayed messages of the subject (name and generation; None: of all) by the start of the
        hour, in a span of Unix milliseconds, and whether they are exact. Overdue messages count in the first hour.
        Reads no rows, but counts those that ``everywhere`` has read. Of a bucket that is not read yet the counter tells
        how many messages and retries were stored, if those of all subjects are asked for."""
        first_ms, end_ms = span
        counts_by_hour: Counter[int] = Counter()
        complete = True
        now_ms = context.clock.now_ms()
        with self._lock:
            open_buckets = self._open(buckets(context, before_ms=end_ms), now_ms)
            for bucket, totals in _with_totals(context, open_buckets):
                if bucket.end_ms <= first_ms and first_ms > now_ms:
                    continue
                tally = self._tallies.get(bucket.name, _Tally())
                hour_ms = max(first_ms, bucket.start_ms) // HOUR_MS * HOUR_MS
                read = tally.next_row >= totals.rows
                complete = complete and read
                exact = read or subject is not None
                counts_by_hour[hour_ms] += count_of(tally.counts, subject) if exact else totals.numbers
        return {hour: count for hour, count in sorted(counts_by_hour.items()) if count}, complete

    def first_bucket(self, subject: tuple[str, int] | None) -> Bucket | None:
        """Returns the first bucket that is known to have delayed messages of the subject (name and generation; None: of
        any subject); None where there is none. Reads nothing: see ``everywhere``."""
        with self._lock:
            names = (name for name, tally in self._tallies.items() if count_of(tally.counts, subject))
            first = min(names, default=None)
        return None if first is None else Bucket.parse(first)

    def rows_of(self, context: Context, address: Address, *, before_ms: int) -> Iterator[tuple[Bucket, list[int]]]:
        """Yields the buckets that begin before ``before_ms``, each with the rows of its schedule log that hold messages
        of this address. Some of these may be handed over or cancelled."""
        self._read(context, before_ms)
        with self._lock:
            rows = [
                (Bucket.parse(name), [row_no for row_no, of_row in tally.addresses.items() if of_row == address])
                for name, tally in sorted(self._tallies.items())
                if tally.counts[address] > 0
            ]
        return ((bucket, row_nos) for bucket, row_nos in rows if bucket.start_ms < before_ms)

    def is_cancelled(self, bucket: Bucket, row_no: int, index: int) -> bool:
        """Returns whether the last read of the bucket found a cancel marker of this message."""
        tally = self._tallies.get(bucket.name)
        return tally is not None and (row_no, index) in tally.cancelled

    def _changed(self, context: Context, open_buckets: Sequence[Bucket], now_ms: int) -> Iterator[Bucket]:
        """Yields the buckets whose logs may have rows that are not read yet."""
        for bucket, totals in _with_totals(context, open_buckets):
            tally = self._tallies.get(bucket.name)
            read = 0 if tally is None else tally.next_row
            # A wheel starts before its bucket only for messages that are late for the bucket before.
            begun = bucket.start_ms <= now_ms + 2 * HOUR_MS
            if begun or totals.rows != read:
                yield bucket

    def _open(self, registered: Iterable[tuple[Bucket, BucketRecord]], now_ms: int) -> list[Bucket]:
        """Returns the buckets that are not closed. Forgets the counts of the others."""
        for name in [name for name in self._tallies if Bucket.parse(name).end_ms <= now_ms]:
            self._forget(name)  # if the bucket is not closed yet, it is read again: only for a short time
        open_buckets = []
        for bucket, record in registered:
            if record.closed_ms:
                self._forget(bucket.name)
            else:
                open_buckets.append(bucket)
        return open_buckets

    def _forget(self, name: str) -> None:
        tally = self._tallies.pop(name, None)
        for address, messages in () if tally is None else tally.counts.items():
            self._totals[address] -= messages
            if not self._totals[address]:
                del self._totals[address]

    def _read(self, context: Context, before_ms: int) -> Iterable[tuple[Bucket, Counter[Address]]]:
        with self._lock:
            read = []
            for bucket in self._open(buckets(context, before_ms=before_ms), context.clock.now_ms()):
                tally = self._tallies.setdefault(bucket.name, _Tally())
                self._catch_up(context, bucket, tally)
                read.append((bucket, tally.counts))
            return read

    def _catch_up(self, context: Context, bucket: Bucket, tally: _Tally, *, most_rows: int = sys.maxsize) -> bool:
        """Reads the rows that the logs of the bucket got since the last look, but only ``most_rows`` of the schedule
        log. Returns whether it has read all."""
        if self._read_scheduled(context, bucket, tally, most_rows) == most_rows:
            return False  # the dispatch log may name rows that are not read yet
        self._read_dispatched(context, bucket, tally)
        return True

    def _read_scheduled(self, context: Context, bucket: Bucket, tally: _Tally, most_rows: int) -> int:
        """Reads rows of the schedule log, and returns how many."""
        read = 0
        for row_no, row in islice(context.log(bucket.log).rows(tally.next_row), most_rows):
            tally.next_row, read = row_no + 1, read + 1
            entry = readable_entry(row.meta)
            if isinstance(entry, DueTimes):
                address = (entry.subject, entry.generation, entry.member)
                # One object for all rows of an address saves memory.
                tally.addresses[row_no] = tally.interned.setdefault(address, address)
                self._count(tally, address, row.count)
            elif isinstance(entry, CancelMarker) and (entry.row_no, entry.index) not in tally.cancelled:
                tally.cancelled.add((entry.row_no, entry.index))
                self._discount(tally, entry.row_no)
        return read

    def _read_dispatched(self, context: Context, bucket: Bucket, tally: _Tally) -> None:
        for row_no, dispatched in DispatchLog(context, bucket).rows(tally.next_dispatch_row):
            tally.next_dispatch_row = row_no + 1
            if not dispatched.transfers:
                continue
            # A transfer that has to be reserved again is named a second time, in the following row.
            named = frozenset(dispatched.picks)
            for pick in named - tally.named - tally.cancelled:
                self._discount(tally, pick[0])
            tally.named = named

    def _discount(self, tally: _Tally, row_no: int) -> None:
        address = tally.addresses.get(row_no)
        if address is not None:
            self._count(tally, address, -1)

    def _count(self, tally: _Tally, address: Address, messages: int) -> None:
        tally.counts[address] += messages
        self._totals[address] += messages


def count_of(counts: Counter[Address], subject: tuple[str, int] | None) -> int:
    """Returns the number of messages, without retries, of the subject or of all subjects."""
    if subject is not None:
        return max(0, counts[*subject, None])
    return sum(max(0, count) for (_, _, member), count in counts.items() if member is None)


def _with_totals(context: Context, open_buckets: Sequence[Bucket]) -> Iterator[tuple[Bucket, LogTotals]]:
    """Yields the buckets, each with the counter of its schedule log, which are read 100 at a time."""
    for start in range(0, len(open_buckets), GET_MANY):
        page = open_buckets[start : start + GET_MANY]
        totals = context.store.counters([bucket.log for bucket in page])
        yield from ((bucket, totals[bucket.log]) for bucket in page)
