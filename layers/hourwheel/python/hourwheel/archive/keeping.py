"""Rows that the store may remove by itself, by their time, are given more of it while the archive is far behind."""

from hourwheel.archive.kinds import MESSAGES
from hourwheel.archive.marks import archived_ms, mark_row
from hourwheel.context import Context
from hourwheel.logs.rows import sort_of, table_of
from hourwheel.ports import Key, Record, Table, items_of

_BEHIND_MS = 6 * 3_600_000
_SOON_MS = 24 * 3_600_000
"""Twice as long as it takes until somebody looks again."""

_LONGER_MS = 48 * 3_600_000
_MOST = 20_000


def keep(context: Context, kind: str, log: str) -> int:
    """Renews what is not archived and may be removed within a day; how many rows. Rows stay the same but for that."""
    now_ms = context.clock.now_ms()
    if now_ms - archived_ms(context) < _BEHIND_MS:
        return 0
    table = table_of(log) if kind == MESSAGES else Table.PULL
    kept = 0
    for sort, record in items_of(context.store, table, log, start=sort_of(mark_row(context, kind, log))):
        if record.expires_ms is None or record.expires_ms > now_ms + _SOON_MS:
            continue
        longer = Record(record.value, record.token, now_ms + _LONGER_MS)
        context.store.put(Key(table, log, sort), longer, expect=record.token)
        kept += 1
        if kept == _MOST:
            break
    return kept
