"""Builds the range of messages that a claim of an ordered group covers, row by row. Reads and writes nothing."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

from hourwheel.logs.rows import Row
from hourwheel.pull_log.keyed_rows import KeyedMessages, KeyedRow
from hourwheel.pull_log.ordered_rows import DIGEST_BYTES, Parked
from hourwheel.pull_log.records import Position


class RowSpan(NamedTuple):
    """The messages of a row from ``start`` up to ``end`` that a claim has looked at: the indexes of those that it takes
    and parks. The range is ``kept`` up to this index, whatever follows."""

    start: int
    end: int
    kept: int
    takes: list[int]
    parks: list[int]


@dataclass
class KeyedRange:
    """The messages that the row covers, one after the other: ``takes`` are the numbers of those that the pull takes,
    and ``parks`` the others."""

    first: Position
    end: Position
    seq: int
    counts: list[int] = field(default_factory=list)
    digests: bytearray = field(default_factory=bytearray)
    takes: list[int] = field(default_factory=list)
    parts: list[KeyedMessages] = field(default_factory=list)
    """The messages that the pull takes, by their rows."""
    taken: list[bytes] = field(default_factory=list)
    """The digests of these messages."""
    parks: list[tuple[bytes, Parked]] = field(default_factory=list)
    last_row: int = -1
    empty: int = 0
    _kept: tuple[Position, Position, int, int, int, int, int, int] | None = None

    @property
    def size(self) -> int:
        """The number of messages so far."""
        return len(self.digests) // DIGEST_BYTES

    def keep(self, parks: int) -> None:
        """Decides that the row covers everything up to here, and parks the first ``parks`` messages."""
        last = self.counts[-1] if self.counts else 0
        self._kept = (self.first, self.end, self.seq, self.empty, len(self.digests), len(self.counts), last, parks)

    def cut(self, start: Position, seq: int) -> None:
        """Goes back to the state of the last ``keep``; without one the row is empty and ends at ``start``."""
        kept = self._kept or (start, start, seq, 0, 0, 0, 0, 0)
        self.first, self.end, self.seq, self.empty, digests, rows, last, parks = kept
        del self.digests[digests:], self.counts[rows:], self.parks[parks:]
        if self.counts:
            self.counts[-1] = last

    def begin_row(self, row_no: int, index: int) -> None:
        if not self.counts:
            self.first, self.empty = Position(row_no, index), 0
        self.counts.append(0)
        self.last_row = row_no

    def add(self, row_no: int, row: KeyedRow, run: RowSpan) -> None:
        """Covers messages of the row that was begun last."""
        number = self.size - run.start
        self.takes += [number + index for index in run.takes]
        if run.takes:
            self.taken += [row.digests[index] for index in run.takes]
            self.parts.append(KeyedMessages(row, run.takes, 1))
        kept = len(self.parks) + bisect_left(run.parks, run.kept)
        self.parks += row.parked(row_no, run.parks)
        if run.kept > run.start:
            self._extend(row_no, row, run.start, run.kept)
            self.keep(kept)
        if run.end > run.kept:
            self._extend(row_no, row, run.kept, run.end)

    def _extend(self, row_no: int, row: KeyedRow, start: int, end: int) -> None:
        self.counts[-1] += end - start
        self.digests += b"".join(row.digests[start:end])
        self.end = Position(row_no, end) if end < row.row.count else Position(row_no + 1)
        self.seq = row.row.first_seq + end

    def pass_row(self, row_no: int, row: Row) -> None:
        """Passes a row without messages to hand out."""
        if self.counts:
            self.counts.append(0)
            self.last_row = row_no
        self.empty += 1
        self.end = Position(row_no + 1)
        if not row.filler:
            self.seq = row.first_seq + row.count
