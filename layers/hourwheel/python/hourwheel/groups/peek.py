"""Shows the messages of a queue to a caller that is no group. Reads only, and neither waits nor fills holes.

One call reads a bounded number of rows, and returns as many messages as fit into an answer of Lambda. ``next`` is the
offset at which the next call goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hourwheel.context import Context
from hourwheel.errors import Corrupt, NotFound, Rejected
from hourwheel.groups.progress import row_at_offset, row_at_time
from hourwheel.handover.copies import with_position
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message
from hourwheel.model.pages import DamagedRow, PeekPage
from hourwheel.model.routes import Mapping
from hourwheel.model.subjects import Subject
from hourwheel.reach.outages import Outages, reached
from hourwheel.wire.answer_size import PULL_BYTES, answerable, message_size
from hourwheel.wire.words import no_queue

_ROWS = 256  # with the limit of an answer this bounds the time and the cost of a call
_PAGE = 32


@dataclass(frozen=True)
class PeekStart:
    """Where a peek starts: at an offset, at a time (Unix milliseconds), or without both at the first message. With
    ``newest`` the peek goes backwards: from the offset, from the last message before the time, or without both from the
    last message."""

    offset: int | None = None
    at_ms: int | None = None
    newest: bool = False


def queue_logs(context: Context, subject: Subject, queue: int) -> list[Log]:
    """Returns the logs of a queue, oldest first. Raises ``NotFound`` for a queue that the subject does not have, and
    ``CellUnavailable`` if a cell with a part of it is out of reach."""
    check_queue(subject, queue)
    return [context.log(log) for _, log in subject.parts(queue)]


def check_queue(subject: Subject, queue: int) -> None:
    """Raises ``NotFound`` for a queue that the subject does not have."""
    if not 0 <= queue < subject.queues:
        raise NotFound(
            "queue-unknown",
            no_queue(subject.name, queue, subject.queues),
            field="queue",
        )


def peek(context: Context, subject: Subject, queue: int, start: PeekStart, limit: int) -> PeekPage:
    """Returns up to ``limit`` messages of the queue that have not expired. A page may be empty although ``next`` is
    set: the rows that were read contain no live message. A page ends at a part in a cell that is out of reach; raises
    ``CellUnavailable`` where it would begin there."""
    check_queue(subject, queue)
    end = _end(context, subject, queue)
    if start.offset is not None and end is not None and start.offset > end:
        raise Rejected(
            "field-invalid",
            f"offset {start.offset} is beyond the queue's end {end}: give a smaller one",
            field="offset",
        )
    page = _Page(context, queue, start, limit)
    for part in _parts(subject, queue, start):
        if page.ends_with(part):
            break
    return PeekPage(page.messages, page.damaged, page.next, end)


def _end(context: Context, subject: Subject, queue: int) -> int | None:
    return reached(lambda: context.log(subject.log(queue)).totals().numbers, None)


def _parts(subject: Subject, queue: int, start: PeekStart) -> list[tuple[Mapping, str]]:
    """Returns the parts of the queue that a peek reads, in its direction. Parts before the offset are not read."""
    parts, offset = subject.parts(queue), start.offset
    if start.newest:
        return [part for part in reversed(parts) if offset is None or part[0].start <= offset]
    return [part for part in parts if offset is None or part[0].end is None or part[0].end > offset]


@dataclass
class _Page:
    """A page that is filled row by row, in the direction of the peek."""

    context: Context
    queue: int
    start: PeekStart
    limit: int
    messages: list[Message] = field(default_factory=list)
    damaged: list[DamagedRow] = field(default_factory=list)
    next: int | None = None
    _rows: int = 0
    _bytes: int = 0

    def ends_with(self, part: tuple[Mapping, str]) -> bool:
        """Adds the rows of a part of the queue. Returns whether the page ends there, with ``next`` set: it is full, or
        the part is out of reach. Raises the error of such a part where the page would begin."""
        mapping, name = part
        outages = Outages()
        with outages.noted(name):
            log = self.context.log(name)
            return any(self._add(log, row_no, row) for row_no, row in self._walk(log))
        if not self.messages and not self.damaged:
            outages.raise_last()
        self.next = self._following(mapping)
        return True

    def _following(self, part: Mapping) -> int:
        """Returns the offset at which the next page begins, if this page ended at the part, or within it."""
        last = self.messages[-1].offset if self.messages else None
        if self.start.newest:
            bound = part.start if part.end is None else part.end - 1
            return bound if last is None else min(bound, last - 1)
        return part.start if last is None else max(part.start, last + 1)

    def _walk(self, log: Log) -> Iterator[tuple[int, Row | Corrupt]]:
        row_no = self._first_row(log)
        return _backwards(log, row_no) if self.start.newest else _forwards(log, row_no)

    def _first_row(self, log: Log) -> int:
        """Returns the row at which the walk through the log starts; backwards, the row below which it starts."""
        offset, at_ms = self.start.offset, self.start.at_ms
        if offset is not None:
            row_no, row = row_at_offset(log, offset)
            holds = row is not None and row.first_seq <= offset
            return row_no + 1 if self.start.newest and holds else row_no
        if at_ms is not None:
            return row_at_time(log, at_ms)[0]
        return log.totals().rows if self.start.newest else log.trimmed()

    def _add(self, log: Log, row_no: int, row: Row | Corrupt) -> bool:
        if isinstance(row, Corrupt):
            self._rows += 1
            self.damaged.append(DamagedRow(None, 0, f"row {row_no} of {log.name}: {row}"))
            return False
        if row.filler:
            return False
        if self._rows >= _ROWS or len(self.damaged) + len(self.messages) >= self.limit:
            self.next = row.first_seq + row.count - 1 if self.start.newest else row.first_seq
            return True
        self._rows += 1
        return row.live(self.context.clock.now_ms()) and self._show(log, row_no, row)

    def _show(self, log: Log, row_no: int, row: Row) -> bool:
        try:
            messages = with_position(row, messages_of(row, self.context.blobs_of(log.name)), self.queue)
        except Corrupt as error:
            self.damaged.append(DamagedRow(row.first_seq, row.count, f"row {row_no} of {log.name}: {error}"))
            return False
        for message in reversed(messages) if self.start.newest else messages:
            assert message.offset is not None
            if self._outside(message.offset):
                continue
            message.attempt = 0  # nobody has pulled it here
            size = message_size(message)
            full = len(self.messages) + len(self.damaged) >= self.limit
            if full or (self.messages and self._bytes + size > PULL_BYTES):
                self.next = message.offset
                return True
            self._bytes += size
            self.messages.append(answerable(message))
        return False

    def _outside(self, offset: int) -> bool:
        bound = self.start.offset
        return bound is not None and (offset > bound if self.start.newest else offset < bound)


def _forwards(log: Log, row_no: int) -> Iterator[tuple[int, Row | Corrupt]]:
    while True:
        rows = log.stored_page(row_no, _PAGE)
        yield from rows
        if len(rows) < _PAGE:
            return
        row_no = rows[-1][0] + 1


def _backwards(log: Log, below: int) -> Iterator[tuple[int, Row | Corrupt]]:
    first = log.trimmed()
    while below > first:
        start = max(first, below - _PAGE)
        yield from reversed([(row_no, row) for row_no, row in log.stored_page(start, below - start) if row_no < below])
        below = start
