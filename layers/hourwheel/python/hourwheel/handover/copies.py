"""Builds the copies of messages that a pull row or a dead row hands over."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.handover.handover import Transfer
from hourwheel.logs.codec import decode_one
from hourwheel.logs.entries import encode_entry
from hourwheel.logs.large_batches import messages_of, raw_messages_of, with_ids
from hourwheel.logs.log import Log
from hourwheel.logs.rows import Row
from hourwheel.logs.suspects import with_suspects
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.times import rfc3339

RETRY, RELEASED, ATTEMPTS, REJECTED, REDRIVE = "retry", "released", "attempts", "rejected", "redrive"
MOVED = "moved"
"""The kinds of transfers: retry a message; release it without an attempt; make it dead after the last attempt, or after
a rejection; redrive a dead letter; move a delayed message to another time."""


class ReadMessages(NamedTuple):
    """Messages, each with its [row, index] position, and when the last of their rows expires."""

    messages: list[tuple[tuple[int, int], Message]]
    kept_until_ms: int


def read_messages(
    context: Context, source: Log, queue: int | None, picks: Iterable[tuple[int, int]], *, strict: bool = False
) -> list[tuple[tuple[int, int], Message]]:
    """Returns the messages that ``read_originals`` reads."""
    return read_originals(context, source, queue, picks, strict=strict).messages


def read_originals(
    context: Context, source: Log, queue: int | None, picks: Iterable[tuple[int, int]], *, strict: bool = False
) -> ReadMessages:
    """Reads the messages at these [row, index] positions, with queue, offset and attempt.

    Leaves out messages that were removed, as a lease may outlive the retention of its messages. Leaves out and reports
    messages that cannot be read, which stay in the log; with ``strict`` they raise ``Corrupt``."""
    rows: dict[int, list[Message]] = {}
    messages = []
    kept_until_ms = 0
    for row_no, index in picks:
        if row_no not in rows:
            row = source.get(row_no)
            kept_until_ms = max(kept_until_ms, 0 if row is None else row.expires_ms)
            rows[row_no] = (
                [] if row is None else with_position(row, _retained(context, source, row_no, row, strict), queue)
            )
        if rows[row_no]:
            messages.append(((row_no, index), rows[row_no][index]))
    return ReadMessages(messages, kept_until_ms)


def _retained(context: Context, source: Log, row_no: int, row: Row, strict: bool) -> list[Message]:
    try:
        return messages_of(row, context.blobs_of(source.name))
    except Corrupt as error:
        # The large batch of an expired row may be removed already: objects are removed before rows.
        if row.live(context.clock.now_ms()):
            if strict:
                raise
            unreadable(context, source.name, row_no, row.count, error)
        return []


def taken_from(row: Row, indexes: Sequence[int], blobs: Blobs, queue: int | None) -> list[Message]:
    """Reads the messages at these indexes of a row, with queue, offset and attempt. Raises ``Corrupt``."""
    if len(indexes) == row.count:
        return with_position(row, messages_of(row, blobs), queue)
    # Of a row with a thousand messages a pull may take one: the others stay encoded.
    raw = raw_messages_of(row, blobs)
    messages = with_ids(row, [decode_one(raw[index]) for index in indexes], indexes)
    return with_position(row, messages, queue, indexes)


def with_position(
    row: Row, messages: list[Message], queue: int | None, indexes: Sequence[int] | None = None
) -> list[Message]:
    """Sets the fields that messages leave out because their row states them, and returns the messages. In a row of a
    queue these are queue, offset, attempt and ``produced_at``; in a schedule log only ``produced_at``; copies in retry
    and dead logs leave nothing out. ``indexes``: the indexes of the messages in the row (None: all of the row)."""
    if queue is None and row.meta:
        for message in messages:
            message.produced_at = message.produced_at or rfc3339(row.at_ms)
    if queue is not None:
        produced_at, first_seq = rfc3339(row.at_ms), row.first_seq
        for index, message in zip(range(len(messages)) if indexes is None else indexes, messages, strict=True):
            message.queue = queue
            message.offset = first_seq + index
            message.attempt = 1
            if message.due_at is None:
                message.produced_at = produced_at
    return messages


@dataclass(frozen=True)
class RowMaker:
    """Builds the rows of transfers from the log of the original messages. Every process builds the same messages for a
    transfer. ``attempts``: the attempts of messages that were retried in place, by their positions."""

    context: Context
    source: Log
    queue: int | None
    strict: bool = False
    attempts: Mapping[tuple[int, int], int] | None = None

    def __call__(self, transfer: Transfer) -> Row:
        originals, kept_until_ms = self._originals(transfer)
        details = dict(zip(transfer.picks, transfer.details, strict=True)) if transfer.details else {}
        messages = [_changed(message, transfer, details.get(pick)) for pick, message in originals]
        # The due times count the messages of the row, from which unreadable ones are left out.
        due_times = transfer.due_times_of([pick for pick, _ in originals], kept_until_ms) if messages else None
        # A retry is kept as long as its original at least: the retention may have been lowered since.
        is_retry = transfer.kind in (RETRY, RELEASED) and transfer.due_times is None
        row = self.context.build_row(
            transfer.log,
            messages,
            at_ms=transfer.at_ms,
            expires_ms=max(transfer.expires_ms, kept_until_ms) if is_retry else transfer.expires_ms,
            meta=b"" if due_times is None else encode_entry(due_times),
        )
        return with_suspects(row, messages) if due_times is None else row

    def _originals(self, transfer: Transfer) -> ReadMessages:
        read = read_originals(self.context, self.source, self.queue, transfer.picks, strict=self.strict)
        attempts = self.attempts or {}
        for pick, message in read.messages if attempts else ():
            message.attempt = attempts.get(pick, message.attempt)
        return read


def _changed(message: Message, transfer: Transfer, detail: str | None) -> Message:
    if transfer.kind in (RETRY, ATTEMPTS) and detail is None:
        # A lease that ended gives no detail: the copy keeps the error of an earlier attempt.
        detail = message.detail
    if transfer.kind == RETRY:
        return msgspec.structs.replace(message, attempt=message.attempt + 1, detail=detail, suspect=transfer.suspects)
    if transfer.kind in (RELEASED, MOVED):
        # A suspect that is released stays one: its consumer may not have begun with it.
        return msgspec.structs.replace(message, suspect=True) if transfer.suspects else message
    if transfer.kind == REDRIVE:
        # It begins again, with all attempts that the group allows.
        return msgspec.structs.replace(message, attempt=1, died_at=None, reason=None, detail=None, suspect=False)
    died_at = rfc3339(transfer.at_ms)
    return msgspec.structs.replace(message, died_at=died_at, reason=transfer.kind, detail=detail, suspect=False)
