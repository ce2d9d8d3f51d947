"""Sequences that no message has: a rebuild goes on this far behind all that the archive names, because nobody knows
what was given out since.

    table      meta
    partition  skipped
    sort       {log}
    value      Skipped, msgpack array

Rows have no gap. So a reader of the counters sees that sequences were skipped: there are more of them than the rows
between could hold. Only then is the record looked for.
"""

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import CasRecord
from hourwheel.ports import Key, Table


class Skipped(msgspec.Struct, array_like=True, frozen=True):
    """The sequences ``[first, following)`` of a log."""

    first: int
    following: int


def skipped_record(context: Context, log: str) -> CasRecord[Skipped]:
    return CasRecord(context.store, context.ids, Key(Table.META, "skipped", log), Skipped)


def skip(context: Context, log: str, first: int, following: int) -> None:
    """Notes that these sequences are skipped. Idempotent."""
    record = skipped_record(context, log)
    held, value = record.load(), Skipped(first, following)
    if held is None or held.value != value:
        record.swap(None if held is None else held.token, value)


def messages_between(context: Context, log: str, start: int, end: int) -> int:
    """How many of the sequences from ``start`` up to ``end`` were not skipped."""
    held = skipped_record(context, log).load(consistent=False)
    if held is None:
        return max(0, end - start)
    missing = min(end, held.value.following) - max(start, held.value.first)
    return max(0, end - start - max(0, missing))
