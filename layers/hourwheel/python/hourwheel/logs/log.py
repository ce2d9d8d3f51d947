"""Implements the log: a counter and write-once rows.

The log follows CORFU (Balakrishnan et al., NSDI 2012): a sequencer gives out row numbers, each row is written once, and
readers fill the holes that dead writers leave. Safety rests on the write-once rows alone; the counter only keeps
writers out of each other's way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hourwheel.errors import Corrupt, Filled
from hourwheel.logs.rows import Row, filler, from_record, row_key, sort_of, table_of, to_record
from hourwheel.model.log_names import records_of
from hourwheel.ports.machine import Clock, Ids, Meter
from hourwheel.ports.storage import Counter, Key, Record, Store, Table, items_of

GRACE_MS = 1_000
"""A reader fills a row that is missing for longer than this. The time decides when a row is filled, never who wins: a
live writer that is slower than this loses its row and takes another one."""

GARBAGE_MS = 86_400_000
"""Rows outlive their retention by a day, so that the sweeper has moved the trim mark past them before they vanish."""

FILLER_MS = 20 * 60_000
"""Fillers stay at least this long, even if the rows around them expire earlier: longer than an idempotency key is
remembered. So if a row that a key names has been removed below the trim mark, it held the batch of the key."""

_FILLED_AT_ONCE = 100
"""If all rows of a log were removed before its trim mark moved, very many are missing: they must not hold up a
sweep."""

_FIRST_PAGE = 16  # rows; later pages follow from the size of the rows
_LARGEST_PAGE = 1_000  # 100 KB of row headers, where the rows are small
_PAGE_BYTES = 2 << 20  # bounds the memory of a reader, whatever the size of the rows
_ROW_BYTES = 100  # about the size of a row without its block and meta

_trim_encoder = msgspec.msgpack.Encoder()
_trim_decoder = msgspec.msgpack.Decoder(int)


class TrimMark(NamedTuple):
    """The row of a log below which all rows have expired, and the token of the record (None: there is none)."""

    row_no: int
    token: bytes | None


class Reservation(NamedTuple):
    """A row that a log gave out: the name of the log, the row's number, and the sequence of its first message."""

    log: str
    row_no: int
    first_seq: int


