"""Reads the rows from which an ordered pull takes its messages: those that the process has decoded, from memory."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from hourwheel.errors import Corrupt
from hourwheel.logs.rows import Row
from hourwheel.ports.storage import GET_MANY
from hourwheel.pull_log.keyed_rows import KeyedRow, KeyedRowCache
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position

_ROWS_AT_ONCE = 64  # parked messages may lie in as many rows: a claim reads no more of them


@dataclass
class SourceRows:
    """The rows of the log of one claim. ``unreadable`` collects those that cannot be read."""

    log: PullLog
    decoded_rows: KeyedRowCache
    now_ms: int
    unreadable: dict[int, tuple[int, Corrupt]] = field(default_factory=dict)

    def read(self, row_nos: Iterable[int]) -> dict[int, KeyedRow | None]:
        """Returns the rows of parked messages, as many as a claim may read; None for one that is removed or cannot be
        read."""
        name = self.log.source.name
        cached = {row_no: self.decoded_rows.cached(name, row_no) for row_no in row_nos}
        rows_read: dict[int, KeyedRow | None] = {row_no: row for row_no, row in cached.items() if row is not None}
        unknown = [row_no for row_no, row in cached.items() if row is None][:_ROWS_AT_ONCE]
        return rows_read | self._read_unknown(unknown) if unknown else rows_read

    def _read_unknown(self, row_nos: Sequence[int]) -> dict[int, KeyedRow | None]:
        source = self.log.source
        rows = source.get_many(row_nos[:GET_MANY])
        stored = {row_no: rows.get(row_no) or source.get(row_no) for row_no in row_nos}
        return {
            row_no: None if row is None or row.filler else self.decoded(row_no, row) for row_no, row in stored.items()
        }

    def decoded(self, row_no: int, row: Row) -> KeyedRow | None:
        """Returns the row with its messages; None if it has expired or cannot be read."""
        if row.expires_ms <= self.now_ms:
            return None  # its segment may be absent already
        try:
            return self.decoded_rows.decoded(self.log.source.name, row_no, row, self.log.batches)
        except Corrupt as error:
            self.unreadable[row_no] = (row.count, error)
            return None

    def unread(self, start: Position, page: int) -> Iterator[tuple[int, Row]]:
        """Yields the rows from ``start`` on: those that were decoded before, then what the store has."""
        cached = self.decoded_rows.cached(self.log.source.name, start.row_no)
        while cached is not None and cached.row.expires_ms > self.now_ms:
            yield start.row_no, cached.row
            start = Position(start.row_no + 1)
            cached = self.decoded_rows.cached(self.log.source.name, start.row_no)
        yield from self.log.unread(start, self.now_ms, page)
