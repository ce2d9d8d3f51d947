"""Declares the reads by which a trace follows a message through one group: from the logs, or from a copy of them."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from hourwheel.buckets.buckets import Bucket
from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.dead_letters.dead_rows import DeadState, dead_state_record
from hourwheel.delay.ownership import DispatchLog
from hourwheel.delay.pending_changes import PendingChanges
from hourwheel.errors import Corrupt
from hourwheel.handover.handover import Transfer
from hourwheel.logs.cas import value_of
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position, PullRow
from hourwheel.trace.claims import Claims, claims_of, latest_rows
from hourwheel.trace.log_rows import SKEW_MS, first_at, readable_rows

_ROWS = 256  # of the retry log, in which a search looks for a redriven message, as many as in a search by id


class SourceLog(NamedTuple):
    """A log that the group pulls from: a queue's, or with ``queue`` None its retry log. The group begins at the row
    ``origin``."""

    name: str
    queue: int | None
    origin: int = 0


class RedrivenCopy(NamedTuple):
    """The position of a redriven message in the retry log, and the time at which it was redriven."""

    position: Position
    at_ms: int


class History(Protocol):
    """The history of one group."""

    @property
    def group(self) -> Group: ...

    def now_ms(self) -> int: ...

    def claims(self, log: SourceLog, position: Position) -> Claims:
        """Returns the pull rows that cover the message at this position of the log."""
        ...

    def latest_pulls(self, log: SourceLog, position: Position) -> tuple[Sequence[PullRow], bool]:
        """Returns the pull rows that may have served the message of an ordered group, oldest first, and whether no
        other row can have."""
        ...

    def row(self, log: str, row_no: int) -> Row | None:
        """Returns a row of copies, or of a schedule log; None where it is not known."""
        ...

    def removed(self, log: str, row_no: int) -> bool:
        """Returns whether a row that is not known was removed, and is not only still to be stored."""
        ...

    def offsets(self, log: str, row_no: int, row: Row) -> list[tuple[int | None, int | None]]:
        """Returns the queue and the offset at which each message of a row of copies was accepted; none where they
        cannot be read."""
        ...

    def detail(self, log: str, row_no: int, row: Row, index: int) -> str | None:
        """Returns what a consumer said of the failure of the message with this index of a row of copies; None where
        nobody said anything, or the history does not keep it."""
        ...

    def dispatched(self, log: str, row_no: int, index: int, due_ms: int) -> tuple[Transfer, int, int] | None:
        """Returns what ``DispatchLog.search`` does, for a message of the schedule log."""
        ...

    def moved(self, log: str, row_no: int, index: int) -> tuple[str, int] | None:
        """Returns the schedule log and the row to which somebody has moved the message of the schedule log, which is
        alone in its new row; None if nobody has."""
        ...

    def dead_state(self, row_no: int) -> DeadState | None:
        """Returns the state of a row of the group's dead log."""
        ...

    def redriven(self, queue: int, offset: int, died_ms: int, others: Set[Position]) -> RedrivenCopy | None:
        """Returns the copy in the retry log by which a message was redriven that had died at this time, and whose dead
        letter was removed since. Returns None if it was dropped, or a bounded search does not find the copy. ``others``
        are copies that belong to other deaths of the message."""
        ...


@dataclass(frozen=True)
class StoredHistory:
    """The history as the logs have it."""

    context: Context
    group: Group

    def now_ms(self) -> int:
        return self.context.clock.now_ms()

    def claims(self, log: SourceLog, position: Position) -> Claims:
        return claims_of(self._pulls(log), position)

    def latest_pulls(self, log: SourceLog, position: Position) -> tuple[Sequence[PullRow], bool]:
        return latest_rows(self._pulls(log))

    def row(self, log: str, row_no: int) -> Row | None:
        return self.context.log(log).get(row_no)

    def removed(self, log: str, row_no: int) -> bool:
        return row_no < self.context.log(log).trimmed()

    def offsets(self, log: str, row_no: int, row: Row) -> list[tuple[int | None, int | None]]:
        return [(message.queue, message.offset) for message in self._messages(log, row)]

    def detail(self, log: str, row_no: int, row: Row, index: int) -> str | None:
        messages = self._messages(log, row)
        return messages[index].detail if messages else None

    def _messages(self, log: str, row: Row) -> list[Message]:
        try:
            return messages_of(row, self.context.blobs_of(log))
        except Corrupt:
            return []

    def dispatched(self, log: str, row_no: int, index: int, due_ms: int) -> tuple[Transfer, int, int] | None:
        return DispatchLog(self.context, Bucket.of_log(log)).search(row_no, index, due_ms)

    def moved(self, log: str, row_no: int, index: int) -> tuple[str, int] | None:
        change = PendingChanges(self.context).record(SchedulePosition(Bucket.of_log(log), row_no, index)).load()
        position = None if change is None else change.value.new_position
        return None if position is None else (position.bucket.log, position.row_no)

    def dead_state(self, row_no: int) -> DeadState | None:
        current = dead_state_record(self.context, self.group, row_no).load()
        return value_of(current)

    def redriven(self, queue: int, offset: int, died_ms: int, others: Set[Position]) -> RedrivenCopy | None:
        log = self.context.log(self.group.retry_log)
        row_no = max(log.trimmed(), first_at(log, died_ms - SKEW_MS))
        rows = readable_rows(log, row_no, end=row_no + _ROWS)
        copies = (
            (RedrivenCopy(Position(number, index), row.at_ms), message)
            for number, row in rows
            if row.at_ms >= died_ms - SKEW_MS
            for index, message in enumerate(self._messages(log.name, row))
        )
        # Retries have later attempts: only a redrive begins with the first one again.
        first = (queue, offset, 1)
        redriven = (copy for copy, message in copies if (message.queue, message.offset, message.attempt) == first)
        return next((copy for copy in redriven if copy.position not in others), None)

    def _pulls(self, log: SourceLog) -> PullLog:
        return PullLog(self.context, self.group, self.context.log(log.name), log.queue, log.origin)
