"""Reads the rows of a log page by page, those of a time too."""

from collections.abc import Iterator

from hourwheel.errors import Corrupt
from hourwheel.groups.progress import row_at_time
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row

PAGE = 32  # rows of a read; a search begins this many rows before its time, because the clocks of writers differ
SKEW_MS = 5_000  # clocks of writers differ by less; the order of rows follows no single clock
_NEVER_MS = 2**63


def first_at(log: Log, since_ms: int) -> int:
    """Returns a row before which no row is of this time or later, whatever the clocks of the writers were."""
    return row_at_time(log, since_ms)[0] - PAGE


def rows_of_time(log: Log, first: int, since_ms: int, until_ms: int | None) -> Iterator[tuple[int, Row]]:
    """Yields the readable rows with messages from ``first`` on that were stored from ``since_ms`` until before
    ``until_ms`` (None: now)."""
    end_ms = _NEVER_MS if until_ms is None else until_ms
    for row_no, row in readable_rows(log, max(first, first_at(log, since_ms))):
        if row.at_ms >= end_ms:
            return
        if row.at_ms >= since_ms:
            yield row_no, row


def readable_rows(log: Log, row_no: int, *, end: int | None = None) -> Iterator[tuple[int, Row]]:
    """Yields the rows with messages from ``row_no`` on, without those that cannot be read. Reads page by page, and none
    from the row ``end`` on."""
    while end is None or row_no < end:
        page = PAGE if end is None else min(PAGE, end - row_no)
        rows = log.stored_page(row_no, page)
        yield from ((number, row) for number, row in rows if not (isinstance(row, Corrupt) or row.filler))
        if len(rows) < page:
            return
        row_no = rows[-1][0] + 1
