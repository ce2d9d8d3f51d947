"""Retries the messages of a group that wait for their delay at once: each is moved to the present time, as a delayed
message is that a caller moves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.delay.changes import ScheduledMessages
from hourwheel.delay.lists.pending_counts import PendingCounts
from hourwheel.errors import Corrupt, NotFound, Rejected, Unavailable
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


class RetryFilter(NamedTuple):
    """Chooses messages by their key, and by what the consumer said of the failure. None takes any."""

    key: str | None = None
    detail: str | None = None

    def takes(self, message: Message) -> bool:
        return self.key in (None, message.key) and self.detail in (None, message.detail)


class EarlyRetries(Struct, kw_only=True):
    """The number of messages that are retried at once. ``complete`` is False where a repeated call would find more."""

    retried: int
    complete: bool


@dataclass(frozen=True)
class DelayedRetries:
    """The messages of a group that wait for the delay of their retry; ``members`` are the groups of its consumers, or
    the group itself."""

    context: Context
    subject: Subject
    members: list[Group]
    pending_counts: PendingCounts

    def retry(self, which: RetryFilter) -> EarlyRetries:
        """Retries up to 1,000 messages, or as many as 5 s allow. Decodes the rows of the group in all hour buckets, and
        makes a move for each message: see ``ScheduledMessages.reschedule``. A message whose delay ends meanwhile does
        not count.

        Raises:
            Rejected: the group is ordered. It retries a failed message in its place, and other messages of the key wait
                behind it.
        """
        if any(group.ordered for group in self.members):
            detail = "an ordered group retries each key in its order: decide about keys that have stopped"
            raise Rejected("field-invalid", detail, field="group")
        began_ms = self.context.clock.now_ms()
        retried = 0
        for position in self._chosen(which):
            if retried >= _MOST or not within(began_ms, self.context.clock.now_ms(), _LONGEST_MS):
                return EarlyRetries(retried=retried, complete=False)
            retried += self._move(position)
        return EarlyRetries(retried=retried, complete=True)

    def _chosen(self, which: RetryFilter) -> Iterator[SchedulePosition]:
        now_ms = self.context.clock.now_ms()
        for group in self.members:
            address = (self.subject.name, self.subject.generation, group.member)
            for bucket, row_nos in self.pending_counts.rows_of(self.context, address, before_ms=now_ms + _FAR_MS):
                for start in range(0, len(row_nos), GET_MANY):
                    rows = self.context.log(bucket.log).get_many(row_nos[start : start + GET_MANY])
                    for row_no, row in rows.items():
                        yield from self._of_row(bucket, row_no, row, which, now_ms)

    def _of_row(
        self, bucket: Bucket, row_no: int, row: Row, which: RetryFilter, now_ms: int
    ) -> Iterator[SchedulePosition]:
        """Yields the positions of the chosen messages of a row that still wait; none of a row that cannot be read,
        which its wheel reports."""
        try:
            entry, messages = decode_entry(row.meta), messages_of(row, self.context.blobs)
        except Corrupt:
            return
        for index, message in enumerate(messages):
            waits = isinstance(entry, DueTimes) and entry.due_ms(index) > now_ms
            if waits and which.takes(message) and not self.pending_counts.is_cancelled(bucket, row_no, index):
                yield SchedulePosition(bucket, row_no, index)

    def _move(self, position: SchedulePosition) -> bool:
        """Returns whether the message was moved. A request that the wheel does not answer is stored, and carried out by
        the sweeper."""
        now_ms = self.context.clock.now_ms()
        try:
            return ScheduledMessages(self.context, _PATIENCE_MS).reschedule(position, now_ms).state == "moved"
        except NotFound:
            return False
        except Unavailable:
            return True
