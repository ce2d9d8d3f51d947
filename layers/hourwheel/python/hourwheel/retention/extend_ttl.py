"""Extends the expiry of rows while the archive is far behind, so that the store does not remove them unarchived."""

from hourwheel.context import Context
from hourwheel.logs.rows import sort_of, table_of
from hourwheel.ports import Key, Record, Table, items_of
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.watermarks import behind_seconds, watermark

_BEHIND_MS = 6 * 3_600_000
"""Rows live a day longer than their retention: an archive that is less behind than this needs no help."""

_SOON_MS = 24 * 3_600_000
"""Rows that expire within this time are extended. A quiet subject gets maintenance every 12 hours: one missed look does
no harm."""

_EXTENSION_MS = 48 * 3_600_000
_MOST = 20_000
"""One call extends at most this many rows, so that it does not hold up a sweep."""

_QUIET = 500
"""Rows expire about in their order: after this many rows that do not expire soon the search ends."""


def extend_ttl(context: Context, kind: str, log: str) -> int:
    """Extends the expiry of unarchived rows that may be removed within a day, if the archive is far behind. Returns how
    many rows it extended. Their content and token do not change."""
    now_ms = context.clock.now_ms()
    if behind_seconds(context) * 1_000 < _BEHIND_MS:
        return 0
    table = table_of(log) if kind == MESSAGES else Table.PULL
    count = quiet = 0
    for sort, record in items_of(context.store, table, log, start=sort_of(watermark(context, kind, log))):
        if record.expires_ms is None or record.expires_ms > now_ms + _SOON_MS:
            quiet += 1
            if quiet == _QUIET:
                break
            continue
        quiet = 0
        extended = Record(record.value, record.token, now_ms + _EXTENSION_MS)
        context.store.put(Key(table, log, sort), extended, expect=record.token)
        count += 1
        if count == _MOST:
            break
    return count
