"""Brings the state of an ordered group's log up to date: reads its open rows again, and follows the rows that were
stored since."""

from hourwheel.logs.rows import sort_of
from hourwheel.ordered.key_states import KeyStates
from hourwheel.ordered.snapshots import Snapshots
from hourwheel.ports.storage import GET_MANY, Record, Table
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.pull_log import PullLog
from hourwheel.pull_log.records import Position, PullRow

_PAGE = 100

_NEAR = 4
"""Open rows among the newest rows, four times as many as are open, are read by a scan: DynamoDB bills a scan by 4 KB,
and a single row as 4 KB."""


def last_saved(log: PullLog) -> KeyStates:
    """Returns the state at the last snapshot, with its open rows as they are now; the state of a new log without
    one."""
    snapshot = Snapshots.of(log).load()
    if snapshot is None:
        return KeyStates(0, Position(log.origin), 0)
    state = KeyStates.of(snapshot)
    records = _records(log, [seen.row_no for seen in snapshot.open])
    for seen in snapshot.open:
        if seen.row_no in records:
            record = records[seen.row_no]
            state.reopen(seen, opened(log, seen.row_no, record), record.token)
    return state


def catch_up(log: PullLog, state: KeyStates) -> None:
    """Reads the open rows again, and follows the rows that were stored since. One scan reads the rows near the
    end."""
    near = state.row_no - _NEAR * len(state.open)
    recent = [row_no for row_no in state.open if row_no >= near]
    _see(log, state, [row_no for row_no in state.open if row_no < near])
    last = max(state.row_no - 1, 0)
    start = min(recent, default=last)
    rows = _scan(log, start, state.row_no - start + _PAGE)
    if not rows or rows[-1][0] < last:
        log.beginning()  # the last row is missing: it was removed long ago, or the log was erased
    _see(log, state, recent, dict(rows))
    full = len(rows) == state.row_no - start + _PAGE
    _follow(log, state, [(row_no, record) for row_no, record in rows if row_no >= state.row_no], full=full)


def _follow(log: PullLog, state: KeyStates, rows: list[tuple[int, Record]], *, full: bool) -> None:
    """Follows these rows, and if the scan that found them was ``full``, those behind."""
    removed = False
    while True:
        for row_no, record in rows:
            if row_no > state.row_no and not removed:
                # A scan may miss a row that was stored while it ran; a second scan shows whether it was removed.
                removed = full = True
                break
            state.follow(row_no, opened(log, row_no, record), record.token)
        if not full:
            return
        rows = _scan(log, state.row_no, _PAGE)
        full = len(rows) == _PAGE


def _records(log: PullLog, row_nos: list[int]) -> dict[int, Record]:
    records: dict[int, Record] = {}
    for start in range(0, len(row_nos), GET_MANY):
        sorts = [sort_of(row_no) for row_no in row_nos[start : start + GET_MANY]]
        items = log.source.store.get_many(Table.PULL, log.partition, sorts)
        records |= {int(sort): record for sort, record in items.items()}
    return records


def _scan(log: PullLog, start: int, limit: int) -> list[tuple[int, Record]]:
    items = log.source.store.scan(Table.PULL, log.partition, start=sort_of(start), limit=limit)
    return [(int(sort), record) for sort, record in items]


def _see(log: PullLog, state: KeyStates, row_nos: list[int], records: dict[int, Record] | None = None) -> None:
    """Brings open rows of the state up to date. Decodes those that have changed since it saw them."""
    records = _records(log, row_nos) if records is None else records
    for row_no in row_nos:
        record = records.get(row_no)
        if record is None:
            state.close(row_no)  # removed days after it was closed
        elif record.token != state.open[row_no].token:
            state.see(row_no, opened(log, row_no, record), record.token)


def opened(log: PullLog, row_no: int, record: Record) -> OrderedRow:
    return ordered_row(log.opened(row_no, record).value)


def ordered_row(row: PullRow) -> OrderedRow:
    assert isinstance(row, OrderedRow)
    return row
