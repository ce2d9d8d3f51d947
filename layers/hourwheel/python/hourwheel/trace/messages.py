"""Finds a message in the queues of a subject, and traces it in each group.

A message is named by its queue and offset, by its scheduled id, or by its id. Ids that Hourwheel gives contain the time
at which the message was accepted; for a sender's id the caller names a span of time. Every search is bounded.
"""

import re
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.context import Context
from hourwheel.delay.changes import Scheduled, ScheduledMessages
from hourwheel.errors import Corrupt, NotFound, Rejected
from hourwheel.groups.peek import check_queue, queue_logs
from hourwheel.groups.progress import row_at_offset
from hourwheel.handover.copies import with_position
from hourwheel.logs.large_batches import ids_of, messages_of
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.routes import Mapping
from hourwheel.model.subjects import Subject
from hourwheel.model.traces import GroupTrace, MessageTrace, TracePage
from hourwheel.pull_log.open_logs import pull_logs
from hourwheel.pull_log.records import Position
from hourwheel.times import rfc3339
from hourwheel.trace.history import SourceLog, StoredHistory
from hourwheel.trace.key_reader import reader_of
from hourwheel.trace.log_rows import SKEW_MS, rows_of_time
from hourwheel.trace.scheduled import BucketRow, ScheduleSearch
from hourwheel.wire.answer_size import PULL_BYTES, answerable, nested_size

_GIVEN_ID = re.compile(r"([0-9a-f]{12})[0-9a-f]{16}-\d+", re.ASCII)
_PLACE = re.compile(r"(\d{1,5}):(\d{1,19})", re.ASCII)
_ROWS = 256  # a call of a search by id reads at most this many rows
MOST = 10  # traces in one answer: a sender may have used an id for many messages
GROUPS = 20
"""A trace covers at most this many groups; a group that the caller names is always among them."""

_ELSEWHERE = "the lake keeps messages that expired or were removed"


class MessagePosition(NamedTuple):
    """The position of a message: a queue, and the offset there."""

    queue: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> "MessagePosition | None":
        """Parses ``queue:offset``; returns None for any other text."""
        parts = _PLACE.fullmatch(text)
        return None if parts is None else cls(int(parts[1]), int(parts[2]))

    def __str__(self) -> str:
        return f"{self.queue}:{self.offset}"


class SearchSpan(NamedTuple):
    """The time in which a message with a sender's id was accepted (Unix milliseconds), and the position at which the
    search goes on. It goes on in the queues, or behind them in the buckets of delayed messages."""

    since_ms: int | None = None
    until_ms: int | None = None
    start: MessagePosition | BucketRow | None = None


def _check(span: SearchSpan, now_ms: int) -> None:
    """Raises ``Rejected`` for a span in which no message can have been accepted."""
    if span.since_ms is not None and span.until_ms is not None and span.until_ms <= span.since_ms:
        raise Rejected("field-invalid", "to must be later than from: no time lies between them", field="to")
    if span.since_ms is not None and span.since_ms > now_ms + SKEW_MS:
        raise Rejected("field-invalid", "from is in the future: give the time when the message was sent", field="from")


def _when(exact_ms: int | None) -> str:
    """Returns the end of a sentence that says where a search looked: at the time that an id names, or in a span."""
    return "" if exact_ms is not None else " in this time: give queue:offset, scheduled_id or another from and to"


@dataclass(frozen=True)
class _Found:
    target: MessagePosition
    log: Log
    row_no: int
    row: Row
    index: int


@dataclass
class _TracePage:
    """The traces of an answer: at most ``MOST``, and no more than fit into it."""

    traces: list[MessageTrace] = field(default_factory=list)
    _size: int = 0

    @property
    def is_full(self) -> bool:
        return len(self.traces) == MOST

    def add(self, trace: MessageTrace) -> bool:
        """Adds a trace if it fits, and returns whether it did. The first one always fits."""
        self._size += nested_size(trace)
        if self.traces and self._size > PULL_BYTES:
            return False
        self.traces.append(trace)
        return True


