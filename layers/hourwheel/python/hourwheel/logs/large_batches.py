"""Stores batches that are too large for a row as objects: one for each produce call, and for each bucket.

    key      batches/{hour in which the last of its rows expires, ms}/{unique}
             scheduled/{bucket}/{unique}
    bytes    block … block, footer: msgpack array of [offset, length], its length (u32 LE), "HWL1"

An object is written before the rows that name it. It is garbage if no row names it, if its hour is over, or if its
bucket was removed. Segments are something else: they hold the rows of the archive (``archive/segments.py``).
"""

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from hourwheel.errors import Corrupt, NotFound
from hourwheel.logs.codec import Block, decode, decode_and_split, ids, payload, split, tags
from hourwheel.logs.rows import LargeBatchRef, Row
from hourwheel.model.log_names import LogName, is_schedule
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.times import HOUR_MS

T = TypeVar("T")

_MAGIC = b"HWL1"


def large_batch_folder(log: str, expires_ms: int) -> str:
    """Returns the first part of the keys of large batches for rows of a log that expire at this time."""
    if is_schedule(log):
        return f"scheduled/{LogName.parse(log).bucket}"
    # Rounded up: the object outlives each of its rows.
    return f"batches/{-(-expires_ms // HOUR_MS) * HOUR_MS:015d}"


def write_large_batches(blobs: Blobs, key: str, blocks: Sequence[Block]) -> list[LargeBatchRef]:
    """Stores the blocks as one object and returns the position of each block."""
    refs, offset = [], 0
    for block in blocks:
        refs.append(LargeBatchRef(key, offset, len(block.data)))
        offset += len(block.data)
    footer = msgspec.msgpack.encode([(ref.offset, ref.length) for ref in refs])
    parts = [block.data for block in blocks]
    blobs.put(key, b"".join([*parts, footer, struct.pack("<I", len(footer)), _MAGIC]))
    return refs


def rows_of(
    blocks: Sequence[Block],
    *,
    blobs: Blobs,
    key: Callable[[], str],
    at_ms: int,
    expires_ms: int,
    inline_bytes: int,
    prefix: str = "",
) -> list[Row]:
    """Returns a row for each block. A small block stands in its row; the large ones are stored together in an object
    with the key that ``key`` makes. The rows have no sequence yet."""
    large = [block for block in blocks if len(block.data) > inline_bytes]
    refs = iter(write_large_batches(blobs, key(), large) if large else ())

    def row(block: Block) -> Row:
        fits = len(block.data) <= inline_bytes
        return Row(
            first_seq=-1,
            count=block.count,
            at_ms=at_ms,
            expires_ms=expires_ms,
            raw_bytes=block.raw_bytes,
            block=block.data if fits else b"",
            large_batch=None if fits else next(refs),
            answer_bytes=block.answer.total,
            cuts=block.answer.cuts,
            prefix=prefix,
        )

    return [row(block) for block in blocks]


def messages_of(row: Row, blobs: Blobs) -> list[Message]:
    """Reads the messages of a row, from the row or its object. Raises ``Corrupt``, also when the object is
    missing."""
    if row.filler:
        return []
    return with_ids(row, _counted(row, decode(_block(row, blobs))), range(row.count))


def raw_messages_of(row: Row, blobs: Blobs) -> list[msgspec.Raw]:
    """Reads the messages of a row as ``messages_of`` does, each still encoded, and without an id if it is stored
    without one."""
    return [] if row.filler else _counted(row, split(_block(row, blobs)))


def messages_and_raw_of(row: Row, blobs: Blobs) -> tuple[list[Message], list[msgspec.Raw]]:
    """Reads the messages of a row, which has some, as they are stored: decoded and still encoded. Raises
    ``Corrupt``."""
    messages, raw = decode_and_split(_block(row, blobs))
    return _counted(row, messages), raw


def ids_of(row: Row, blobs: Blobs) -> list[str]:
    """Reads the ids of the messages of a row, and decodes nothing else: a search compares the ids of many thousand
    messages. Raises ``Corrupt``."""
    if row.filler:
        return []
    stored = _counted(row, ids(_block(row, blobs)))
    return [own_id or (row.id_of(index) if row.prefix else "") for index, own_id in enumerate(stored)]


def tags_of(row: Row, blobs: Blobs) -> list[tuple[str, ...] | None]:
    """Reads the tags of each message of a row. Raises ``Corrupt``."""
    return [] if row.filler else _counted(row, tags(_block(row, blobs)))


def payload_of(row: Row, blobs: Blobs) -> bytes:
    """Reads the messages of a row, which has some, as the msgpack list that was stored. Raises ``Corrupt`` also for a
    payload that is no list of maps, without making an object of any message."""
    return payload(_block(row, blobs), row.count)


def with_ids(row: Row, messages: list[Message], indexes: Sequence[int]) -> list[Message]:
    """Gives the messages at these indexes of the row the ids that the row implies."""
    prefix = row.prefix
    if prefix:
        for index, message in zip(indexes, messages, strict=True):
            if message.id is None:
                message.id = f"{prefix}-{index}"  # as ``Row.id_of``
    return messages


def _counted(row: Row, messages: list[T]) -> list[T]:
    if len(messages) != row.count:
        raise Corrupt(f"row of {row.count} messages has a block of {len(messages)}")
    return messages


def _block(row: Row, blobs: Blobs) -> bytes:
    return row.block if row.large_batch is None else _part(blobs, row.large_batch)


def _part(blobs: Blobs, ref: LargeBatchRef) -> bytes:
    try:
        return blobs.get(ref.key, offset=ref.offset, length=ref.length)
    except NotFound as error:
        # Damage, not absence: the row says that its messages are there.
        raise Corrupt(f"the object of a large batch is missing: {error}") from error


def drop_expired_batches(blobs: Blobs, before_ms: int) -> int:
    """Removes the large batches whose hour ended at least an hour before ``before_ms``; returns their number."""
    expired = [key for key in blobs.list("batches/") if int(key.split("/")[1]) <= before_ms - HOUR_MS]
    for key in expired:
        blobs.delete(key)
    return len(expired)