@dataclass(frozen=True)
class Log:
    """A log in a store. An instance is cheap to make and has no state."""

    store: Store
    clock: Clock
    ids: Ids
    meter: Meter
    name: str

    def append(self, row: Row, reservation: Reservation | None = None) -> Reservation:
        """Stores a batch in a row of its own (``row.first_seq`` is set here), at the reservation if there is one.
        Returns the reservation that was used. Two writes, unless a reader has filled the row. Raises ``Sealed``."""
        token = self.ids.token()
        while True:
            # The token stays for all tries: whichever row holds it in the end is the only one with this batch.
            used = reservation or self.reserve(row.count)
            try:
                self.put(used, row, token)
            except Filled:
                reservation = None
                continue
            return used

    def reserve(self, count: int) -> Reservation:
        """Reserves the next row and ``count`` sequences. Raises ``Sealed``. A reservation that is never used becomes a
        hole, which a reader fills."""
        # The sums include this addition. If its answer is lost, the caller adds again, and the first numbers stay a
        # hole.
        after = self.store.add(self.name, rows=1, numbers=count)
        return Reservation(self.name, after.rows - 1, after.numbers - count)

    def put(self, reservation: Reservation, row: Row, token: bytes) -> bool:
        """Stores the batch at its reservation and returns True. A repetition with the same token changes nothing and
        returns False. Raises ``Filled`` when the row has another content."""
        numbered = msgspec.structs.replace(row, first_seq=reservation.first_seq)
        record = to_record(numbered, token, GARBAGE_MS)
        # Only an empty row takes the batch: of a slow writer and a reader that fills the row one wins, for ever.
        refused = self.store.put(row_key(self.name, reservation.row_no), record, expect=None)
        if refused is None:
            return True
        # An earlier try with this token was stored, and its answer was lost.
        if refused.current is not None and refused.current.token == token:
            return False
        raise Filled

    def abandon(self, reservation: Reservation, row: Row) -> None:
        """Fills a reservation that will not be used, so that no reader has to wait for it."""
        self._fill(reservation.row_no, row)

    def fill(self, start: int, end: int) -> None:
        """Fills all missing rows of a schedule log from ``start`` up to ``end``, also at the end of the log. The log
        must have given out these rows at least ``GRACE_MS`` ago."""
        self._fill_missing(start, end, expires_ms=0)

    def fill_end(self, end: int, expires_ms: int) -> bool:
        """Fills missing rows between the last stored row and ``end``, at most 100 of them; returns whether none is
        missing any more. The log must have given out these rows at least a minute ago. One read if none is missing."""
        # A stale answer shows an earlier end, never a later one: then the strong read below decides.
        last = self._last(consistent=False)
        if last is not None and last[0] + 1 >= end:
            return True
        last = self._last(consistent=True)
        start = self.trimmed()
        if last is not None:
            # A filler that expires before the rows in front of it would leave a hole again.
            start, expires_ms = max(start, last[0] + 1), max(expires_ms, last[1].expires_ms)
        # A row that is stored between the read and the fill refuses the filler: nothing is overwritten.
        self._fill_missing(start, min(end, start + _FILLED_AT_ONCE), expires_ms=expires_ms)
        return end <= start + _FILLED_AT_ONCE

    def read(self, start: int, limit: int, *, consistent: bool = False) -> list[tuple[int, Row]]:
        """Returns up to ``limit`` rows from ``start`` on, fillers included, in order and without a gap. Returns fewer
        when there are no more, or when a row is missing whose writer may still be alive. Begins at the trim mark if
        ``start`` is below it."""
        present = self._scan(start, limit, consistent=consistent)
        if not present:
            return []
        if present[-1][0] - start == len(present) - 1:
            return present  # none is missing, as nearly always
        # Rows below the trim mark may be removed, and are no holes then: readers skip them, and fill nothing there.
        if present[0][0] > start:
            start = max(start, min(self.trimmed(), present[0][0]))
        rows: list[tuple[int, Row]] = []
        following = start
        for row_no, row in present:
            if row_no > following:
                if not consistent:
                    # An eventually consistent read may miss a stored row: only a strong read finds holes.
                    return self.read(start, limit, consistent=True)
                # The writer may still be alive. Rows behind the hole wait, or they would be read before it.
                if not self._overdue(row):
                    break
                # A hole may be long where rows have expired: at most ``limit`` rows of it are filled at a time.
                holes = range(following, min(row_no, start + limit))
                rows += [(hole, self._fill(hole, row)) for hole in holes]
                self.meter.record("HolesFilled", len(holes))
            if len(rows) == limit:
                break
            rows.append((row_no, row))
            following = row_no + 1
        return rows

    def rows(self, start: int) -> Iterator[tuple[int, Row]]:
        """Yields the rows from ``start`` on as ``read`` returns them, strongly consistent. Reads about 2 MB at a
        time."""
        page = _FIRST_PAGE
        while True:
            rows = self.read(start, page, consistent=True)
            yield from rows
            if len(rows) < page:
                return
            start = rows[-1][0] + 1
            size = sum(len(row.block) + len(row.meta) + _ROW_BYTES for _, row in rows)
            page = max(_FIRST_PAGE, min(_LARGEST_PAGE, page * _PAGE_BYTES // size))

    def stored(self, start: int) -> Iterator[tuple[int, Row]]:
        """Yields the stored rows from ``start`` on, strongly consistent, and skips holes without filling them."""
        items = items_of(self.store, table_of(self.name), self.name, start=sort_of(start), page=_FIRST_PAGE)
        return ((int(sort), from_record(record)) for sort, record in items)

    def stored_page(self, start: int, limit: int) -> list[tuple[int, Row | Corrupt]]:
        """Returns up to ``limit`` stored rows from ``start`` on, strongly consistent, and skips holes without filling
        them. For a row that cannot be decoded it returns the error."""
        items = self.store.scan(table_of(self.name), self.name, start=sort_of(start), limit=limit)
        return [(int(sort), _decoded(record)) for sort, record in items]

    def get(self, row_no: int) -> Row | None:
        record = self.store.get(row_key(self.name, row_no))
        return None if record is None else from_record(record)

    def get_many(self, rows: Sequence[int], *, consistent: bool = False) -> dict[int, Row]:
        """Returns the stored rows among up to ``GET_MANY`` row numbers. Without ``consistent`` it may miss some."""
        sorts = [sort_of(row_no) for row_no in rows]
        present = self.store.get_many(table_of(self.name), self.name, sorts, consistent=consistent)
        return {int(sort): from_record(record) for sort, record in present.items()}

    def first(self) -> tuple[int, Row] | None:
        """Returns the lowest row at or above the trim mark that holds a batch or a filler; None if there is none."""
        present = self._scan(self.trimmed(), 1, consistent=True)
        return present[0] if present else None

    def newest(self, limit: int) -> list[tuple[int, Row]]:
        """Returns up to ``limit`` stored rows, the last one first, and skips holes. Eventually consistent; one read."""
        items = self.store.scan(table_of(self.name), self.name, limit=limit, reverse=True, consistent=False)
        return [(int(sort), from_record(record)) for sort, record in items]

    def totals(self) -> Counter:
        """Returns how many rows and sequences the log gave out, and whether it is sealed. Strongly consistent."""
        return self.store.counter(self.name)

    def begin(self, first_seq: int) -> Counter:
        """Lets a log that was never used give out ``first_seq`` as its first sequence; returns its totals. Idempotent:
        a log that was used stays as it is."""
        return self.store.begin(self.name, numbers=first_seq)

    def seal(self) -> Counter:
        """Ends the log: it gives out no more rows. Rows that were given out before are still written or filled."""
        return self.store.seal(self.name)

    def trimmed(self) -> int:
        """Returns the trim mark. All rows below the mark have expired, and no reader needs them."""
        return self._mark().row_no

    def trim(self, below: int, mark: TrimMark | None = None) -> bool:
        """Moves the trim mark up, then allows the removal of the rows below the mark. ``mark``: the mark as the caller
        has read it, for one read less. Returns False if another sweeper has moved the mark since."""
        mark = mark or self._mark()
        if mark.row_no < below:
            moved = Record(_trim_encoder.encode(below), self.ids.token())
            # Refused: another sweeper moved the mark. The next sweep removes the rows.
            if self.store.put(self._trim_key, moved, expect=mark.token) is not None:
                return False
        self.store.trim(table_of(self.name), self.name, below=sort_of(below))
        return True

    def oldest(self) -> Row | None:
        """Returns the first row that is still stored, perhaps out of date; None for an empty log. Half a read unit for
        4 KB."""
        rows = self._scan(0, 1, consistent=False)
        return rows[0][1] if rows else None

    def clear(self) -> TrimMark:
        """Allows the removal of rows that remain below the trim mark because a sweeper stopped after it had moved the
        mark. Returns the mark."""
        oldest, mark = self._scan(0, 1, consistent=False), self._mark()
        if oldest and oldest[0][0] < mark.row_no:
            self.store.trim(table_of(self.name), self.name, below=sort_of(mark.row_no))
        return mark

    def _mark(self) -> TrimMark:
        record = self.store.get(self._trim_key)
        return TrimMark(0, None) if record is None else TrimMark(_trim_decoder.decode(record.value), record.token)

    @property
    def _trim_key(self) -> Key:
        return Key(Table.META, records_of(self.name), "trim")

    def _last(self, *, consistent: bool) -> tuple[int, Row] | None:
        present = self.store.scan(table_of(self.name), self.name, limit=1, reverse=True, consistent=consistent)
        return (int(present[0][0]), from_record(present[0][1])) if present else None

    def _fill_missing(self, start: int, end: int, *, expires_ms: int) -> None:
        if start >= end:
            return
        present = {row_no for row_no, _ in self._scan(start, end - start, consistent=True)}
        now_ms = self.clock.now_ms()
        holes = [row_no for row_no in range(start, end) if row_no not in present]
        for hole in holes:
            self._fill(hole, filler(now_ms, expires_ms))
        if holes:
            self.meter.record("HolesFilled", len(holes))

    def _scan(self, start: int, limit: int, *, consistent: bool) -> list[tuple[int, Row]]:
        items = self.store.scan(
            table_of(self.name), self.name, start=sort_of(start), limit=limit, consistent=consistent
        )
        return [(int(sort), from_record(record)) for sort, record in items]

    def _overdue(self, follower: Row) -> bool:
        # abs: a writer whose clock is ahead must not hold up its readers for as long as the clock differs.
        return abs(self.clock.now_ms() - follower.at_ms) >= GRACE_MS

    def _fill(self, hole: int, follower: Row) -> Row:
        """Fills a hole and returns the content of the row then: a filler, or the batch whose writer was faster."""
        # A filler outlives each writer that may still try its row: a removed filler would let the batch in, behind
        # readers.
        expires_ms = max(follower.expires_ms, self.clock.now_ms() + FILLER_MS) if follower.expires_ms else 0
        spare = filler(follower.at_ms, expires_ms)
        refused = self.store.put(row_key(self.name, hole), to_record(spare, self.ids.token(), GARBAGE_MS), expect=None)
        return spare if refused is None or refused.current is None else from_record(refused.current)


def _decoded(record: Record) -> Row | Corrupt:
    try:
        return from_record(record)
    except Corrupt as error:
        return error
