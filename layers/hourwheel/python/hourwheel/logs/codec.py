"""Encodes batches of messages as blocks of bytes, and decodes them.

A block, little-endian:

    offset  size  what
    0       4     "HWB1"
    4       1     compression: 0 none, 1 zstd
    5       1     zero
    6       2     schema id (1: msgpack list of message maps; others are drawn in ``archive/blocks.py``)
    8       4     messages, or rows of another kind
    12      4     payload bytes before compression
    16      4     payload bytes as stored
    20      4     CRC-32 of bytes 0 to 19 and the stored payload
    24      …     payload

A block that is read is treated as hostile even if its checksum is correct: the code checks its sizes and counts before
it takes memory.
"""

import struct
import sys
import threading
import zlib
from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.compression import decompressed
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.messages import Message, NewMessage
from hourwheel.wire.answer_size import AnswerSize, batch_size

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

T = TypeVar("T")

Decompress: TypeAlias = Callable[[memoryview, int], bytes | memoryview]
"""Decompresses a payload to this number of bytes. Raises ``Corrupt`` unless it has exactly as many."""

MAX_RAW_BYTES = 8 << 20
"""A batch at its limits stays below this size, with the field names and positions that storing adds."""

_HEADER = struct.Struct("<4sBBHIIII")
_MAGIC = b"HWB1"
_SCHEMA = 1
_FAST = 1  # the lowest level that compresses single characters
_NOISE = -3  # finds repetitions alone: four times as fast, and unpacks ten times as fast
_SAMPLE_BYTES = 2 << 10  # about ten messages: enough repetition to tell records from noise
_LARGE = 64 << 10
"""A larger batch is compressed fast: it goes to an object, where its size costs next to nothing."""

_SMALL = 512
"""For a smaller payload zstd saves less than its own cost in time."""

HEADER_BYTES = _HEADER.size

_UNSIZED = AnswerSize(0)
"""The answer size of blocks of the archive, which no answer contains."""


class _StoredMessage(msgspec.Struct, gc=False):
    """A message of which no field is kept: decoding into it only checks that the message is a map."""


class _MessageId(msgspec.Struct, gc=False):
    """A message of which the id alone is kept."""

    id: str | None = None


class _MessageTags(msgspec.Struct, gc=False):
    """A message of which the tags alone are kept."""

    tags: tuple[str, ...] | None = None


_encoder = msgspec.msgpack.Encoder()
_threads = threading.local()
_decoder = msgspec.msgpack.Decoder(list[Message])
_splitter = msgspec.msgpack.Decoder(list[msgspec.Raw])
_ids_decoder = msgspec.msgpack.Decoder(list[_MessageId])
_tags_decoder = msgspec.msgpack.Decoder(list[_MessageTags])
_message_decoder = msgspec.msgpack.Decoder(Message)
_map_checker = msgspec.msgpack.Decoder(list[_StoredMessage])


class Block(msgspec.Struct, frozen=True):
    """An encoded batch: its message count, its payload size before compression, its bytes, and the size of its messages
    in an answer."""

    count: int
    raw_bytes: int
    data: bytes
    answer: AnswerSize = _UNSIZED


def _compressor(level: int) -> zstd.ZstdCompressor:
    """Returns the compressor of this thread."""
    # A new compressor costs more than the compression of a small batch.
    compressor: zstd.ZstdCompressor | None = getattr(_threads, f"level_{level}", None)
    if compressor is None:
        compressor = zstd.ZstdCompressor(level)
        setattr(_threads, f"level_{level}", compressor)
    return compressor


def encode(messages: Sequence[NewMessage], level: int = _FAST, noise_bytes: int = _LARGE) -> Block:
    """Encodes messages as a block, compressed at this level of zstd (a large batch: at the fastest). A batch of more
    than ``noise_bytes`` that hardly compresses, such as one of random or encrypted texts, takes a third more space, and
    a quarter of the time. Raises ``ValueError`` for a payload over ``MAX_RAW_BYTES``."""
    raw = _encoder.encode(messages)
    answer = batch_size(messages, raw)
    if len(raw) > noise_bytes and _is_noise(raw):
        level = _NOISE
    elif len(raw) > _LARGE:
        level = _FAST
    return pack(raw, len(messages), _SCHEMA, level, answer)


def _is_noise(raw: bytes) -> bool:
    """Returns whether a sample of the payload keeps more than half of its size."""
    sample = raw[:_SAMPLE_BYTES]
    return 2 * len(_compressor(_FAST).compress(sample, zstd.ZstdCompressor.FLUSH_FRAME)) > len(sample)


def pack(raw: bytes, count: int, schema: int, level: int, answer: AnswerSize = _UNSIZED) -> Block:
    """Makes a block of an encoded payload. Raises ``ValueError`` for one over ``MAX_RAW_BYTES``."""
    if len(raw) > MAX_RAW_BYTES:
        raise ValueError(f"batch of {len(raw)} bytes is over {MAX_RAW_BYTES}")
    stored, compression = raw, 0
    if len(raw) >= _SMALL:
        packed = _compressor(level).compress(raw, zstd.ZstdCompressor.FLUSH_FRAME)
        if len(packed) < len(raw):
            stored, compression = packed, 1
    head = _HEADER.pack(_MAGIC, compression, 0, schema, count, len(raw), len(stored), 0)[:20]
    checksum = zlib.crc32(stored, zlib.crc32(head))
    return Block(count=count, raw_bytes=len(raw), data=head + struct.pack("<I", checksum) + stored, answer=answer)


