"""Finds the pull rows that cover a message. The number of reads is bounded, whatever the length of the pull log.

Row ``p + 1`` of a pull log starts where row ``p`` ends, so the ends only rise, except where the group was moved back by
a seek. A short log is read as a whole, which finds every claim. In a long one a bisection finds one claim; it
is the only one unless the group was ever moved.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import SOUGHT, Position, PullRow, Tail

_PAGE = 200  # pull rows have about 150 bytes: 30 KB
_READ_WHOLE = 1_000  # rows: five pages, some 150 KB
_BEGIN = Position(0)


class Claims(NamedTuple):
    """The pull rows that cover a message, oldest first, and the group's ``tail``. ``complete``: no other row can.
    ``forgotten``: rows that may have covered the message were removed, days after they were settled."""

    rows: list[tuple[int, PullRow]]
    tail: Tail
    complete: bool
    forgotten: bool


def claims_of(log: PullLog, position: Position) -> Claims:
    """Returns the rows of the pull log that cover the message at this position of the source log."""
    tail = log.tail()
    first = log.rows(0, 1)
    if not first:
        forgotten = tail.row_no > 0 and position < tail.position
        # After a seek back, a removed row may have covered a message that waits again.
        return Claims([], tail, complete=tail.row_no == 0 if log.group.seeks else not forgotten, forgotten=forgotten)
    return _claims_from(log, position, tail, first[0][0])


def _claims_from(log: PullLog, position: Position, tail: Tail, low: int) -> Claims:
    """Returns what ``claims_of`` returns, where ``low`` is the first row that is left."""
    short = tail.row_no - low <= _READ_WHOLE
    rows = list(log.rows_from(low, _PAGE)) if short else _by_halving(log, low, tail.row_no, position)
    removed = list(_removed(rows, tail))
    covering = [(row_no, row) for row_no, row in rows if _covers(row, position)]
    forgotten = any(start <= position < end for start, end in removed)
    # Ends only rise in a group that was never moved: one row at most covers the position.
    complete = short and not removed if log.group.seeks else bool(covering) or not forgotten
    return Claims(covering, tail, complete, forgotten and not covering and position < tail.position)


def latest_rows(log: PullLog) -> tuple[list[PullRow], bool]:
    """Returns the last 1,000 rows of the pull log, oldest first, and whether they are all that ever were."""
    start = max(0, log.tail().row_no - _READ_WHOLE)
    rows = list(log.rows_from(start, _PAGE))
    return [row for _, row in rows], start == 0 and (not rows or rows[0][0] == 0)


def _by_halving(log: PullLog, low: int, high: int, position: Position) -> list[tuple[int, PullRow]]:
    """Returns the row at which the ends pass the position, of the rows from ``low`` up to ``high``, and the row before
    it, if that is still kept."""
    while low < high:
        middle = (low + high) // 2
        # A store may have removed the row in the middle, and then any row behind it stands for it.
        rows = log.rows(middle, 1)
        if not rows or rows[0][1].value.end > position:
            high = middle
        else:
            low = rows[0][0] + 1
    return [(row_no, row.value) for row_no, row in log.rows(max(0, low - 1), 2)]


def _removed(rows: list[tuple[int, PullRow]], tail: Tail) -> Iterator[tuple[Position, Position]]:
    """Yields the start and the end of each range of removed rows: before these rows, between them, and between the last
    one and the tail. A store removes settled rows in any order."""
    kept = [(row_no, row.first, row.end) for row_no, row in rows]
    bounds = [(-1, _BEGIN, _BEGIN), *kept, (tail.row_no, tail.position, tail.position)]
    for (before_no, _, end), (row_no, start, _) in pairwise(bounds):
        if before_no + 1 < row_no:
            yield end, start


def _covers(row: PullRow, position: Position) -> bool:
    return row.outcome != SOUGHT and row.first <= position < row.end
