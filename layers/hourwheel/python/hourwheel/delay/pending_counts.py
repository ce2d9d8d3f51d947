"""How many messages wait for their time, by subject and hour.

Read from the schedule and dispatch logs: a look reads what came since the one before it. A cancel that came too late
is counted as one, so a figure may be low by as many until its bucket is over.
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
"""Whose messages: subject, generation, and the group whose retries they are."""


@dataclass
class _Tally:
    """What was read of one bucket, up to which rows of its logs. ``named`` is what the last dispatch row named."""

    next: int = 0
    passed: int = 0
    addresses: dict[int, Address] = field(default_factory=dict)
    known: dict[Address, Address] = field(default_factory=dict)
    cancelled: set[tuple[int, int]] = field(default_factory=set)
    named: frozenset[tuple[int, int]] = frozenset()
    counts: Counter[Address] = field(default_factory=Counter)


@dataclass
class PendingCounts:
    """Thread-safe."""

    _tallies: dict[str, _Tally] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hours(self, context: Context, subject: str, generation: int, *, hours: int) -> list[tuple[int, int]]:
        """The subject's messages that are due in the hour under way and those after it, ``hours`` in all, as (start of
        the hour in Unix milliseconds, messages), without hours in which there are none. What is overdue counts in the
        hour under way."""
        first_ms = context.clock.now_ms() // _HOUR_MS * _HOUR_MS
        found: Counter[int] = Counter()
        for bucket, counts in self._read(context, first_ms + hours * _HOUR_MS):
            hour_ms = max(first_ms, bucket.start_ms // _HOUR_MS * _HOUR_MS)
            found[hour_ms] += max(0, counts[subject, generation, None])
        return sorted((hour, count) for hour, count in found.items() if count)

    def retries(self, context: Context, subject: str, generation: int, member: str, *, within_ms: int) -> int:
        """The group's messages that wait to be tried again by that time."""
        return sum(max(0, counts[subject, generation, member]) for _, counts in self._read(context, within_ms))

    def _read(self, context: Context, before_ms: int) -> Iterable[tuple[Bucket, Counter[Address]]]:
        with self._lock:
            found = []
            now_ms = context.clock.now_ms()
            for name in [name for name in self._tallies if Bucket.parse(name).end_ms <= now_ms]:
                del self._tallies[name]  # read again while it is not closed: that is soon
            for bucket, record in buckets(context, before_ms=before_ms):
                if record.closed_ms:
                    continue
                tally = self._tallies.setdefault(bucket.name, _Tally())
                self._catch_up(context, bucket, tally)
                found.append((bucket, tally.counts))
            return found

    def _catch_up(self, context: Context, bucket: Bucket, tally: _Tally) -> None:
        for number, row in context.log(bucket.log).rows(tally.next):
            tally.next = number + 1
            entry = _note(row)
            if isinstance(entry, DueTimes):
                address = (entry.subject, entry.generation, entry.member)
                # One object for all rows of an address.
                tally.addresses[number] = tally.known.setdefault(address, address)
                tally.counts[address] += row.count
            elif isinstance(entry, CancelMarker) and (entry.row, entry.index) not in tally.cancelled:
                tally.cancelled.add((entry.row, entry.index))
                self._gone(tally, entry.row)
        for number, dispatched in DispatchLog(context, bucket).rows(tally.passed):
            tally.passed = number + 1
            if not dispatched.transfers:
                continue
            # What has to be reserved anew is named a second time, in the following row.
            named = frozenset(pick for transfer in dispatched.transfers for pick in transfer.picks)
            for pick in named - tally.named - tally.cancelled:
                self._gone(tally, pick[0])
            tally.named = named

    def _gone(self, tally: _Tally, row: int) -> None:
        address = tally.addresses.get(row)
        if address is not None:
            tally.counts[address] -= 1


def _note(row: Row) -> ScheduleEntry | None:
    try:
        return decode_entry(row.meta) if row.meta else None
    except Corrupt:
        return None  # the wheel reports it
