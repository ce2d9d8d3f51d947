"""Counts what a sweep did, and reports how far the groups are behind and what the sweep left undone."""

import logging
from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec

from hourwheel.context import Context
from hourwheel.model.groups import Group
from hourwheel.retention.watermarks import behind_seconds
from hourwheel.sweep.decisions import GroupLag, lag_report

_NAMED = 20  # a log line names at most this many of the subjects and logs that were left

_logger = logging.getLogger("hourwheel")


class SweepReport(msgspec.Struct):
    """The counts of one sweep. ``left``: the number of subjects, logs and tasks that the store refused, and that the
    next sweep tends. ``idle``: subjects that did not rest, and where a look found nothing to do. ``unknown``: those
    where a first look did, which does not tell whether messages come and go. ``is_complete``: the sweep came to the end
    of the subjects. ``is_cut_off``: its time ended before, and the next sweep goes on."""

    subjects: int = 0
    groups: int = 0
    ended_leases: int = 0
    started_wheels: int = 0
    started_pushes: int = 0
    dropped_buckets: int = 0
    resting: int = 0
    idle: int = 0
    unknown: int = 0
    left: int = 0
    is_complete: bool = False
    is_cut_off: bool = False

    @property
    def busy(self) -> int:
        """The number of subjects that keep sweeps busy."""
        return self.subjects - self.resting - self.idle - self.unknown

    def add_idle(self, *, is_known: bool) -> None:
        """Counts a subject where a look found nothing to do. ``is_known``: this process has looked at it before."""
        self.idle += is_known
        self.unknown += not is_known

    def add(self, other: "SweepReport") -> None:
        """Adds the counts of a part of the sweep."""
        self.subjects += other.subjects
        self.groups += other.groups
        self.ended_leases += other.ended_leases
        self.started_pushes += other.started_pushes
        self.resting += other.resting
        self.idle += other.idle
        self.unknown += other.unknown


class DelayedReport(msgspec.Struct):
    """The counts of one pass over delayed work. ``left``: the number of buckets and changes that the store refused, and
    that the next pass tends."""

    started_wheels: int = 0
    dropped_buckets: int = 0
    left: int = 0


def report_lags(context: Context, behind: Iterable[GroupLag], *, tells_archive: bool) -> None:
    """Records the gauges that are not zero, and logs a line for each group with waiting messages. Groups of resting
    subjects have none. One sweep of those that share the subjects also tells how far the archive is behind."""
    now_ms = context.clock.now_ms()
    report = lag_report(behind, now_ms)
    for lag in report.lines:
        _logger.info("lag", extra=lag.line(now_ms))
    meter = context.meter
    if report.waiting:
        meter.record("WaitingMessages", report.waiting)
    if report.held_keys:
        meter.record("HeldKeys", report.held_keys)
    if report.oldest_seconds:
        meter.record("OldestMessageSeconds", report.oldest_seconds, unit="Seconds")
    if tells_archive and context.settings.archive:
        meter.record("ArchiveBehindSeconds", behind_seconds(context), unit="Seconds")


def report_left(context: Context, left: Mapping[str, str]) -> None:
    """Logs what the store refused to a sweep, and counts it; does nothing if it refused nothing."""
    if not left:
        return
    context.meter.record("SweepLeft", len(left))
    named = "; ".join(f"{what} ({reason})" for what, reason in islice(left.items(), _NAMED))
    _logger.warning("the store refused %d tasks of this sweep, which the next one does: %s", len(left), named)


def report_unread(context: Context, group: Group, messages: int) -> None:
    """Counts messages that expired before the group had pulled them, and logs their number."""
    context.meter.record("ExpiredUnread", messages)
    text = "%d messages of %s expired before group %s had pulled them"
    _logger.warning(text, messages, group.subject, group.name)
    # Last: the trim mark has moved, and nobody counts these messages again. One write for a group and a sweep; a field
    # of the group's record, which every process caches, would change with each sweep. A sweeper that dies before it
    # counts too few, an addition that is repeated after a lost answer too many.
    context.store.add(group.expired_counter, rows=1, numbers=messages)