def decode(data: bytes) -> list[Message]:
    """Decodes the messages of a block; raises ``Corrupt`` with the reason."""
    return _read(data, _decoder)


def split(data: bytes) -> list[msgspec.Raw]:
    """Splits a block into its messages, each still encoded, for a caller that needs few of them; raises ``Corrupt``."""
    return _read(data, _splitter)


def decode_and_split(data: bytes) -> tuple[list[Message], list[msgspec.Raw]]:
    """Decodes the messages of a block, and returns them also still encoded; raises ``Corrupt`` with the reason."""
    payload = _list_of(data)
    return _decoded(payload, _decoder), _decoded(payload, _splitter)


def ids(data: bytes) -> list[str | None]:
    """Returns the stored id of each message of a block, and decodes nothing else; raises ``Corrupt``."""
    return [message.id for message in _read(data, _ids_decoder)]


def tags(data: bytes) -> list[tuple[str, ...] | None]:
    """Returns the tags of each message of a block, and decodes nothing else; raises ``Corrupt``."""
    return [message.tags for message in _read(data, _tags_decoder)]


def payload(data: bytes, count: int) -> bytes:
    """Checks a block of ``count`` messages, and returns its encoded list; raises ``Corrupt`` if it is anything else."""
    encoded, claimed = unpack(data, _SCHEMA)
    if claimed != count:
        raise Corrupt(f"row of {count} messages has a block of {claimed}")
    check_length(encoded, count, "messages")
    try:
        _map_checker.decode(encoded)
    except UNDECODABLE as error:
        raise Corrupt(f"block holds no list of messages: {error}") from error
    return bytes(encoded)


def decode_one(message: msgspec.Raw | bytes) -> Message:
    """Decodes a message that ``split`` returned, or a copy of its bytes; raises ``Corrupt``."""
    try:
        return _message_decoder.decode(message)
    except UNDECODABLE as error:
        raise Corrupt(f"block holds something that is no message: {error}") from error


def _read(data: bytes, decoder: msgspec.msgpack.Decoder[list[T]]) -> list[T]:
    return _decoded(_list_of(data), decoder)


def _list_of(data: bytes) -> bytes | memoryview:
    """Returns the payload of a block: an encoded list of as many messages as the block claims."""
    payload, count = unpack(data, _SCHEMA)
    # Checked before there are objects: a kilobyte unpacks to eight million empty messages, which take a gigabyte.
    if count > BATCH_MESSAGES:
        raise Corrupt(f"block claims {count} messages, a batch has {BATCH_MESSAGES} at most")
    check_length(payload, count, "messages")
    return payload


def _decoded(payload: bytes | memoryview, decoder: msgspec.msgpack.Decoder[list[T]]) -> list[T]:
    try:
        return decoder.decode(payload)
    except UNDECODABLE as error:
        raise Corrupt(f"block holds no list of messages: {error}") from error


def check_length(payload: bytes | memoryview, count: int, what: str) -> None:
    """Raises ``Corrupt`` unless the payload begins as a list of this length. Decodes no element."""
    actual = length(payload)
    if actual != count:
        raise Corrupt(f"block claims {count} {what}, holds {'no list' if actual is None else actual}")


def length(payload: bytes | memoryview, *, maps: bool = False) -> int | None:
    """Returns the length of the msgpack list (with ``maps``: map) with which the payload begins; None if it begins with
    another type."""
    kind = payload[0] if payload else 0
    # The three formats of msgpack: the length stands in the first byte, in the next two, or in the next four.
    few, some, many = (0x80, 0xDE, 0xDF) if maps else (0x90, 0xDC, 0xDD)
    if kind & 0xF0 == few:
        return kind & 0x0F
    width = {some: 2, many: 4}.get(kind)
    return None if width is None else int.from_bytes(payload[1 : 1 + width], "big")


def stored_bytes(header: bytes) -> int:
    """Returns the length of the whole block that begins with these ``HEADER_BYTES``; raises ``Corrupt`` for other
    bytes."""
    if len(header) < HEADER_BYTES or not header.startswith(_MAGIC):
        raise Corrupt("not a block")
    return HEADER_BYTES + int(_HEADER.unpack_from(header)[6])


def unpack(
    data: bytes | memoryview, schema: int, decompress: Decompress = decompressed
) -> tuple[bytes | memoryview, int]:
    """Checks a block of this schema; returns its payload and the count that its header claims. Raises ``Corrupt`` with
    the reason."""
    if len(data) < HEADER_BYTES:
        raise Corrupt(f"block of {len(data)} bytes is shorter than its header")
    magic, compression, _, block_schema, count, raw_size, stored_size, checksum = _HEADER.unpack_from(data)
    stored = memoryview(data)[HEADER_BYTES:]
    if magic != _MAGIC or compression not in (0, 1):
        raise Corrupt("not a block")
    if block_schema != schema:
        raise Corrupt(f"block has schema {block_schema}, this version reads {schema} here")
    if len(stored) != stored_size or raw_size > MAX_RAW_BYTES:
        raise Corrupt(f"block claims {stored_size} bytes, {raw_size} unpacked; it has {len(stored)}")
    if zlib.crc32(stored, zlib.crc32(data[:20])) != checksum:
        raise Corrupt("block fails its checksum")
    raw = decompress(stored, raw_size) if compression else stored
    if len(raw) != raw_size:
        raise Corrupt(f"block claims {raw_size} bytes, unpacks to {len(raw)}")
    return raw, count