@dataclass
class Trace:
    """Traces messages of one subject for the groups ``groups``. ``more_groups``: there are others."""

    context: Context
    subject: Subject
    groups: list[Group]
    more_groups: bool
    scheduled_id: Callable[[SchedulePosition], str]
    """Signs the position of a delayed message."""
    _read: int = field(default=0, init=False)

    def by_offset(self, target: MessagePosition) -> MessageTrace:
        """Returns the trace of the message at an offset. Raises ``NotFound``."""
        check_queue(self.subject, target.queue)
        part = self._part_of(target)
        log = self.context.log(self.subject.log_of(target.queue, part))
        row_no, row = row_at_offset(log, target.offset)
        if row is not None and row.first_seq <= target.offset < row.first_seq + row.count:
            return self._trace(_Found(target, log, row_no, row, target.offset - row.first_seq))
        end = log.totals().numbers
        if part.end is None and target.offset >= end:
            ends = f"queue {target.queue} of {self.subject.name!r} ends at offset {end}, which the next message gets"
            raise NotFound("offset-unknown", f"there is no message at {target}: {ends}")
        raise NotFound("message-unknown", f"there is no message at {target}: {_ELSEWHERE}")

    def _part_of(self, target: MessagePosition) -> Mapping:
        """Returns the readable part of the queue that contains the offset. Raises ``NotFound``."""
        route = self.subject.route(target.queue)
        part = route.part_of(target.offset)
        if part is not None and part in route.readable:
            return part
        why = f"{part.loss}; the lake keeps what was archived" if part and part.state == "lost" else _ELSEWHERE
        raise NotFound("message-unknown", f"there is no message at {target}: {why}")

    def by_scheduled(self, scheduled: Scheduled, scheduled_id: str) -> MessageTrace:
        """Returns the trace of a delayed message, which may be in a queue by now."""
        if scheduled.queue is not None and scheduled.offset is not None:
            trace = self.by_offset(MessagePosition(scheduled.queue, scheduled.offset))
            trace.scheduled_id = scheduled_id
            return trace
        state: Literal["cancelled", "scheduled"] = "cancelled" if scheduled.state == "cancelled" else "scheduled"
        due_at = rfc3339(scheduled.due_ms)
        return MessageTrace(self.subject.name, scheduled.message_id, state, due_at=due_at, scheduled_id=scheduled_id)

    def by_id(self, message_id: str, span: SearchSpan) -> TracePage:
        """Returns the traces of the messages with this id. Raises ``NotFound`` if there is none, and ``Rejected`` for a
        sender's id without a span."""
        now_ms = self.context.clock.now_ms()
        _check(span, now_ms)
        exact_ms = None
        if span.since_ms is None:
            exact_ms = _exact_ms(message_id, now_ms)
            span = span._replace(since_ms=exact_ms, until_ms=exact_ms + SKEW_MS)
        traces, following = self._with_id(message_id, span, exact_ms)
        if not traces and following is None and span.start is None:
            raise NotFound(
                "message-unknown",
                f"subject {self.subject.name!r} has no message with the id {message_id[:100]!r}{_when(exact_ms)};"
                f" {_ELSEWHERE}",
            )
        return TracePage(traces, None if following is None else str(following))

    def _with_id(
        self, message_id: str, span: SearchSpan, exact_ms: int | None
    ) -> tuple[list[MessageTrace], MessagePosition | BucketRow | None]:
        """Returns the traces of the messages with this id in the queues, then in the buckets, and where the search goes
        on, if it had to end."""
        page, following = _TracePage(), None
        if not isinstance(span.start, BucketRow):
            following = self._add_queued(page, message_id, span, exact_ms)
        # An id that Hourwheel gave names one message.
        if following is None and not (page.traces and exact_ms is not None):
            following = self._add_delayed(page, message_id, span)
        return page.traces, following

    def _add_queued(
        self, page: "_TracePage", message_id: str, span: SearchSpan, exact_ms: int | None
    ) -> MessagePosition | BucketRow | None:
        """Adds the traces of the messages with this id in the queues. Returns where the search goes on, if it had to
        end."""
        for target in self._search(message_id, span, exact_ms):
            if isinstance(target, MessagePosition):
                return target
            if not page.add(self._trace(target)):
                return target.target
            if page.is_full:
                return target.target._replace(offset=target.target.offset + 1)
        return None

    def _add_delayed(self, page: "_TracePage", message_id: str, span: SearchSpan) -> BucketRow | None:
        """Adds the traces of the delayed messages with this id that are not among the traces yet. Returns where the
        search goes on, if it had to end."""
        traced = {(trace.queue, trace.offset) for trace in page.traces}
        start = span.start if isinstance(span.start, BucketRow) else None
        most_rows = max(1, _ROWS - self._read)
        search = ScheduleSearch(
            self.context, self.subject, message_id, span.since_ms or 0, span.until_ms, SKEW_MS, most_rows
        )
        for target in search.positions(start):
            if isinstance(target, BucketRow):
                return target
            trace = None if page.is_full else self._delayed(target, traced)
            if page.is_full or (trace is not None and not page.add(trace)):
                return BucketRow(target.bucket, target.row_no, target.index)
        return None

    def _delayed(self, target: SchedulePosition, traced: Set[tuple[int | None, int | None]]) -> MessageTrace | None:
        """Returns the trace of the delayed message at this place; None for one that is among those of ``traced``, was
        moved from here, or is removed just now."""
        with suppress(NotFound):
            scheduled = ScheduledMessages(self.context).look(target)
            # Of a message that was moved, each bucket has a row.
            if scheduled.position == target and (scheduled.queue, scheduled.offset) not in traced:
                return self.by_scheduled(scheduled, self.scheduled_id(target))
        return None

    def _search(self, message_id: str, span: SearchSpan, exact_ms: int | None) -> Iterator[_Found | MessagePosition]:
        """Yields the messages with the id, or an offset once the search has read as much as one call may."""
        start = span.start if isinstance(span.start, MessagePosition) else MessagePosition(0, 0)
        for position, log in self._logs(start):
            for row_no, row in self._rows(log, span, position.offset):
                if self._read >= _ROWS:
                    yield position._replace(offset=max(position.offset, row.first_seq))
                    return
                self._read += 1
                if exact_ms in (None, row.at_ms):
                    yield from self._matches(message_id, position, log, row_no, row)

    def _logs(self, start: MessagePosition) -> Iterator[tuple[MessagePosition, Log]]:
        """Yields the logs of the queues from ``start`` on, each with the position from which it is searched."""
        for queue in range(start.queue, self.subject.queues):
            position = start if queue == start.queue else MessagePosition(queue, 0)
            yield from ((position, log) for log in queue_logs(self.context, self.subject, queue))

    def _rows(self, log: Log, span: SearchSpan, offset: int) -> Iterator[tuple[int, Row]]:
        """Yields the readable rows of the span that contain the offset or later ones."""
        first = max(log.trimmed(), row_at_offset(log, offset)[0]) if offset else log.trimmed()
        rows = rows_of_time(log, first, span.since_ms or 0, span.until_ms)
        return ((row_no, row) for row_no, row in rows if row.live(self.context.clock.now_ms()))

    def _matches(self, message_id: str, start: MessagePosition, log: Log, row_no: int, row: Row) -> Iterator[_Found]:
        try:
            ids = ids_of(row, self.context.blobs_of(log.name))
        except Corrupt:
            return  # a trace by queue and offset says so
        for index in (index for index, own_id in enumerate(ids) if own_id == message_id):
            target = start._replace(offset=row.first_seq + index)
            if target >= start:
                yield _Found(target, log, row_no, row, index)

    def _trace(self, match: _Found) -> MessageTrace:
        if not match.row.live(self.context.clock.now_ms()):
            raise NotFound("message-unknown", f"the message at {match.target} has expired: {_ELSEWHERE}")
        message, damaged = self._message(match)
        trace = accepted_trace(self.subject.name, match.target, match.row.at_ms, message)
        trace.damaged, trace.more_groups = damaged, self.more_groups
        trace.groups = [self._group(group, match) for group in self.groups]
        return trace

    def _message(self, match: _Found) -> tuple[Message | None, str | None]:
        try:
            messages = with_position(
                match.row, messages_of(match.row, self.context.blobs_of(match.log.name)), match.target.queue
            )
        except Corrupt as error:
            return None, str(error)
        message = messages[match.index]
        message.attempt = 0
        return answerable(message), None

    def _group(self, group: Group, match: _Found) -> GroupTrace:
        reader = reader_of(StoredHistory(self.context, group), match.target.queue, match.target.offset)
        log = next(log for log in pull_logs(self.context, self.subject, group) if log.source.name == match.log.name)
        source = SourceLog(log.source.name, log.queue, log.origin)
        return reader.trace(source, Position(match.row_no, match.index))


