"""Keeps orphans, the delayed messages whose subject was deleted before they were due, in the subject's own dead log for
30 days.

table      meta
partition  orphans
sort       {subject}~{generation}/dead      such a log
value      when the log was registered, ms, msgpack
"""

import re
from collections.abc import Iterator

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Corrupt, Rejected
from hourwheel.faults import unreadable
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message
from hourwheel.model.pages import DeadPage
from hourwheel.ports.storage import Key, Record, Table, items_of
from hourwheel.wire.answer_size import first_page

_CURSOR = re.compile(r"(\d{1,12})-(\d{1,16})-(\d{1,4})", re.ASCII)
_encoder = msgspec.msgpack.Encoder()


def register_orphan(context: Context, log: str) -> None:
    """Registers the log, before the first orphan goes there. Idempotent."""
    key = Key(Table.META, "orphans", log)
    if context.store.get(key) is None:
        record = Record(_encoder.encode(context.clock.now_ms()), context.ids.token())
        context.store.put(key, record, expect=None)  # refused: another wheel registered the log


def orphan_logs(context: Context) -> Iterator[str]:
    """Yields the names of the registered logs of orphans."""
    return (name for name, _ in items_of(context.store, Table.META, "orphans"))


def unregister_orphan(context: Context, log: Log) -> None:
    """Removes a log from the registered ones, if all its rows have expired and are trimmed."""
    key = Key(Table.META, "orphans", log.name)
    record = context.store.get(key)
    if record is not None and log.first() is None and log.trimmed() >= log.totals().rows > 0:
        context.store.delete(key, expect=record.token)


def orphans(context: Context, subject: str, *, after: str | None, limit: int) -> DeadPage:
    """Returns up to ``limit`` orphans of a deleted subject after the cursor ``after``, the oldest first; fewer where
    more would not fit into an answer. Raises ``Rejected`` for a text that is no cursor."""
    return first_page(_after(context, subject, _parse(after) if after else (0, 0, -1)), limit)


def _after(context: Context, subject: str, start: tuple[int, int, int]) -> Iterator[Message]:
    """Yields the orphans behind this generation, row and index, with their cursors."""
    for generation, log in _generations(context, subject):
        if generation < start[0]:
            continue
        first = start[1] if generation == start[0] else 0
        for row_no, row in _rows(context, log, first):
            for index, message in enumerate(_messages(context, log, row_no, row)):
                if (generation, row_no, index) <= start:
                    continue
                message.dead_id = f"{generation}-{row_no}-{index}"
                yield message


def _generations(context: Context, subject: str) -> list[tuple[int, Log]]:
    """Returns the generations of the subject and their logs of orphans, the oldest first."""
    logs = []
    for name in orphan_logs(context):
        owner, _, generation = name.rpartition("/")[0].rpartition("~")
        if owner == subject:
            logs.append((int(generation), context.log(name)))
    return sorted(logs, key=lambda entry: entry[0])


def _rows(context: Context, log: Log, start: int) -> Iterator[tuple[int, Row]]:
    now_ms = context.clock.now_ms()
    return ((row_no, row) for row_no, row in log.rows(start) if not row.filler and row.live(now_ms))


def _messages(context: Context, log: Log, row_no: int, row: Row) -> list[Message]:
    try:
        return messages_of(row, context.blobs)
    except Corrupt as error:
        unreadable(context, log.name, row_no, row.count, error)
        return []


def _parse(cursor: str) -> tuple[int, int, int]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise Rejected(
            "field-invalid", f"after must be a cursor from an earlier answer, got {cursor[:40]!r}", field="after"
        )
    return int(match[1]), int(match[2]), int(match[3])
