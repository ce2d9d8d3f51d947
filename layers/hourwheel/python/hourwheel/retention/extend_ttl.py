"""Extends the expiry of rows while the archive is far behind, so that the store does not remove them unarchived.

A pass goes through all rows of a log that are not archived, from the watermark to the end of the log. A pass over a
long log takes several calls; a record says where the next call goes on, in whichever process:

    table      meta
    partition  ttl-pass
    sort       {kind} {log}
    value      TtlPass, msgpack array

Losing the record costs reads alone: the next pass begins at the watermark, and skips rows that were extended.
"""

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.rows import sort_of, table_of
from hourwheel.model.log_names import source_of
from hourwheel.ports.storage import Key, Record, Table, items_of
from hourwheel.retention.kinds import MESSAGES
from hourwheel.retention.watermarks import behind_seconds, watermark, watermark_name
from hourwheel.times import within

_BEHIND_MS = 6 * 3_600_000
"""Rows live a day longer than their retention: an archive that is less behind than this needs no help."""

_SOON_MS = 24 * 3_600_000
"""Rows that expire within this time are extended: longer than the longest pass and the pause after it together."""

# Twice the time before the end at which rows are extended: each row is written about once a day.
_EXTENSION_MS = 48 * 3_600_000
_PASS_MS = 12 * 3_600_000
"""A pass that takes longer is given up, as the rows in front need the next extension first."""

_MOST = 20_000
_LONGEST_MS = 5_000
"""One call reads at most this many rows and takes about this long, so that other logs get their turn."""


class TtlPass(msgspec.Struct, array_like=True, frozen=True):
    """A pass that began at ``began_ms`` and has scanned the rows below ``next_row``."""

    began_ms: int
    next_row: int


def extend_ttl(context: Context, kind: str, log: str, until_ms: int) -> bool:
    """Extends the expiry of unarchived rows that may be removed within a day, if the archive is far behind. Ends soon
    after ``until_ms``. Returns whether the pass through the log is complete; the next call continues a pass that is
    not. The content and token of a row do not change. Any number of processes may do this at the same time."""
    if behind_seconds(context) * 1_000 < _BEHIND_MS:
        return True
    now_ms = context.clock.now_ms()
    key = Key(Table.META, "ttl-pass", watermark_name(kind, log))
    stored = CasRecord(context.store, context.ids, key, TtlPass)
    loaded = stored.load()
    current = _continued(loaded, now_ms)
    until_ms = min(until_ms, now_ms + _LONGEST_MS)
    next_row = _extend(context, kind, log, max(current.next_row, watermark(context, kind, log)), now_ms, until_ms)
    # Refused writes: another process has gone on with the pass.
    if next_row is not None:
        after = TtlPass(current.began_ms, next_row)
        stored.swap(loaded, after, expires_ms=now_ms + _PASS_MS)
    elif loaded is not None:
        context.store.delete(key, expect=loaded.token)
    return next_row is None


def _continued(loaded: Versioned[TtlPass] | None, now_ms: int) -> TtlPass:
    """Returns the pass that goes on, or one that begins now."""
    if loaded is None or not within(loaded.value.began_ms, now_ms, _PASS_MS):
        return TtlPass(now_ms, 0)
    return loaded.value


def _extend(context: Context, kind: str, log: str, start: int, now_ms: int, until_ms: int) -> int | None:
    """Extends rows from ``start`` on, at least one. Returns the row at which the next call goes on, or None at the
    end of the log."""
    table = table_of(log) if kind == MESSAGES else Table.PULL
    store = context.store_of(log if kind == MESSAGES else source_of(log))
    rows = items_of(store, table, log, start=sort_of(start), consistent=False)
    for count, (sort, record) in enumerate(rows):
        if count == _MOST or (count and context.clock.now_ms() >= until_ms):
            return int(sort)
        if record.expires_ms is not None and record.expires_ms <= now_ms + _SOON_MS:
            extended = Record(record.value, record.token, now_ms + _EXTENSION_MS)
            store.put(Key(table, log, sort), extended, expect=record.token)
    return None
