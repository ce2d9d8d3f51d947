"""Builds the range of messages that a claim covers, row by row. Reads and writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hourwheel.logs.cas import Versioned
from hourwheel.logs.index_sets import IndexSet, pack_indexes
from hourwheel.logs.rows import Row
from hourwheel.pull_log.claiming.claims import Claim, ClaimRequest
from hourwheel.pull_log.claiming.selection import MOST_BODIES, RowSelection, Unmatched
from hourwheel.pull_log.records import Position, PullRow

EMPTY_ROWS = 2_000
"""A claim covers at most this many rows without messages, so that its receipt stays below the 16 KB that a settlement
accepts. Beside 1,000 messages, each in a row of its own, it takes 12 KB. Where more come first, a row of the pull log
passes over them."""

EMPTY_BYTES = 8 << 20
"""A claim ends once it has read about this much of rows without messages: a server reads them while others wait."""


@dataclass
class ClaimRange:
    """The range that a claim will cover, built row by row. Without messages only its end moves."""

    first: Position
    end: Position
    end_seq: int
    counts: list[int] = field(default_factory=list)
    picks: list[Sequence[int] | None] = field(default_factory=list)
    rows: list[tuple[int, Row]] = field(default_factory=list)
    total: int = 0
    size: int = 0
    empty: int = 0
    unmatched: Unmatched = field(default_factory=Unmatched)
    limited: bool = False
    suspect: bool = False
    """Whether the claim takes a suspect, alone."""
    suspects_wait: bool = False
    """Whether the range ends before a suspect."""
    ahead: list[int] = field(default_factory=list)
    """The numbers of messages of the rows behind these, up to the end, which are claimed ahead."""

    def begin(self, first: Position) -> None:
        """Starts the range at its first messages; the empty rows before them are passed over."""
        self.first, self.empty = first, 0

    def pass_row(self, row_no: int, row: Row, *, read: bool) -> None:
        """Covers a row without messages for the claim. ``read``: its batch had to be read to know that."""
        self.empty += 1
        # A pull row counts each row behind its first messages; the rows before them only move its start on.
        if self.total:
            self.counts.append(0)
            self.picks.append(None)
            self.rows.append((row_no, row))
            self.unmatched.size += len(row.block)
            self.unmatched.bodies += read
        else:
            self.unmatched.add(row, read=read)
        self.end = Position(row_no + 1)
        if row.count:
            self.end_seq = row.first_seq + row.count

    def add(self, row_no: int, row: Row, skip: int, count: int, offer: RowSelection) -> None:
        """Covers a row, and takes the first ``count`` messages that it offers."""
        self.size += offer.answer_bytes
        self.total += count
        self.counts.append(count)
        self.picks.append(offer.picked(skip, count))
        self.rows.append((row_no, row))
        rest = count < offer.usable
        self.end = Position(row_no, offer.end(skip, count)) if rest else Position(row_no + 1)
        self.end_seq = row.first_seq + (self.end.index if rest else row.count)

    def cover(self, row_no: int, row: Row, skip: int, offer: RowSelection, request: ClaimRequest) -> bool:
        """Covers the row with as many of the messages that it offers as the request has room for, and returns whether
        the range may go on behind it. Leaves out a row whose messages have to wait."""
        # A pull row covers rows without a gap: its counts have no row numbers of their own.
        if self.total and row_no != self.rows[-1][0] + 1:
            self.limited = True  # rows were trimmed between two pages: the next claim takes what follows
            return False
        if not offer.usable:
            self.pass_row(row_no, row, read=offer.read)
            self.limited = self.long
            return not self.limited
        if not self.has_room_for(offer, request):
            return False
        if not self.total:
            self.begin(Position(row_no, skip))
        self.add(row_no, row, skip, min(offer.fitting, request.max_messages - self.total), offer)
        self.suspect = offer.suspect
        full = self.total >= request.max_messages or offer.fitting < offer.usable
        self.limited = full or self.suspect or self.long
        return not self.limited

    def has_room_for(self, offer: RowSelection, request: ClaimRequest) -> bool:
        """Returns whether the range takes messages of this offer, and notes what keeps it from them."""
        if offer.suspect and (self.total or not request.takes_suspect):
            self.suspects_wait, self.limited = True, self.total > 0
            return False
        # The limit does not count for the first messages: a row that is larger would never be claimed.
        bounded = self.total or request.strict_bytes
        if bounded and self.size + offer.answer_bytes > request.max_bytes:
            self.limited = True
            return False
        return True

    def claim(self, row_no: int, stored: Versioned[PullRow]) -> Claim | None:
        """Returns the claim of this range, which was stored as this pull row; None without messages."""
        if not self.total:
            return None
        log_end = None if self.limited or self.end.index else self.end.row_no
        return Claim(row_no, stored, tuple(self.rows), self.size, log_end=log_end, suspect=self.suspect)

    @property
    def long(self) -> bool:
        """Whether the range covers enough rows without messages, or took enough reads, to end here."""
        unmatched = self.unmatched
        return self.empty >= EMPTY_ROWS or unmatched.size >= EMPTY_BYTES or unmatched.bodies >= MOST_BODIES

    @property
    def packed_picks(self) -> tuple[IndexSet | None, ...]:
        """Returns the picks as a pull row stores them."""
        if all(picked is None for picked in self.picks):
            return ()
        return tuple([None if picked is None else pack_indexes(picked) for picked in self.picks])
