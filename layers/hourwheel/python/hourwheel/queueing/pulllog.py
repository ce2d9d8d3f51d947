"""The pull log: one per (group, source log). Claiming a range of the source is one conditional put.

The loser of a race gets the winner's row in the refusal, so it knows the next start. There is no
cursor item and nothing to rebalance: any number of consumers, on any queue, from the first second.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hourwheel.context import Context
from hourwheel.lognames import pull_log
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row, sort_of
from hourwheel.model import Group, Subject
from hourwheel.ports import Key, Record, Table
from hourwheel.queueing.records import (
    CLOSED,
    PASSED,
    SETTLED_KEPT_MS,
    SOUGHT,
    Checkpoint,
    Position,
    PullRow,
    Tail,
)

EMPTY_ROWS = 500
"""A claim covers so many rows without messages at most. Where more come first, a row of the pull log passes them."""

_FIRST_PAGE = 4
_PAGE = 64
_RACES = 100


@dataclass(frozen=True)
class Claim:
    """A range that was claimed: its pull row, the rows of the source log that it covers, and what its messages take in
    an answer at most."""

    row: int
    held: Versioned[PullRow]
    rows: tuple[tuple[int, Row], ...]
    answer_bytes: int


class Nothing(NamedTuple):
    """The group's next claim is ``row`` of the pull log, and no row of the source below ``end`` has anything for it."""

    row: int
    end: int


class Found(NamedTuple):
    """What came of a try to claim. ``limited``: a limit ended it, there may be more. ``nothing``: where it found no
    message although it looked up to the log's end."""

    claim: Claim | None
    limited: bool
    nothing: Nothing | None = None


@dataclass
class _Range:
    """What a claim covers, row by row. While it has no messages it only moves its end."""

    first: Position
    end: Position
    end_number: int
    counts: list[int] = field(default_factory=list)
    rows: list[tuple[int, Row]] = field(default_factory=list)
    total: int = 0
    size: int = 0
    empty: int = 0
    limited: bool = False

    def begin(self, first: Position) -> None:
        """The first messages are there: what was empty before them is passed over."""
        self.first, self.empty = first, 0

    def add(self, number: int, row: Row, skip: int, count: int, usable: int) -> None:
        if count:
            self.size += row.answer_bytes
        else:
            self.empty += 1
        self.total += count
        if self.total:
            self.counts.append(count)
            self.rows.append((number, row))
        self.end = Position(number, skip + count) if count < usable else Position(number + 1)
        if not row.filler:
            self.end_number = row.number + (skip + count if count < usable else row.count)


