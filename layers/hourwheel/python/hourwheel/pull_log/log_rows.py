"""Reads the rows of a group's pull log on one source log, and the messages of the source behind them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import GroupRemoved
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row, sort_of
from hourwheel.model.groups import Group
from hourwheel.model.log_names import pull_log, records_of
from hourwheel.model.routes import FIRST, Mapping
from hourwheel.ports.storage import Blobs, Key, Record, Table, items_of
from hourwheel.pull_log.claiming.others import Others
from hourwheel.pull_log.claiming.selection import Selection
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.records import SETTLED_KEPT_MS, Checkpoint, Position, PullRow, Tail

_FIRST_PAGE = 4  # without a claim before it the size of batches is unknown: a pull reads few rows first
_PAGE = 64  # with rows of up to 12 KB (``inline_bytes``), below the 1 MB of a query of DynamoDB
_NEAR = 20  # pull rows have about 150 bytes: a read of this many costs no more than one of two rows
_ALL = "\U0010ffff"  # sorts behind every row number

SINCE = 128
"""The rows of a page that tells whom a consumer meets: 64 consumers that claim ahead put as many rows between two of
one of them, or a few more."""


class LogTail(NamedTuple):
    """Where the next claim goes, and the row before it, if that row still grows: its end must be final first.
    ``others``: the consumers that have put rows behind the one that the caller settled; None if these were not read."""

    tail: Tail
    before: Versioned[PullRow] | None
    others: Others | None = None

    @classmethod
    def behind(cls, row_no: int, current: Versioned[PullRow], others: Others | None = None) -> "LogTail":
        return cls(behind(row_no, current.value), None if current.value.is_final else current, others)


@dataclass(frozen=True)
class LogRows:
    """The rows of a group's pull log on one source log. Cheap to create: every call reads the store."""

    context: Context
    group: Group
    source: Log
    queue: int | None
    """None for the group's retry log."""
    origin: int = 0
    """The row at which the group begins in the source."""
    mapping: Mapping = FIRST
    """The part of the queue that the source holds."""
    blobs: Blobs | None = None
    """The objects of the source's cell, opened before a transaction in which a claim may have to read a batch, as the
    claims of ordered groups and of filters do. None stands for those of the context."""

    @cached_property
    def partition(self) -> str:
        return pull_log(self.group.member, self.source.name)

    @property
    def filtered(self) -> bool:
        """Whether the group's filter applies: it does to queues, and not to the retries of messages that it took."""
        return self.group.filter is not None and self.queue is not None

    @property
    def batches(self) -> Blobs:
        """The objects that contain the large batches of the source, for claims."""
        return self.context.blobs if self.blobs is None else self.blobs

    @property
    def selection(self) -> Selection:
        tag_filter = self.group.filter if self.filtered else None
        return Selection(self.context, self.source, tag_filter, self.batches, retries=self.queue is None)

    def record(self, row_no: int) -> CasRecord[PullRow]:
        key = Key(Table.PULL, self.partition, sort_of(row_no))
        return CasRecord(self.source.store, self.context.ids, key, self._kind)

    @property
    def _kind(self) -> type[PullRow]:
        return OrderedRow if self.group.ordered else PullRow

    @property
    def checkpoint_record(self) -> CasRecord[Checkpoint]:
        return CasRecord(self.source.store, self.context.ids, checkpoint_key(self.partition), Checkpoint)

    def tail(self) -> Tail:
        """Returns where the next claim goes."""
        return self.end()[0]

    def end(self) -> LogTail:
        """Returns where the next claim goes, and the row before it that still grows."""
        # The tail is a hint for the put: a claim at an old tail is refused, and the refusal returns the newer row.
        newest = self.source.store.scan(Table.PULL, self.partition, limit=1, reverse=True)
        last = [(int(sort), self.opened(int(sort), record)) for sort, record in newest]
        for row_no, current in last:
            # Rows behind this one were claimed later, and are kept for days once closed: none can be removed yet.
            if abs(self.context.clock.now_ms() - current.value.claimed_ms) < SETTLED_KEPT_MS // 2:
                return LogTail.behind(row_no, current)
        # The checkpoint is read after the rows, because a sweeper saves it before it removes rows.
        checkpoint = self.checkpoint_record.load()
        for row_no, current in last:
            # A store removes expired rows in any order: a row left below the checkpoint is not the last one.
            if checkpoint is None or row_no >= checkpoint.value.row_no:
                return LogTail.behind(row_no, current)
        return LogTail(self.beginning(checkpoint), None)

    def end_since(self, row_no: int, consumer: str) -> LogTail:
        """Returns the end of the log, and the other consumers that have claimed since this consumer claimed the row
        ``row_no``, of which it has acknowledged a claim. The row is open if it has another claim, whose answer was
        lost. Most often one read."""
        last, others, start = None, Others(), row_no
        while page := self.rows(start, SINCE):
            last = page[-1]
            others = others.joined((current.value for _, current in page), consumer)
            start = last[0] + 1
            if len(page) < SINCE:
                break
        return self.end() if last is None else LogTail.behind(*last, others)

    def beginning(self, checkpoint: Versioned[Checkpoint] | None = None) -> Tail:
        """Returns the lowest row that may be unsettled: the checkpoint, or where the group began. Raises
        ``GroupRemoved``."""
        return self.beginning_at(checkpoint or self.checkpoint_record.load())

    def beginning_at(self, checkpoint: Versioned[Checkpoint] | None) -> Tail:
        """Returns what ``beginning`` does for a checkpoint that the caller has read (None: there is none)."""
        if checkpoint is None:
            return Tail(0, Position(self.origin), 0)
        if checkpoint.value.erased:
            raise erased(self.group)
        return Tail(checkpoint.value.row_no, checkpoint.value.position, checkpoint.value.seq)

    def erase(self) -> None:
        """Allows the removal of all rows, for a group that is deleted. Idempotent. Marks the log first: a process that
        still has the group's record cached shall not take an empty log for one that never began, and hand out settled
        messages again."""
        current, now_ms = self.checkpoint_record.load(), self.context.clock.now_ms()
        while current is None or not current.value.erased:
            last = Checkpoint(0, Position(self.origin), 0, now_ms) if current is None else current.value
            mark = msgspec.structs.replace(last, erased=True)
            # The mark has to last as long as a record may be cached, or a writer may pause.
            current = self.checkpoint_record.swap(current, mark, expires_ms=now_ms + SETTLED_KEPT_MS).current
        self.source.store.trim(Table.PULL, self.partition, below=_ALL)

    def rows(self, start: int, limit: int = _PAGE) -> list[tuple[int, Versioned[PullRow]]]:
        """Returns up to ``limit`` pull rows from ``start`` on, in order, each with its number."""
        items = self.source.store.scan(Table.PULL, self.partition, start=sort_of(start), limit=limit)
        return [(int(sort), self.opened(int(sort), record)) for sort, record in items]

    def current(self, row_nos: Sequence[int]) -> Iterator[tuple[int, Versioned[PullRow] | None]]:
        """Yields the pull rows of these numbers, which rise, as they are now; None for one that was removed. Reads rows
        that are near each other at once."""
        page: dict[int, Versioned[PullRow]] = {}
        behind = 0
        for at, row_no in enumerate(row_nos):
            if row_no < behind:
                yield row_no, page.get(row_no)
            elif at + 1 == len(row_nos) or row_nos[at + 1] >= row_no + _NEAR:
                yield row_no, self.record(row_no).load()
            else:
                page, behind = dict(self.rows(row_no, _NEAR)), row_no + _NEAR
                yield row_no, page.get(row_no)

    def rows_from(self, start: int, page: int) -> Iterator[tuple[int, PullRow]]:
        """Yields the pull rows from ``start`` on, in order, each with its number. Reads ``page`` rows at a time."""
        items = items_of(self.source.store, Table.PULL, self.partition, start=sort_of(start), page=page)
        return ((int(sort), self.opened(int(sort), record).value) for sort, record in items)

    def latest(self, limit: int) -> list[PullRow]:
        """Returns the newest pull rows, up to ``limit``, the last one first."""
        items = self.source.store.scan(Table.PULL, self.partition, limit=limit, reverse=True)
        return [self.opened(int(sort), record).value for sort, record in items]

    def opened(self, row_no: int, record: Record) -> Versioned[PullRow]:
        current = self.record(row_no).opened(record)
        assert current is not None
        return current

    def unread(
        self, start: Position, now_ms: int, page: int = _PAGE, *, consistent: bool = False
    ) -> Iterator[tuple[int, Row]]:
        """Yields the rows of the source log from ``start`` on, up to the first that is not stored yet. Reads page by
        page."""
        row_no = start.row_no
        while True:
            page_rows = self.source.read(row_no, page, consistent=consistent)
            if page_rows and page_rows[0][0] == start.row_no and page_rows[0][1].expires_ms <= now_ms:
                # A group that lags behind retention continues at the trim mark: the rows below have expired.
                trimmed = self.source.trimmed()
                if trimmed > row_no:
                    row_no = trimmed
                    continue
            yield from page_rows
            if len(page_rows) < page:
                return
            row_no, page = page_rows[-1][0] + 1, _PAGE


def checkpoint_key(pull_log: str) -> Key:
    return Key(Table.META, records_of(pull_log), "checkpoint")


def behind(row_no: int, value: PullRow) -> Tail:
    return Tail(row_no + 1, value.end, value.end_seq, len(value.counts) - value.ahead, value.size)


def erased(group: Group) -> GroupRemoved:
    """Returns the error for a group that was deleted since its record was read."""
    return GroupRemoved("group-unknown", f"group {group.shared_name!r} was deleted meanwhile", field="group")


def first_page(tail: Tail, max_messages: int) -> int:
    """Returns the number of rows to read first: as many as the last claim needed for this number of messages, plus one
    that it may have covered in part."""
    if not tail.messages:
        return min(_FIRST_PAGE, max_messages)
    return min(_PAGE, -(-max_messages * tail.rows // tail.messages) + (tail.position.index > 0))
