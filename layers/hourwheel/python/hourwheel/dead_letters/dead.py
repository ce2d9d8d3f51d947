"""Lists, reads, redrives and drops dead letters."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, takewhile
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.dead_letters.dead_rows import DeadRow, DeadState, dead_state_record
from hourwheel.errors import Corrupt, NotFound, Rejected, Sealed
from hourwheel.faults import unreadable
from hourwheel.handover.copies import REDRIVE, RowMaker
from hourwheel.handover.handover import carry_out, release, reserve
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.entries import DropMarker, encode_entry
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row, filler, sort_of
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.pages import DeadPage
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Table, items_of
from hourwheel.pull_log.records import Position
from hourwheel.registry.records import unknown_group
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.watermarks import removable_below
from hourwheel.wire.answer_size import answerable, first_page

_FIRST_PAGE = 4  # a sweep mostly stops at the first row
_PAGE = 64
_LARGE_PAGE = 500  # for counts and states, which decode no messages
_DEAD_ID = re.compile(r"(\d+)-(\d+)", re.ASCII)
_DEAD_ID_LENGTH = 24  # longer than any row number with an index
_MOST_FILTERED = 2_000  # dead letters that a filtered page reads: their messages are decoded


def parse_dead_id(text: str, field: str) -> Position:
    """Returns the position in the dead log that the id names. Raises ``Rejected`` for a text that is no id."""
    parts = _DEAD_ID.fullmatch(text[: _DEAD_ID_LENGTH + 1])
    if parts is None or len(text) > _DEAD_ID_LENGTH:
        raise Rejected("field-invalid", f"{field} must be a dead_id such as 12-0, got {text[:40]!r}", field=field)
    return Position(int(parts[1]), int(parts[2]))


class DeadFilter(NamedTuple):
    """Chooses dead letters by reason and detail, each compared exactly. None takes any."""

    reason: str | None = None
    detail: str | None = None

    def takes(self, message: Message) -> bool:
        return self.reason in (None, message.reason) and self.detail in (None, message.detail)


ANY_LETTER = DeadFilter()


class DeadCount(NamedTuple):
    """The number of dead letters, and when the first of them died (0: there is none). ``complete`` is False where the
    count stopped at its limit."""

    messages: int
    since_ms: int
    complete: bool


NO_LETTERS = DeadCount(0, 0, True)
_BEGIN = Position(0, -1)
_END = Position(10**16)  # row numbers have 16 digits


@dataclass(frozen=True)
class NamedLetters:
    """Chooses the dead letters at these positions, for ``DeadLetters.redrive`` and ``drop``, which then read no other
    rows."""

    positions: frozenset[Position]

    def __call__(self, position: Position, died_ms: int) -> bool:
        return position in self.positions


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of one group. Times are Unix milliseconds at which a message became a dead letter."""

    context: Context
    subject: Subject
    group: Group

    @property
    def log(self) -> Log:
        return self.context.log(self.group.dead_log)

    def page(self, *, after: str | None, limit: int, which: DeadFilter = ANY_LETTER, newest: bool = False) -> DeadPage:
        """Returns up to ``limit`` dead letters after the cursor ``after``, the oldest first, or with ``newest`` the
        newest first. Returns fewer where more would not fit into an answer, or where the filter takes few of the
        ``_MOST_FILTERED`` dead letters that one call reads. Reports rows that cannot be read, and leaves them out."""
        start = parse_dead_id(after, "after") if after else None
        following = self.newest(start) if newest else self.alive(start)
        if which == ANY_LETTER:
            return first_page(following, limit)
        letters = list(islice(following, _MOST_FILTERED))
        page = first_page(filter(which.takes, letters), limit)
        if page.next is None and len(letters) == _MOST_FILTERED:
            page.next = letters[-1].dead_id
        return page

    def positions(self, which: DeadFilter) -> frozenset[Position]:
        """Returns the positions of all dead letters that the filter takes."""
        return frozenset(
            parse_dead_id(message.dead_id or "", "dead_id") for message in self.alive() if which.takes(message)
        )

    def alive(self, start: Position | None = None) -> Iterator[Message]:
        """Yields the dead letters behind ``start``, the oldest first, each with its ``dead_id``. Reports rows that
        cannot be read, and leaves them out. Two reads for each 64 rows."""
        start = start or _BEGIN
        for row in self._rows(start.row_no):
            yield from (message for position, message in self._readable(row) if position > start)

    def newest(self, before: Position | None = None) -> Iterator[Message]:
        """Yields the dead letters that come before ``before`` in the log (None: all), the newest first. Treats rows
        that cannot be read as ``alive`` does, and reads once more, for the end of the log."""
        trimmed = self.log.trimmed()
        before = before or _END
        end = min(self.log.totals().rows, before.row_no + 1)  # a caller may send any number
        while end > trimmed:
            start = max(trimmed, end - _PAGE)
            for row in reversed(list(self._rows(start, end=end))):
                letters = reversed(self._readable(row))
                yield from (message for position, message in letters if position < before)
            end = start

    def get(self, dead_id: str) -> Message:
        """Returns one dead letter. Raises ``NotFound`` when it was redriven or dropped, has expired, or never existed;
        ``Rejected`` when ``dead_id`` is no id."""
        dead = parse_dead_id(dead_id, "dead_id")
        row = self.log.get(dead.row_no)
        if row is not None and row.expires_ms > self.context.clock.now_ms():
            letters = self._row(dead.row_no, row).letters(self.context.blobs)
            if dead in dict(letters):
                return answerable(dict(letters)[dead])
        raise NotFound(
            "dead-letter-unknown", f"there is no dead letter {dead_id!r}: it was redriven, dropped, or expired"
        )

    def count(self) -> int:
        return sum(row.left for row in self._rows(0, page=_LARGE_PAGE))

    def count_up_to(self, most_rows: int) -> DeadCount:
        """Counts the dead letters in the first ``most_rows`` rows. One read where no message ever became a dead letter;
        otherwise two reads more for each 500 rows."""
        rows = self.log.totals().rows
        if not rows:
            return NO_LETTERS
        end = self.log.trimmed() + most_rows
        messages, since_ms = 0, 0
        for row in self._rows(0, end=end, page=min(most_rows, _LARGE_PAGE)):
            if row.left:
                messages, since_ms = messages + row.left, since_ms or row.row.at_ms
        return DeadCount(messages, since_ms, rows <= end)

    def redrive(self, choose: Callable[[Position, int], bool]) -> int:
        """Redrives the chosen messages: puts them into the group's retry log with no attempt counted. Returns their
        number.

        ``choose`` gets the position of each dead letter and the time at which it became one. Rows that cannot be read
        are reported and stay dead letters. Raises ``NotFound`` when the group was deleted meanwhile.
        """
        total = 0
        try:
            # Up to the present end: a message that dies again meanwhile is not redriven a second time by this call.
            for row_no, row in self._chosen_rows(choose, end=self.log.totals().rows):
                work = partial(self._redrive_on, row_no=row_no, row=row, choose=choose)
                try:
                    total += self.context.atomically(work)
                except Corrupt as error:
                    unreadable(self.context, self.log.name, row_no, row.count, error)
        except Sealed:
            raise unknown_group(self.subject.name, self.group.name) from None
        if total:
            self.context.wakeups.announce(self.subject.name, self.group.shared_name)
        return total

    def drop(self, choose: Callable[[Position, int], bool]) -> int:
        """Drops the chosen messages for ever, and returns their number. ``choose``: see ``redrive``."""
        return sum(self._drop_row(row_no, row, choose) for row_no, row in self._chosen_rows(choose))

    def sweep(self) -> None:
        """Finishes redrives that were cut off, and trims rows whose messages are all done or expired. Raises
        ``Corrupt`` after all rows were tried, if one could not be read."""
        # Sealed: the group was deleted after its look-up.
        with suppress(Sealed):
            self._sweep()

    def _sweep(self) -> None:
        faults = [fault for row_no, state in self._states() if (fault := self._finish_fault(row_no, state)) is not None]
        mark = self.log.clear()
        now_ms = self.context.clock.now_ms()
        over = takewhile(lambda row: row.is_over(now_ms), self._rows(0, expired=True, page=_FIRST_PAGE))
        below = max((row.row_no + 1 for row in over), default=None)
        if below is not None:
            below = removable_below(self.context, MESSAGES, self.log.name, below)
            self.log.trim(below, mark)
            self.context.store.trim(Table.PULL, self._partition, below=sort_of(below))
        if faults:
            raise faults[-1]

    def _finish_fault(self, row_no: int, state: Versioned[DeadState]) -> Corrupt | None:
        """Finishes the redrive of a row; returns the error of a row that cannot be read."""
        try:
            self._finish(row_no, state)
        except Corrupt as error:
            return error
        return None

    def _states(self) -> Iterator[tuple[int, Versioned[DeadState]]]:
        """Yields the state of each row that has one, with the row's number."""
        for sort, record in items_of(self.context.store, Table.PULL, self._partition, page=_LARGE_PAGE):
            current = self._state_record(int(sort)).opened(record)
            assert current is not None
            yield int(sort), current

    def _redrive_on(self, context: Context, row_no: int, row: Row, choose: Callable[[Position, int], bool]) -> int:
        return DeadLetters(context, self.subject, self.group)._redrive_row(row_no, row, choose)

    @property
    def _partition(self) -> str:
        return f"dead@{self.group.dead_log}"

    def _state_record(self, row_no: int) -> CasRecord[DeadState]:
        return dead_state_record(self.context, self.group, row_no)

    def _row(self, row_no: int, row: Row) -> DeadRow:
        return DeadRow(row_no, row, self._state_record(row_no).load())

    def _rows(
        self, start: int, *, end: int | None = None, expired: bool = False, page: int = _PAGE
    ) -> Iterator[DeadRow]:
        """Yields the rows from ``start`` up to ``end`` that contain live messages; with ``expired`` also fillers and
        expired rows."""
        end = _END.row_no if end is None else end
        for rows in self._pages(max(start, self.log.trimmed()), end, page):
            states = dict(
                self.context.store.scan(Table.PULL, self._partition, start=sort_of(rows[0][0]), limit=len(rows))
            )
            # Below the trim mark a missing state says nothing: rows are trimmed before their states.
            trimmed = self.log.trimmed()
            for row_no, row in rows:
                live = not row.filler and row.expires_ms > self.context.clock.now_ms()
                if trimmed <= row_no < end and (live or expired):
                    yield DeadRow(row_no, row, self._state_record(row_no).opened(states.get(sort_of(row_no))))

    def _pages(self, start: int, end: int, page: int) -> Iterator[list[tuple[int, Row]]]:
        """Yields the stored rows from ``start`` on by pages, up to the one with the row before ``end``."""
        while start < end:
            rows = self.log.read(start, page, consistent=True)
            if not rows:
                return
            yield rows
            start, page = rows[-1][0] + 1, max(page, _PAGE)

    def _chosen_rows(
        self, choose: Callable[[Position, int], bool], *, end: int | None = None
    ) -> Iterator[tuple[int, Row]]:
        """Yields the live rows with a chosen message, each with its number. Reads the named rows alone where positions
        are named."""
        if isinstance(choose, NamedLetters):
            numbers = sorted({position.row_no for position in choose.positions})
            most = _END.row_no if end is None else end
            rows = chain.from_iterable(self._rows(row_no, end=min(row_no + 1, most), page=1) for row_no in numbers)
        else:
            rows = chain(self._rows(0, end=end))
        # Without a look at the states, so that a letter which is done already counts where it has to.
        return ((row_no, row) for row_no, row, _ in rows if DeadRow(row_no, row, None).chosen(choose))

    def _readable(self, row: DeadRow) -> list[tuple[Position, Message]]:
        """Returns the letters that are left in a row; none of a row that cannot be read, which it reports."""
        try:
            return row.letters(self.context.blobs)
        except Corrupt as error:
            # The row stays in the log until it is repaired or dropped.
            unreadable(self.context, self.log.name, row.row_no, row.row.count, error)
            return []

    def _redrive_row(self, row_no: int, row: Row, choose: Callable[[Position, int], bool]) -> int:
        """Redrives the chosen messages of one row, and returns their number. Tries again while other processes change
        the state of the row; counts a message that one of them has redriven for this call as well. Raises
        ``Corrupt``."""
        record = self._state_record(row_no)
        current = record.load()
        offered: frozenset[int] = frozenset()
        while True:
            if current is not None:
                current = self._finish(row_no, current)
            elif row_no < self.log.trimmed():
                return len(offered)  # every message of the row was done, and row and state are trimmed
            letters = DeadRow(row_no, row, current)
            state, indexes = letters.state, letters.chosen(choose)
            # A message that this call offered and that is done was redriven, even if another process finished it.
            if not indexes:
                return len(offered & state.done)
            letters.letters(self.context.blobs)  # raises Corrupt for an unreadable row: it must not be redriven
            offered |= frozenset(indexes)
            transfer = reserve(
                self.context,
                kind=REDRIVE,
                log=self.group.retry_log,
                picks=tuple((row_no, index) for index in indexes),
                expires_ms=self.context.clock.now_ms() + self.subject.retention_ms,
            )
            value = msgspec.structs.replace(state, done=state.done | frozenset(indexes), transfers=(transfer,))
            outcome = record.swap(current, value, expires_ms=value.garbage_ms)
            if (written := outcome.written) is not None:
                self._finish(row_no, written)
                return len(offered & value.done)
            release(self.context, (transfer,))
            current = outcome.current

    def _drop_row(self, row_no: int, row: Row, choose: Callable[[Position, int], bool]) -> int:
        """Drops the chosen messages of one row, and returns their number, as ``_redrive_row`` does."""
        record = self._state_record(row_no)
        current = record.load()
        offered: frozenset[int] = frozenset()
        while True:
            letters = DeadRow(row_no, row, current)
            state, indexes = letters.state, letters.chosen(choose)
            if not indexes:
                return len(offered & state.done)
            offered |= frozenset(indexes)
            value = msgspec.structs.replace(state, done=state.done | frozenset(indexes))
            outcome = record.swap(current, value, expires_ms=value.garbage_ms)
            if outcome.stored:
                self._mark_dropped(row_no, indexes)
                return len(offered & value.done)
            current = outcome.current

    def _mark_dropped(self, row_no: int, indexes: list[int]) -> None:
        """Tells readers of the archive, which has no states of dead letters, that these were dropped. If the process
        ends before, the dead letters stay in the archive as if nobody had dropped them."""
        if self.context.settings.archive:
            now_ms = self.context.clock.now_ms()
            entry = encode_entry(DropMarker(row_no, tuple(indexes)))
            with suppress(Sealed):  # the group is deleted just now
                self.log.append(filler(now_ms, now_ms + DEAD_RETENTION_MS, entry))

    def _finish(self, row_no: int, current: Versioned[DeadState]) -> Versioned[DeadState]:
        if not current.value.transfers:
            return current
        # Strict: a dead letter that cannot be read stays in the dead log until it is repaired.
        row = RowMaker(self.context, self.log, None, strict=True)
        done = carry_out(self.context, self._state_record(row_no), current, row)
        return done or current
