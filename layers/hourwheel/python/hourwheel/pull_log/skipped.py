"""Records skipped sequences: ranges of a log's sequences that no message has.

A rebuild skips sequences beyond the end of the archive, because the lost store may have given them out.

    table      meta
    partition  log/{log}
    sort       skipped
    value      Skipped, msgpack array

Row numbers have no gap. A reader of the counters therefore sees that sequences were skipped: there are more sequences
than the rows between could contain. Only then does it read this record.
"""

import msgspec

from hourwheel.context import Context
from hourwheel.logs.cas import CasRecord
from hourwheel.model.log_names import records_of
from hourwheel.ports.storage import Key, Table


class Skipped(msgspec.Struct, array_like=True, frozen=True):
    """The sequences ``[first, following)`` of a log, which no message has."""

    first: int
    following: int


def skipped_record(context: Context, log: str) -> CasRecord[Skipped]:
    return CasRecord(context.store, context.ids, Key(Table.META, records_of(log), "skipped"), Skipped)


def skip(context: Context, log: str, first: int, following: int) -> None:
    """Records that these sequences are skipped. Idempotent."""
    record = skipped_record(context, log)
    current, value = record.load(), Skipped(first, following)
    if current is None or current.value != value:
        record.swap(current, value)


def messages_between(context: Context, log: str, start: int, end: int) -> int:
    """Returns the number of sequences from ``start`` up to ``end`` that were not skipped."""
    current = skipped_record(context, log).load(consistent=False)
    if current is None:
        return max(0, end - start)
    missing = min(end, current.value.following) - max(start, current.value.first)
    return max(0, end - start - max(0, missing))