@dataclass(frozen=True)
class PullLog:
    """A group's progress on one source log. Cheap to make; holds no state."""

    context: Context
    group: Group
    source: Log
    queue: int | None
    """None for the group's retry log."""

    def on(self, context: Context) -> "PullLog":
        """The same pull log over another store (a transaction's)."""
        return replace(self, context=context, source=context.log(self.source.name))

    @property
    def partition(self) -> str:
        return pull_log(self.group.member, self.source.name)

    def record(self, row: int) -> CasRecord[PullRow]:
        return CasRecord(self.context.store, self.context.ids, Key(Table.PULL, self.partition, sort_of(row)), PullRow)

    @property
    def checkpoint_record(self) -> CasRecord[Checkpoint]:
        return CasRecord(
            self.context.store, self.context.ids, Key(Table.META, "checkpoint", self.partition), Checkpoint
        )

    def tail(self) -> Tail:
        """Where the next claim goes."""
        found = self.context.store.scan(Table.PULL, self.partition, limit=1, reverse=True)
        last = [(int(sort), self.opened(int(sort), record).value) for sort, record in found]
        for row, value in last:
            # Rows behind it were claimed later, and are kept for long once they are closed: none can be gone.
            if abs(self.context.clock.now_ms() - value.claimed_ms) < SETTLED_KEPT_MS // 2:
                return _behind(row, value)
        # Read after it: a sweeper saves the checkpoint before it lets go of rows.
        checkpoint = self.checkpoint_record.load()
        for row, value in last:
            # Expired rows vanish in any order: one that is left below the checkpoint is not the last.
            if checkpoint is None or row >= checkpoint.value.row:
                return _behind(row, value)
        return self.beginning(checkpoint)

    def has_unpulled(self) -> bool:
        """Whether there is a message that nobody has pulled, be it behind a row that is on its way. Strongly
        consistent."""
        tail = self.tail()
        now_ms = self.context.clock.now_ms()
        for row_no, row in self.source.stored(tail.position.row):
            skip = tail.position.index if row_no == tail.position.row else 0
            if row.count > skip and row.live(now_ms):
                return True
        return False

    def beginning(self, checkpoint: Versioned[Checkpoint] | None = None) -> Tail:
        """The lowest row that may be unsettled: the checkpoint, or where the group began."""
        checkpoint = checkpoint or self.checkpoint_record.load()
        if checkpoint is not None:
            return Tail(checkpoint.value.row, checkpoint.value.position, checkpoint.value.number)
        origins = self.group.origins
        origin = origins[self.queue] if self.queue is not None and self.queue < len(origins) else 0
        return Tail(0, Position(origin), 0)

    def claim(self, *, consumer: str, max_messages: int, max_bytes: int, lease_ms: int, whole: bool = False) -> Found:
        """Claims the next messages, in one write; none when there are none, and no write but where many empty rows
        are passed. In an answer they take up to ``max_bytes``; of a first row that takes more by itself, as many are
        claimed as fit into an answer, unless ``whole``."""
        tail = self.tail()
        for race in range(_RACES):
            now_ms = self.context.clock.now_ms()
            taken = self._take(tail, max_messages, max_bytes, now_ms, whole)
            if not taken.total and taken.empty < EMPTY_ROWS:
                return Found(None, taken.limited, None if taken.limited else Nothing(tail.row, taken.end.row))
            value = PullRow(
                consumer=consumer,
                first=taken.first,
                counts=tuple(taken.counts),
                end=taken.end,
                end_number=taken.end_number,
                claim=self.context.ids.token(),
                claimed_ms=now_ms,
                lease_until_ms=now_ms + lease_ms,
            )
            if not taken.total:
                value = value.closed(PASSED, now_ms)
            outcome = self.record(tail.row).swap(None, value, token=value.claim, expires_ms=value.garbage_ms)
            if outcome.stored and outcome.current is not None:
                claim = Claim(tail.row, outcome.current, tuple(taken.rows), taken.size) if taken.total else None
                return Found(claim, taken.limited)
            self.context.meter.record("ClaimConflicts", 1)
            if outcome.current is None or race > 1:
                tail = self.tail()
            else:
                tail = Tail(tail.row + 1, outcome.current.value.end, outcome.current.value.end_number)
        return Found(None, limited=True)

    def seek(self, position: Position, number: int) -> None:
        """Makes ``position`` the start of the next claim. One write."""
        while True:
            tail = self.tail()
            now_ms = self.context.clock.now_ms()
            value = PullRow(
                consumer="",
                first=position,
                counts=(),
                end=position,
                end_number=number,
                claim=self.context.ids.token(),
                claimed_ms=now_ms,
                lease_until_ms=now_ms,
                state=CLOSED,
                outcome=SOUGHT,
                closed_ms=now_ms,
            )
            if self.record(tail.row).swap(None, value, expires_ms=value.garbage_ms).stored:
                return

    def rows(self, start: int, limit: int = _PAGE) -> list[tuple[int, Versioned[PullRow]]]:
        """Up to ``limit`` pull rows from ``start`` on, in order."""
        items = self.context.store.scan(Table.PULL, self.partition, start=sort_of(start), limit=limit)
        return [(int(sort), self.opened(int(sort), record)) for sort, record in items]

    def opened(self, row: int, record: Record) -> Versioned[PullRow]:
        held = self.record(row).opened(record)
        assert held is not None
        return held

    def unread(
        self, start: Position, now_ms: int, page: int = _PAGE, *, consistent: bool = False
    ) -> Iterator[tuple[int, Row]]:
        """The settled rows of the source from ``start`` on, page by page."""
        row = start.row
        while True:
            found = self.source.read(row, page, consistent=consistent)
            if found and found[0][0] == start.row and found[0][1].expires_ms <= now_ms:
                # A group that lags behind retention goes on where the sweeper has seen live rows.
                trimmed = self.source.trimmed()
                if trimmed > row:
                    row = trimmed
                    continue
            yield from found
            if len(found) < page:
                return
            row, page = found[-1][0] + 1, _PAGE

    def _take(self, tail: Tail, max_messages: int, max_bytes: int, now_ms: int, whole: bool) -> _Range:
        """Decides what a claim covers; without messages, what there is to pass over."""
        taken = _Range(first=tail.position, end=tail.position, end_number=tail.number)
        for number, row in self.unread(tail.position, now_ms, _first_page(tail, max_messages)):
            skip = tail.position.index if number == tail.position.row else 0
            usable = 0 if row.expires_ms <= now_ms else max(0, row.count - skip)
            if taken.total and number != taken.rows[-1][0] + 1:
                taken.limited = True  # trimmed between two pages: what follows is for the next claim
                break
            if usable and (taken.total or whole) and taken.size + row.answer_bytes > max_bytes:
                taken.limited = True
                break
            if usable and not taken.total:
                taken.begin(Position(number, skip))
            fitting = min(usable, row.together(skip))
            taken.add(number, row, skip, min(fitting, max_messages - taken.total), usable)
            if taken.total >= max_messages or fitting < usable or taken.empty >= EMPTY_ROWS:
                taken.limited = True
                break
        return taken


def _behind(row: int, value: PullRow) -> Tail:
    return Tail(row + 1, value.end, value.end_number, len(value.counts), value.size)


def _first_page(tail: Tail, max_messages: int) -> int:
    """How many rows to read first: as many as the claim before had for so many messages, and one that it may have
    left in part."""
    if not tail.messages:
        return min(_FIRST_PAGE, max_messages)
    return min(_PAGE, -(-max_messages * tail.rows // tail.messages) + (tail.position.index > 0))


def pull_logs(context: Context, subject: Subject, group: Group) -> list[PullLog]:
    """The group's pull logs: that of its retry log, then one for each queue."""
    queues = [PullLog(context, group, context.log(subject.log(queue)), queue) for queue in range(subject.queues)]
    return [PullLog(context, group, context.log(group.retry_log), None), *queues]
