"""Shows the state of a group in detail: its retries by attempt, its open leases, and the reasons of its dead letters.

Every call has a limit, and its answer says whether it is complete.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from hourwheel.context import Context
from hourwheel.delay.lists.pending_counts import PendingCounts
from hourwheel.errors import Corrupt
from hourwheel.groups.seeks import unopened
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.overview import (
    AttemptCount,
    DeadReason,
    DeadReasons,
    OpenLease,
    OpenLeases,
    RetryCounts,
)
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import GET_MANY
from hourwheel.pull_log.open_logs import PullLogs, pull_logs
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.settling.leases import Leases, OpenLeaseRow
from hourwheel.times import rfc3339

_LEASES = 100  # leases that an answer names
_LOGS = 200  # pull logs that a call looks at: those of the consumers of a broadcast group may be many more
_PAGES = 5  # of 200 pull rows of each log
_RETRY_ROWS = 500  # rows of retries that a call decodes, in the retry log and in buckets each
_DEAD_LETTERS = 5_000  # each of them is decoded
_REASONS = 100  # texts that hold an id or a time are as many as dead letters
_FAR_MS = 31 * 86_400_000
"""The policy of a group delays a retry by 30 days at most. A retry that a consumer delays for longer is counted only
once it is due within this time."""


@dataclass(frozen=True)
class GroupState:
    """Reads the state of one group; ``members`` are the groups of its consumers, or the group itself."""

    context: Context
    subject: Subject
    members: list[Group]

    def leases(self, leases: Leases) -> OpenLeases:
        """Returns the leases that end first, up to 100. For each log a query, and a read for each of its leases that
        may be among them."""
        logs = [log for group in self.members for log in pull_logs(self.context, self.subject, group)]
        complete, outages = len(logs) <= _LOGS, unopened(self.subject, logs, range(self.subject.queues))
        ending: list[tuple[int, OpenLease]] = []
        for log in logs[:_LOGS]:
            with outages.noted(log.source.name):
                rows, read = leases.ending(log, pages=_PAGES, most=_LEASES)
                complete = complete and read
                ending += [(lease.row.lease_until_ms, _named(log, lease)) for lease in rows]
        ending.sort(key=lambda entry: entry[0])
        complete = complete and len(ending) <= _LEASES and not outages.names
        return OpenLeases(leases=[lease for _, lease in ending[:_LEASES]], complete=complete)

    def retries(self, pending_counts: PendingCounts, opener: PullLogs) -> RetryCounts:
        """Returns the number of retries by attempt. Decodes up to 500 rows of the retry log, and 500 of hour buckets.

        For each member a query for its last pull and one for each 64 rows of its retry log, and a batch for each 100
        rows of buckets, in addition to what ``PendingCounts`` reads.
        """
        counts, complete = _Attempts(), len(self.members) <= _LOGS
        for group in self.members[:_LOGS]:
            logs = opener.of(self.context, self.subject, group)
            in_queues = range(self.subject.queues) if logs[0].keeps_failed else range(0)
            outages = unopened(self.subject, logs, in_queues)
            self._count_log(logs[0], counts)
            self._count_buckets(group, pending_counts, counts)
            for log in logs:
                with outages.noted(log.source.name):
                    counts.add_held(log)
            complete = complete and not outages.names
        attempts = [counts.attempts[attempt] for attempt in sorted(counts.attempts)]
        return RetryCounts(attempts=attempts, complete=complete and counts.complete)

    def _count_log(self, log: PullLog, counts: "_Attempts") -> None:
        """Counts the retries that can be pulled, of those that no claim has passed."""
        if not log.source.totals().rows:
            return
        now_ms, tail = self.context.clock.now_ms(), log.tail()
        for row_no, row in islice(log.unread(tail.position, now_ms, consistent=True), counts.left_in_logs + 1):
            if not counts.left_in_logs:
                counts.complete = False
                return
            counts.left_in_logs -= 1
            if row.filler or row.expires_ms <= now_ms:
                continue
            skip = tail.position.index if row_no == tail.position.row_no else 0
            for message in self._messages(log.source.name, row)[skip:]:
                counts.add(message.attempt, retrying=1)

    def _count_buckets(self, group: Group, pending_counts: PendingCounts, counts: "_Attempts") -> None:
        """Counts the retries that wait for their delay."""
        now_ms = self.context.clock.now_ms()
        address = (self.subject.name, self.subject.generation, group.member)
        for bucket, row_nos in pending_counts.rows_of(self.context, address, before_ms=now_ms + _FAR_MS):
            # A late row is one of the last ones: those before it are handed over.
            read = row_nos[-counts.left_in_buckets :] if counts.left_in_buckets else []
            counts.complete = counts.complete and len(read) == len(row_nos)
            counts.left_in_buckets -= len(read)
            for start in range(0, len(read), GET_MANY):
                rows = self.context.log(bucket.log).get_many(read[start : start + GET_MANY])
                for row_no, row in rows.items():
                    for index, message in enumerate(self._messages(bucket.log, row)):
                        if _waits(row, index, now_ms) and not pending_counts.is_cancelled(bucket, row_no, index):
                            counts.add(message.attempt, backing_off=1)

    def _messages(self, log: str, row: Row) -> list[Message]:
        """Returns the messages of a row; none of one that cannot be read, which its pull reports."""
        try:
            return messages_of(row, self.context.blobs_of(log))
        except Corrupt:
            return []


@dataclass
class _Attempts:
    """The retries by attempt, and the numbers of rows that may still be read."""

    attempts: dict[int, AttemptCount] = field(default_factory=dict)
    left_in_logs: int = _RETRY_ROWS
    left_in_buckets: int = _RETRY_ROWS
    complete: bool = True

    def add(self, attempt: int, *, retrying: int = 0, backing_off: int = 0) -> None:
        count = self.attempts.setdefault(attempt, AttemptCount(attempt=attempt))
        count.retrying += retrying
        count.backing_off += backing_off
        count.messages += retrying + backing_off

    def add_held(self, log: PullLog) -> None:
        """Adds the messages that are retried in their places."""
        now_ms = log.context.clock.now_ms()
        for attempt, due_ms in log.held_retries():
            self.add(attempt, retrying=due_ms <= now_ms, backing_off=due_ms > now_ms)


def _waits(row: Row, index: int, now_ms: int) -> bool:
    """Returns whether the message of a schedule row is not due yet. Its wheel hands it over once it is due."""
    entry = decode_entry(row.meta)
    return isinstance(entry, DueTimes) and entry.due_ms(index) > now_ms


def _named(log: PullLog, lease: OpenLeaseRow) -> OpenLease:
    return OpenLease(
        consumer=lease.row.consumer,
        queue=log.queue,
        offset=None if log.queue is None else lease.seq,
        messages=len(lease.row.unsettled()),
        lease_until=rfc3339(lease.row.lease_until_ms),
    )


def dead_reasons(letters: Iterator[Message]) -> DeadReasons:
    """Counts the first 5,000 dead letters by reason and detail, with the times at which the first and the last of them
    died. Returns the 100 most frequent reasons. Costs what a list of these dead letters costs."""
    reasons: dict[tuple[str, str | None], DeadReason] = {}
    for message in islice(letters, _DEAD_LETTERS):
        reason, died_at = message.reason or "", message.died_at or ""
        counted = reasons.setdefault(
            (reason, message.detail),
            DeadReason(reason=reason, detail=message.detail, messages=0, first_at=died_at, last_at=died_at),
        )
        counted.messages += 1
        counted.first_at, counted.last_at = min(counted.first_at, died_at), max(counted.last_at, died_at)
    ranked = sorted(reasons.values(), key=lambda entry: (-entry.messages, entry.reason, entry.detail or ""))
    others = sum(entry.messages for entry in ranked[_REASONS:])
    return DeadReasons(reasons=ranked[:_REASONS], others=others, complete=next(letters, None) is None)