def _exact_ms(message_id: str, now_ms: int) -> int:
    """Returns what ``given_ms`` does; raises ``Rejected`` for a sender's id."""
    own_ms = given_ms(message_id, now_ms)
    if own_ms is None:
        raise Rejected(
            "field-invalid",
            "a sender's id does not tell when the message came: add from (and to), or give queue:offset",
            field="from",
        )
    return own_ms


def given_ms(message_id: str, now_ms: int) -> int | None:
    """Returns the time at which Hourwheel gave this id; None for a sender's id, which may look alike: then its time is
    hardly ever in the past."""
    own = _GIVEN_ID.fullmatch(message_id)
    if own is None:
        return None
    at_ms = int(own[1], 16)
    return at_ms if at_ms <= now_ms + SKEW_MS else None


def accepted_trace(subject: str, target: MessagePosition, stored_ms: int, message: Message | None) -> MessageTrace:
    """Returns the trace of a message in a queue, without its groups. ``stored_ms``: the time at which its row was
    stored. ``message`` is None where it cannot be read."""
    trace = MessageTrace(
        subject,
        "" if message is None else message.id or "",
        "accepted",
        queue=target.queue,
        offset=target.offset,
        accepted_at=rfc3339(stored_ms),
        message=message,
    )
    if message is not None and message.due_at is not None:
        # The row of a message that was delayed was stored when it was dispatched.
        trace.dispatched_at, trace.accepted_at, trace.due_at = trace.accepted_at, message.produced_at, message.due_at
    return trace
