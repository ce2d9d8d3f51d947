"""Lists, reads, redrives and drops dead letters.

table      pull
partition  dead@{dead log}
sort       {row:016d}
value      DeadState, msgpack array: which messages of that row of the dead log were redriven or dropped
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, Self

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Corrupt, NotFound, Rejected, Sealed
from hourwheel.faults import unreadable
from hourwheel.handover.copies import REDRIVE, row_builder
from hourwheel.handover.handover import Transfer, carry_out, release, reserve
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.entries import DropMarker, encode_entry
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.log import GARBAGE_MS, Log
from hourwheel.logs.rows import Row, filler, sort_of
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.pages import DeadPage
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Table, items_of
from hourwheel.pull_log.records import Moved, Position
from hourwheel.registry.registry import unknown_group
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.watermarks import removable_below
from hourwheel.wire.answer_size import answerable, first_page

_FIRST_PAGE = 4  # a sweep mostly stops at the first row
_PAGE = 64
_LARGE_PAGE = 500  # for counts and states, which decode no messages
_MOST_FILTERED = 2_000  # dead letters that a filtered page reads: their messages are decoded
_FILLER_KEPT_MS = 86_400_000  # a day: far longer than a slow writer takes to put its row


class DeadState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The state of one row of a dead log. ``done`` holds the indexes of the messages that were redriven or dropped,
    ``transfers`` a redrive that is being carried out, ``moved`` the redrives that were."""

    expires_ms: int
    done: frozenset[int] = frozenset()
    transfers: tuple[Transfer, ...] = ()
    moved: tuple[Moved, ...] = ()

    @property
    def garbage_ms(self) -> int | None:
        # The row must be removed before its state: a row without a state would be listed again.
        return self.expires_ms + 2 * GARBAGE_MS

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        left = {transfer.token for transfer in transfers}
        done = [Moved.of(transfer) for transfer in self.transfers if transfer.token not in left]
        return msgspec.structs.replace(self, transfers=transfers, moved=(*self.moved, *done))


def dead_state_record(context: Context, group: Group, row_no: int) -> CasRecord[DeadState]:
    """Returns the record of the state of a row of the group's dead log."""
    key = Key(Table.PULL, f"dead@{group.dead_log}", sort_of(row_no))
    return CasRecord(context.store, context.ids, key, DeadState)


def dead_id_of(position: Position) -> str:
    return f"{position.row_no}-{position.index}"


def parse_dead_id(text: str, field: str) -> Position:
    """Returns the position in the dead log that the id names. Raises ``Rejected`` for a text that is no id."""
    row, dash, index = text.partition("-")
    if not (dash and row.isascii() and index.isascii() and row.isdigit() and index.isdigit() and len(text) <= 24):
        raise Rejected("field-invalid", f"{field} must be a dead_id such as 12-0, got {text[:40]!r}", field=field)
    return Position(int(row), int(index))


class DeadFilter(NamedTuple):
    """Chooses dead letters by reason and detail, each compared exactly. None takes any."""

    reason: str | None = None
    detail: str | None = None

    def takes(self, message: Message) -> bool:
        return self.reason in (None, message.reason) and self.detail in (None, message.detail)


