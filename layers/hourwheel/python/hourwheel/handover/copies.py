"""The messages that a pull row or a dead row hands over, as they stand in the target."""

from collections.abc import Callable, Iterable

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.handover.handover import Transfer
from hourwheel.logs.codec import encode
from hourwheel.logs.entries import encode_entry
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.logs.segments import messages_of, rows_of, segment_folder
from hourwheel.model import Message
from hourwheel.times import rfc3339

RETRY, RELEASED, ATTEMPTS, REJECTED, REDRIVE = "retry", "released", "attempts", "rejected", "redrive"
MOVED = "moved"
"""What a transfer does: try again; give back untried; dead after the last attempt, by its consumer's word; revive; wait
for another time."""


def read_messages(
    context: Context, source: Log, queue: int | None, picks: Iterable[tuple[int, int]], *, strict: bool = False
) -> list[tuple[tuple[int, int], Message]]:
    """The messages at these [row, index] positions, complete with queue, offset and attempt, each with its position.

    A lease may outlive the retention of its messages: those that are gone are left out. So are those that cannot be
    read: they are reported, and stay in the log. With ``strict`` they raise ``Corrupt``."""
    rows: dict[int, list[Message]] = {}
    found = []
    for number, index in picks:
        if number not in rows:
            row = source.get(number)
            rows[number] = (
                [] if row is None else with_position(row, _retained(context, source, number, row, strict), queue)
            )
        if rows[number]:
            found.append(((number, index), rows[number][index]))
    return found


def _retained(context: Context, source: Log, number: int, row: Row, strict: bool) -> list[Message]:
    try:
        return messages_of(row, context.blobs)
    except Corrupt as error:
        # Segments are removed after their retention, rows later still.
        if row.live(context.clock.now_ms()):
            if strict:
                raise
            unreadable(context, source.name, number, row.count, error)
        return []


def with_position(row: Row, messages: list[Message], queue: int | None) -> list[Message]:
    """Fills in what the row of a queue implies. Copies in retry and dead logs have it already, those in schedule logs
    but for the time at which they were accepted."""
    if queue is None and row.meta:
        for message in messages:
            message.produced_at = message.produced_at or rfc3339(row.at_ms)
    if queue is not None:
        produced_at = rfc3339(row.at_ms)
        for index, message in enumerate(messages):
            message.queue = queue
            message.offset = row.number + index
            message.attempt = 1
            if message.due_at is None:
                message.produced_at = produced_at
    return messages


def row_builder(context: Context, source: Log, queue: int | None, *, strict: bool = False) -> Callable[[Transfer], Row]:
    """Makes the row that a transfer puts: the same for whoever makes it."""

    def make(transfer: Transfer) -> Row:
        found = read_messages(context, source, queue, transfer.picks, strict=strict)
        messages = [_changed(message, transfer) for _, message in found]
        if not messages:
            return Row(number=-1, count=0, at_ms=transfer.at_ms, expires_ms=transfer.expires_ms)
        entry = b""
        if transfer.due_times is not None:
            places = {pick: at for at, pick in enumerate(transfer.picks)}
            entry = encode_entry(transfer.due_times.only(places[pick] for pick, _ in found))
        (row,) = rows_of(
            [encode(messages, context.settings.compression_level)],
            blobs=context.blobs,
            segment=f"{segment_folder(transfer.log, transfer.expires_ms)}/{context.ids.unique(transfer.at_ms)}",
            at_ms=transfer.at_ms,
            expires_ms=transfer.expires_ms,
            inline_bytes=context.settings.inline_bytes,
        )
        return msgspec.structs.replace(row, meta=entry) if entry else row

    return make


def _changed(message: Message, transfer: Transfer) -> Message:
    if transfer.kind == RETRY:
        return msgspec.structs.replace(message, attempt=message.attempt + 1)
    if transfer.kind in (RELEASED, MOVED):
        return message
    if transfer.kind == REDRIVE:
        return msgspec.structs.replace(message, attempt=1, died_at=None, reason=None)
    return msgspec.structs.replace(message, died_at=rfc3339(transfer.at_ms), reason=transfer.kind)
