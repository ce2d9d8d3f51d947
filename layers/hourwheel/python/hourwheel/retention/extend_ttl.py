"""Rows that the store may remove by itself, by their time, are given more of it while the archive is far behind."""

from hourwheel.context import Context
from hourwheel.logs.rows import sort_of, table_of
from hourwheel.ports import Key, Record, Table, items_of
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.watermarks import behind_seconds, watermark

_BEHIND_MS = 6 * 3_600_000
_SOON_MS = 24 * 3_600_000
"""Twice as long as it takes until somebody looks again."""

_LONGER_MS = 48 * 3_600_000
_MOST = 20_000
_QUIET = 500
"""Rows expire about in their order: behind so many that do not expire soon none does."""


def extend_ttl(context: Context, kind: str, log: str) -> int:
    """Renews what is not archived and may be removed within a day; how many rows. Rows stay the same but for that."""
    now_ms = context.clock.now_ms()
    if behind_seconds(context) * 1_000 < _BEHIND_MS:
        return 0
    table = table_of(log) if kind == MESSAGES else Table.PULL
    kept = quiet = 0
    for sort, record in items_of(context.store, table, log, start=sort_of(watermark(context, kind, log))):
        if record.expires_ms is None or record.expires_ms > now_ms + _SOON_MS:
            quiet += 1
            if quiet == _QUIET:
                break
            continue
        quiet = 0
        longer = Record(record.value, record.token, now_ms + _LONGER_MS)
        context.store.put(Key(table, log, sort), longer, expect=record.token)
        kept += 1
        if kept == _MOST:
            break
    return kept
