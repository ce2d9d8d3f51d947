"""Encodes and decodes segments of the archive: blocks of one kind, in one object.

    key      segments/{kind}/{YYYY-MM-DD}/{HH}/{unique}       the hour, in UTC, in which its rows were written
    bytes    block … block, footer, trailer
    footer   msgpack [kind, [[offset, length, rows] …]]
    trailer  the footer's length and its CRC-32, format 1 (u32 LE each), "HWA1"

Only what a manifest names belongs to the archive: see ``manifests.py``.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt
from hourwheel.logs.codec import HEADER_BYTES, Block, stored_bytes

FORMAT = 1

_TRAILER = struct.Struct("<III4s")
_MAGIC = b"HWA1"
_MOST_FOOTER = 1_000
"""The largest footer beside its entries. An entry is shorter than its block, so the blocks bound the entries."""


class Extent(NamedTuple):
    """The position of a block in its segment, and the number of its rows."""

    offset: int
    length: int
    rows: int

    def is_within(self, size: int) -> bool:
        """Returns whether the block lies in the first ``size`` bytes."""
        return self.offset >= 0 and self.length >= 0 and self.offset + self.length <= size


class Footer(msgspec.Struct, array_like=True, frozen=True):
    kind: str
    blocks: list[Extent]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Footer)


def segment_key(kind: str, hour_ms: int, unique: str) -> str:
    return f"segments/{kind}/{datetime.fromtimestamp(hour_ms // 1_000, UTC):%Y-%m-%d/%H}/{unique}"


def join(kind: str, blocks: Sequence[Block]) -> bytes:
    """Returns the bytes of a segment of these blocks."""
    extents, offset = [], 0
    for block in blocks:
        extents.append(Extent(offset, len(block.data), block.count))
        offset += len(block.data)
    footer = _encoder.encode(Footer(kind, extents))
    trailer = _TRAILER.pack(len(footer), zlib.crc32(footer), FORMAT, _MAGIC)
    return b"".join([*(block.data for block in blocks), footer, trailer])


def blocks_of(data: bytes, kind: str) -> list[Extent]:
    """Returns the blocks of a segment. Raises ``Corrupt`` when the segment is incomplete, or of another kind or
    format."""
    footer = _footer(data)
    try:
        contents = _decoder.decode(footer)
    except UNDECODABLE as error:
        raise Corrupt(f"segment's footer cannot be read: {error}") from error
    if contents.kind != kind:
        raise Corrupt(f"segment holds {contents.kind}, not {kind}")
    if not all(block.is_within(len(data) - _TRAILER.size - len(footer)) for block in contents.blocks):
        raise Corrupt("segment's footer names what is not there")
    return contents.blocks


def _footer(data: bytes) -> bytes:
    """Returns the encoded footer of a segment, which its trailer describes."""
    size = len(data) - _TRAILER.size
    if size < 0:
        raise Corrupt(f"segment of {len(data)} bytes is shorter than its trailer")
    length, checksum, form, magic = _TRAILER.unpack_from(data, size)
    if magic != _MAGIC:
        raise Corrupt("segment has no trailer: it was cut off, or is none")
    if form != FORMAT:
        raise Corrupt(f"segment has format {form}, this version reads {FORMAT}")
    # A trailer that lies must not have the whole segment decoded as a footer.
    if length > _MOST_FOOTER + 2 * (size - length):
        raise Corrupt(f"segment of {size} bytes claims a footer of {length}")
    footer = data[max(0, size - length) : size]
    if len(footer) != length or zlib.crc32(footer) != checksum:
        raise Corrupt("segment's footer fails its checksum")
    return footer


def walk(data: bytes) -> Iterator[Extent]:
    """Yields the complete blocks of a segment that has lost its end. Does not count their rows."""
    offset = 0
    while True:
        try:
            length = stored_bytes(data[offset : offset + HEADER_BYTES])
        except Corrupt:
            return
        if offset + length > len(data):
            return
        yield Extent(offset, length, 0)
        offset += length
