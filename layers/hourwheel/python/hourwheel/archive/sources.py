"""Lists the logs to archive, each as a source that yields its settled rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from hourwheel.buckets.buckets import LEAD_MS, buckets
from hourwheel.context import Context
from hourwheel.delay.orphans import orphan_logs
from hourwheel.delay.ownership import Dispatched, DispatchLog
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.log_names import pull_log
from hourwheel.model.subjects import Subject
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import CLOSED, PullRow
from hourwheel.reach.outages import reached
from hourwheel.reach.storages import at_home
from hourwheel.registry.registry import Registry
from hourwheel.retention.kinds import DISPATCHES, MESSAGES, PULLS

_LONG_OPEN_MS = 86_400_000
"""No lease lasts this long: a pull row that is still open after this time holds up the rows behind it."""


class Item(NamedTuple):
    """A row number and the row's content, which never changes any more."""

    row_no: int
    value: Row | PullRow | Dispatched


class LogSource(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def log(self) -> str: ...

    def log_end(self, start: int) -> int:
        """Returns the end of the row numbers that were given out, including rows that may never come. May return
        ``start`` when no row from there on could be archived."""
        ...

    def items(self, start: int) -> Iterator[Item]:
        """Yields the rows from ``start`` on, in order, up to the first that is not settled."""
        ...

    def behind_a_hole(self, end: int) -> bool:
        """Returns whether the source has rows beyond ``end``, the end of ``items``, which lies before ``log_end``."""
        ...

    def trimmed(self) -> int:
        """Returns the row number below which rows may have been removed."""
        ...


@dataclass(frozen=True)
class MessageLog:
    """A queue, a retry, dead or schedule log."""

    rows: Log
    kind: str = MESSAGES

    @property
    def log(self) -> str:
        return self.rows.name

    def log_end(self, start: int) -> int:
        return self.rows.totals().rows

    def items(self, start: int) -> Iterator[Item]:
        return (Item(row_no, row) for row_no, row in self.rows.rows(start))

    def behind_a_hole(self, end: int) -> bool:
        """Returns whether a row follows a hole that may still be written. Without such a row nothing is held up."""
        return next(self.rows.stored(end), None) is not None

    def trimmed(self) -> int:
        return self.rows.trimmed()


@dataclass(frozen=True)
class PullSource:
    pulls: PullLog
    kind: str = PULLS

    @property
    def log(self) -> str:
        return self.pulls.partition

    def log_end(self, start: int) -> int:
        """Returns ``start`` while the first pull row is open: the rows behind it come later."""
        first = self.pulls.rows(start, limit=1)
        if not first:
            return start
        row_no, pull_row = first[0]
        # A row that stays open would hide the rows behind it: it counts as given out, so the pass is not complete.
        long_open = self.pulls.context.clock.now_ms() - pull_row.value.claimed_ms > _LONG_OPEN_MS
        return row_no + 1 if pull_row.value.state == CLOSED or long_open else start

    def items(self, start: int) -> Iterator[Item]:
        while rows := self.pulls.rows(start):
            for row_no, pull_row in rows:
                if pull_row.value.state != CLOSED:
                    return
                yield Item(row_no, pull_row.value)
            start = rows[-1][0] + 1

    def behind_a_hole(self, end: int) -> bool:
        # A pull row follows the rows before it: ``items`` ended at an open one, which is closed some day.
        return True

    def trimmed(self) -> int:
        # Pull rows are removed only below the watermark of the archive.
        return 0


@dataclass(frozen=True)
class DispatchSource:
    dispatches: DispatchLog
    kind: str = DISPATCHES

    @property
    def log(self) -> str:
        return self.dispatches.bucket.name

    def log_end(self, start: int) -> int:
        return start + (next(self.dispatches.rows(start), None) is not None)

    def items(self, start: int) -> Iterator[Item]:
        return (Item(row_no, row) for row_no, row in self.dispatches.rows(start))

    def behind_a_hole(self, end: int) -> bool:
        # Each owner appends at the next row: a dispatch log has no holes.
        return False

    def trimmed(self) -> int:
        # A dispatch log is removed as a whole, with its bucket.
        return 0


@dataclass(frozen=True)
class ClosedSource:
    """A log whose storage could not be opened. Each call tries again, and raises the error of the storage: the log
    counts as one of which rows are left."""

    kind: str
    log: str
    open: Callable[[], LogSource]

    def log_end(self, start: int) -> int:
        return self.open().log_end(start)

    def items(self, start: int) -> Iterator[Item]:
        yield from self.open().items(start)

    def behind_a_hole(self, end: int) -> bool:
        return self.open().behind_a_hole(end)

    def trimmed(self) -> int:
        return self.open().trimmed()


def sources(context: Context, subjects: list[tuple[Subject, list[Group]]]) -> Iterator[LogSource]:
    """Yields the logs of these subjects and groups, the orphan logs, and the logs of all buckets."""
    for subject, groups in subjects:
        names = subject.queue_logs()
        for name in names:
            yield _queue_source(context, name)
        for group in groups:
            yield MessageLog(context.log(group.retry_log))
            yield MessageLog(context.log(group.dead_log))
            yield from _pull_sources(context, subject, group, names)
    for name in orphan_logs(context):
        yield MessageLog(context.log(name))
    now_ms = context.clock.now_ms()
    for bucket, _ in buckets(context):
        yield MessageLog(context.log(bucket.log))
        # No wheel appends to a dispatch log before its bucket's lead: this saves a read for each later bucket.
        if bucket.start_ms - LEAD_MS <= now_ms:
            yield DispatchSource(DispatchLog(context, bucket))


def _queue_source(context: Context, name: str) -> LogSource:
    def opened() -> LogSource:
        return MessageLog(context.log(name))

    return reached(opened, ClosedSource(MESSAGES, name, opened))


def _pull_sources(context: Context, subject: Subject, group: Group, names: Sequence[str]) -> Iterator[LogSource]:
    """Yields the pull logs of the group over its retry log and over the logs of the queues, which have these names."""
    opened = {log.source.name: log for log in pull_logs(context, subject, group)}
    for name in (group.retry_log, *names):
        if name in opened:
            yield PullSource(opened[name])
        elif not at_home(name):
            yield ClosedSource(PULLS, pull_log(group.member, name), partial(_pull_source, context, group, name))


def _pull_source(context: Context, group: Group, name: str) -> LogSource:
    return PullSource(PullLog(context, group, context.log(name), None))


def registry_listing(registry: Registry) -> list[tuple[Subject, list[Group]]]:
    """Returns the subjects and groups of which rows may be left: all that are not erased."""
    return [
        (records.subject, [group for group in records.groups if not group.erased])
        for entry in registry.listed.entries()
        if not entry.erased
        and (records := registry.whole_subject(entry.name)) is not None
        and not records.subject.erased
    ]
