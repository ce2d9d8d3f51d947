"""Makes message blocks: the messages that a pull takes from one row, encoded as they are stored.

A block is answered to clients that accept msgpack. It says once what JSON says for each message: see ``MessageBlock``.
"""

from collections.abc import Sequence

import msgspec

from hourwheel.logs.codec import length
from hourwheel.logs.large_batches import payload_of, raw_messages_of
from hourwheel.logs.partial_rows import PartialRows
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message
from hourwheel.model.pulls import MessageBlock
from hourwheel.ports.storage import Blobs
from hourwheel.times import rfc3339

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Message])


def block_from(
    log: str, row: Row, indexes: Sequence[int], blobs: Blobs, queue: int | None, partial_rows: PartialRows
) -> MessageBlock:
    """Reads the messages at these ascending indexes of a row of this log as a block. Raises ``Corrupt``."""
    if len(indexes) == row.count:
        return _block(row, 0, msgspec.Raw(payload_of(row, blobs)), queue)
    # A filter takes its messages of a row at once: such a row does not come back.
    consecutive = isinstance(indexes, range)
    raw = partial_rows.messages_of(log, row, blobs) if consecutive else raw_messages_of(row, blobs)
    return picked_block(row, raw, indexes, queue)


def picked_block(row: Row, raw: list[msgspec.Raw], indexes: Sequence[int], queue: int | None) -> MessageBlock:
    """Returns the messages at these ascending indexes as a block. ``raw`` are all messages of the row."""
    start, end = indexes[0], indexes[-1] + 1
    if end - start == len(indexes):
        return _block(row, start, msgspec.Raw(_encoder.encode(raw[start:end])), queue)
    block = _block(row, 0, msgspec.Raw(_encoder.encode([raw[index] for index in indexes])), queue)
    block.indexes = [*indexes]
    return block


def block_of(messages: Sequence[Message]) -> MessageBlock:
    """Returns messages with all their fields as a block."""
    return MessageBlock(messages=msgspec.Raw(_encoder.encode(messages)))


def count_of(block: MessageBlock) -> int:
    """Returns the number of messages in a block."""
    return length(memoryview(block.messages)) or 0


def messages_in(block: MessageBlock) -> list[Message]:
    """Returns the messages of a block with all their fields."""
    messages = _decoder.decode(block.messages)
    for step, message in zip(block.indexes or range(len(messages)), messages, strict=True):
        if message.id is None:
            message.id = f"{block.prefix}-{block.index + step}"
        message.produced_at = message.produced_at or block.produced_at
        if block.offset is not None:
            message.queue, message.offset, message.attempt = block.queue, block.offset + step, block.attempt
    return messages


def _block(row: Row, index: int, messages: msgspec.Raw, queue: int | None) -> MessageBlock:
    if queue is None:
        return MessageBlock(messages=messages, produced_at=rfc3339(row.at_ms) if row.meta else None)
    return MessageBlock(
        messages=messages,
        queue=queue,
        offset=row.first_seq + index,
        attempt=1,
        produced_at=rfc3339(row.at_ms),
        prefix=row.prefix,
        index=index if row.prefix else 0,
    )