ANY_LETTER = DeadFilter()


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
        for row_no, row, current in self._rows(start.row_no if start else 0):
            for index, message in self._readable(row_no, row, current):
                if start is None or Position(row_no, index) > start:
                    yield message

    def newest(self, before: Position | None = None) -> Iterator[Message]:
        """Yields the dead letters that come before ``before`` in the log (None: all), the newest first. Treats rows
        that cannot be read as ``alive`` does, and reads once more, for the end of the log."""
        trimmed = self.log.trimmed()
        end = self.log.totals().rows
        if before is not None:
            end = min(end, before.row_no + 1)  # a caller may send any number
        while end > trimmed:
            start = max(trimmed, end - _PAGE)
            for row_no, row, current in reversed(list(self._rows(start, end=end))):
                for index, message in reversed(self._readable(row_no, row, current)):
                    if before is None or Position(row_no, index) < before:
                        yield message
            end = start

    def get(self, dead_id: str) -> Message:
        """Returns one dead letter. Raises ``NotFound`` when it was redriven or dropped, has expired, or never existed;
        ``Rejected`` when ``dead_id`` is no id."""
        dead = parse_dead_id(dead_id, "dead_id")
        row = self.log.get(dead.row_no)
        if row is not None and row.expires_ms > self.context.clock.now_ms():
            for index, message in self._alive(dead.row_no, row, self._state_record(dead.row_no).load()):
                if index == dead.index:
                    return answerable(message)
        raise NotFound(
            "dead-letter-unknown", f"there is no dead letter {dead_id!r}: it was redriven, dropped, or expired"
        )

    def count(self) -> int:
        rows = self._rows(0, page=_LARGE_PAGE)
        return sum(row.count - len(current.value.done if current else ()) for _, row, current in rows)

    def count_up_to(self, most_rows: int) -> tuple[int, bool]:
        """Returns the number of dead letters in the first ``most_rows`` rows, and whether these are all. One read where
        no message ever became a dead letter; otherwise two reads more for each 500 rows."""
        rows = self.log.totals().rows
        if not rows:
            return 0, True
        end = self.log.trimmed() + most_rows
        letters = self._rows(0, end=end, page=min(most_rows, _LARGE_PAGE))
        return sum(row.count - len(current.value.done if current else ()) for _, row, current in letters), rows <= end

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
        faulty: Corrupt | None = None
        for row_no, state in self._states():
            try:
                self._finish(row_no, state)
            except Corrupt as error:
                faulty = error
        mark = self.log.clear()
        below: int | None = None
        for row_no, row, current in self._rows(0, expired=True, page=_FIRST_PAGE):
            done = current is not None and len(current.value.done) == row.count and not current.value.transfers
            now_ms = self.context.clock.now_ms()
            # A filler that is removed no longer keeps out the slow writer of its row: it stays for a day.
            old_filler = row.filler and now_ms - row.at_ms >= _FILLER_KEPT_MS
            if not (old_filler or done or row.expires_ms <= now_ms):
                break
            below = row_no + 1
        if below is not None:
            below = removable_below(self.context, MESSAGES, self.log.name, below)
            self.log.trim(below, mark)
            self.context.store.trim(Table.PULL, self._partition, below=sort_of(below))
        if faulty is not None:
            raise faulty

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

    def _rows(
        self, start: int, *, end: int | None = None, expired: bool = False, page: int = _PAGE
    ) -> Iterator[tuple[int, Row, Versioned[DeadState] | None]]:
        """Yields the rows from ``start`` up to ``end`` that contain live messages, each with its number and state; with
        ``expired`` also fillers and expired rows."""
        start = max(start, self.log.trimmed())
        while True:
            rows = self.log.read(start, page, consistent=True)
            if not rows:
                return
            states = dict(
                self.context.store.scan(Table.PULL, self._partition, start=sort_of(rows[0][0]), limit=len(rows))
            )
            # Below the trim mark a missing state says nothing: rows are trimmed before their states.
            trimmed = self.log.trimmed()
            for row_no, row in rows:
                if end is not None and row_no >= end:
                    return
                if row_no < trimmed:
                    continue
                live = not row.filler and row.expires_ms > self.context.clock.now_ms()
                if live or expired:
                    yield row_no, row, self._state_record(row_no).opened(states.get(sort_of(row_no)))
            start, page = rows[-1][0] + 1, max(page, _PAGE)
            if end is not None and start >= end:
                return

    def _chosen_rows(
        self, choose: Callable[[Position, int], bool], *, end: int | None = None
    ) -> Iterator[tuple[int, Row]]:
        """Yields the live rows with a chosen message, each with its number. Reads the named rows alone where positions
        are named."""
        if isinstance(choose, NamedLetters):
            numbers = sorted({position.row_no for position in choose.positions})
            rows = chain.from_iterable(
                self._rows(row_no, end=row_no + 1, page=1) for row_no in numbers if end is None or row_no < end
            )
        else:
            rows = chain(self._rows(0, end=end))
        # Without a look at the states, so that a letter which is done already counts where it has to.
        return ((row_no, row) for row_no, row, _ in rows if self._chosen(row_no, row, frozenset(), choose))

    def _readable(self, row_no: int, row: Row, current: Versioned[DeadState] | None) -> list[tuple[int, Message]]:
        """Returns what ``_alive`` returns; nothing of a row that cannot be read, which it reports."""
        try:
            return self._alive(row_no, row, current)
        except Corrupt as error:
            # The row stays in the log until it is repaired or dropped.
            unreadable(self.context, self.log.name, row_no, row.count, error)
            return []

    def _alive(self, row_no: int, row: Row, current: Versioned[DeadState] | None) -> list[tuple[int, Message]]:
        done = current.value.done if current else frozenset()
        if len(done) == row.count:
            return []
        messages = messages_of(row, self.context.blobs)
        for index, message in enumerate(messages):
            message.dead_id = dead_id_of(Position(row_no, index))
        return [(index, message) for index, message in enumerate(messages) if index not in done]

    def _chosen(
        self, row_no: int, row: Row, done: frozenset[int], choose: Callable[[Position, int], bool]
    ) -> list[int]:
        positions = [Position(row_no, index) for index in range(row.count) if index not in done]
        return [position.index for position in positions if choose(position, row.at_ms)]

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
            state = current.value if current else DeadState(expires_ms=row.expires_ms)
            indexes = self._chosen(row_no, row, state.done, choose)
            # A message that this call offered and that is done was redriven, even if another process finished it.
            if not indexes:
                return len(offered & state.done)
            self._alive(row_no, row, current)  # raises Corrupt for a row that cannot be read: it must not be redriven
            offered |= frozenset(indexes)
            transfer = reserve(
                self.context,
                kind=REDRIVE,
                log=self.group.retry_log,
                picks=tuple((row_no, index) for index in indexes),
                expires_ms=self.context.clock.now_ms() + self.subject.retention_ms,
            )
            value = msgspec.structs.replace(state, done=state.done | frozenset(indexes), transfers=(transfer,))
            outcome = record.swap(current.token if current else None, value, expires_ms=value.garbage_ms)
            if outcome.stored and outcome.current is not None:
                self._finish(row_no, outcome.current)
                return len(offered & value.done)
            release(self.context, (transfer,))
            current = outcome.current

    def _drop_row(self, row_no: int, row: Row, choose: Callable[[Position, int], bool]) -> int:
        """Drops the chosen messages of one row, and returns their number, as ``_redrive_row`` does."""
        record = self._state_record(row_no)
        current = record.load()
        offered: frozenset[int] = frozenset()
        while True:
            state = current.value if current else DeadState(expires_ms=row.expires_ms)
            indexes = self._chosen(row_no, row, state.done, choose)
            if not indexes:
                return len(offered & state.done)
            offered |= frozenset(indexes)
            value = msgspec.structs.replace(state, done=state.done | frozenset(indexes))
            outcome = record.swap(current.token if current else None, value, expires_ms=value.garbage_ms)
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
        row = row_builder(self.context, self.log, None, strict=True)
        done = carry_out(self.context, self._state_record(row_no), current, row)
        return done or current
