"""Retries the messages of a group that wait for their delay at once: each is moved to the present time, as a delayed
message is that a caller moves.

    cursor    {bucket}-{row}    the first row of a schedule log that a further call reads
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.lists.pending_counts import PendingCounts
from hourwheel.errors import ChangePending, Corrupt, NotFound, Rejected
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import GET_MANY
from hourwheel.times import within

_MOST = 1_000  # messages of a call: each takes about six writes
_LONGEST_MS = 5_000  # a call of Lambda has 30 s; the caller repeats the call
_PATIENCE_MS = 1_000  # for the wheel of a message that is due at this moment: the wheel then hands the message over
_FAR_MS = 31 * 86_400_000  # policies delay by 30 days at most; the rows of two years may be millions
_CURSOR = re.compile(r"(\d{13}-\d{2}/\d{3})-(\d{1,16})", re.ASCII)


class RetryFilter(NamedTuple):
    """Chooses messages by their key, and by what the consumer said of the failure. None takes any."""

    key: str | None = None
    detail: str | None = None

    def takes(self, message: Message) -> bool:
        return self.key in (None, message.key) and self.detail in (None, message.detail)


class EarlyRetries(Struct, kw_only=True, omit_defaults=True):
    """The number of messages that are retried at once. A call with ``next`` as its cursor goes on; None: all are."""

    retried: int
    next: str | None = None


class _RowPosition(NamedTuple):
    """A row of the schedule log of a bucket."""

    bucket: Bucket
    row_no: int

    def __str__(self) -> str:
        return f"{self.bucket.name}-{self.row_no}"

    @classmethod
    def parse(cls, cursor: str) -> "_RowPosition":
        match = _CURSOR.fullmatch(cursor)
        if match is None:
            raise Rejected("field-invalid", "after must be the next of an earlier answer of this call", field="after")
        return cls(Bucket.parse(match[1]), int(match[2]))


@dataclass(frozen=True)
class DelayedRetries:
    """The messages of a group that wait for the delay of their retry; ``members`` are the groups of its consumers, or
    the group itself."""

    context: Context
    subject: Subject
    members: list[Group]
    pending_counts: PendingCounts

    def retry(self, which: RetryFilter, after: str | None = None) -> EarlyRetries:
        """Retries up to 1,000 messages, or as many as 5 s allow, from the cursor ``after`` on. Decodes the group's rows
        in the hour buckets of a month, and makes a move for each message: see ``ScheduledMessages.reschedule``. A
        message whose delay ends meanwhile does not count. Raises ``Rejected`` where ``after`` is no cursor."""
        began_ms = self.context.clock.now_ms()
        start = None if after is None else _RowPosition.parse(after)
        retried = 0
        for position, row in self._rows(start):
            for index in self._chosen(position, row, which):
                if retried and self._is_over(began_ms, retried):
                    return EarlyRetries(retried=retried, next=str(position))
                retried += self._move(SchedulePosition(position.bucket, position.row_no, index))
            # Each call comes to the end of a row, or moves a message: repeated calls come to the end.
            if self._is_over(began_ms, retried):
                return EarlyRetries(retried=retried, next=str(position._replace(row_no=position.row_no + 1)))
        return EarlyRetries(retried=retried)

    def _is_over(self, began_ms: int, retried: int) -> bool:
        return retried >= _MOST or not within(began_ms, self.context.clock.now_ms(), _LONGEST_MS)

    def _rows(self, start: _RowPosition | None) -> Iterator[tuple[_RowPosition, Row]]:
        """Yields the rows of schedule logs from ``start`` on that hold messages of the group."""
        for bucket, row_nos in self._row_nos().items():
            left = sorted(row_no for row_no in row_nos if start is None or (bucket, row_no) >= start)
            for at in range(0, len(left), GET_MANY):
                rows = self.context.log(bucket.log).get_many(left[at : at + GET_MANY], consistent=True)
                yield from ((_RowPosition(bucket, row_no), rows[row_no]) for row_no in sorted(rows))

    def _row_nos(self) -> dict[Bucket, list[int]]:
        before_ms = self.context.clock.now_ms() + _FAR_MS
        rows: defaultdict[Bucket, list[int]] = defaultdict(list)
        for group in self.members:
            address = (self.subject.name, self.subject.generation, group.member)
            for bucket, row_nos in self.pending_counts.rows_of(self.context, address, before_ms=before_ms):
                rows[bucket] += row_nos
        return dict(sorted(rows.items()))

    def _chosen(self, position: _RowPosition, row: Row, which: RetryFilter) -> list[int]:
        """Returns the indexes of the chosen messages of a row that still wait; none of a row that cannot be read, which
        its wheel reports."""
        bucket, row_no = position
        try:
            entry, messages = decode_entry(row.meta), messages_of(row, self.context.blobs)
        except Corrupt:
            return []
        assert isinstance(entry, DueTimes)
        now_ms = self.context.clock.now_ms()
        return [
            index
            for index, message in enumerate(messages)
            if entry.due_ms(index) > now_ms
            and which.takes(message)
            and not self.pending_counts.is_cancelled(bucket, row_no, index)
        ]

    def _move(self, position: SchedulePosition) -> bool:
        """Returns whether the message was moved, or will be: the sweeper makes a change whose wheel did not answer."""
        try:
            now_ms = self.context.clock.now_ms()
            return ScheduledMessages(self.context, _PATIENCE_MS).reschedule(position, now_ms).state == "moved"
        except NotFound:
            return False  # its bucket was removed: it was handed over
        except ChangePending:
            return True
