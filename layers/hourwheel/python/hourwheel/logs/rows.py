"""Rows of a consume, retry or dead log, and their keys.

    table    consume
    partition  {log}                 the log's name, e.g. orders~1/0
    sort       {row:016d}
    value      msgpack array [number, count, at_ms, expires_ms, raw_bytes, block, segment]

``number`` is the sequence of the row's first message. A filler has ``count`` 0: its number was
never used. A batch lies in ``block``, or in a segment that ``segment`` names as [key, offset, length].
"""

import msgspec

from hourwheel.errors import Corrupt
from hourwheel.ports import Key, Record, Table


class SegmentRef(msgspec.Struct, array_like=True, frozen=True):
    key: str
    offset: int
    length: int


class Row(msgspec.Struct, array_like=True, frozen=True):
    number: int
    count: int
    at_ms: int
    expires_ms: int
    raw_bytes: int = 0
    block: bytes = b""
    segment: SegmentRef | None = None

    @property
    def filler(self) -> bool:
        return self.count == 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Row)


def sort_of(row: int) -> str:
    return f"{row:016d}"


def row_key(log: str, row: int) -> Key:
    return Key(Table.CONSUME, log, sort_of(row))


def to_record(row: Row, token: bytes, garbage_after_ms: int) -> Record:
    return Record(_encoder.encode(row), token, row.expires_ms + garbage_after_ms)


def from_record(record: Record) -> Row:
    try:
        return _decoder.decode(record.value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"not a log row: {error}") from error
