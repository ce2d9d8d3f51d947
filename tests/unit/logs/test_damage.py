"""A damaged block with a correct checksum is corrupt whatever it contains, and is refused before it takes memory."""

import contextlib
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.archive.blocks import (
    SCHEMAS,
    Entry,
    RegistrySnapshot,
    decode_dispatches,
    decode_messages,
    decode_pulls,
    decode_registry,
    encode_messages,
    encode_registry,
)
from hourwheel.archive.segments import FORMAT, blocks_of
from hourwheel.errors import Corrupt
from hourwheel.logs.codec import Block, decode, split, zstd
from hourwheel.logs.rows import from_record
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Record
from tests.memory import peak_bytes

MIB = 1 << 20
DEEP = b"\x91" * 200_000
NO_TEXT = msgspec.msgpack.encode([{"body": "\x7f"}]).replace(b"\x7f", b"\xff")

DECODERS: dict[str, tuple[int, Callable[[bytes], Any]]] = {
    "messages of a log": (1, decode),
    "messages of a log, still encoded": (1, split),
    "messages": (SCHEMAS["messages"], decode_messages),
    "pulls": (SCHEMAS["pulls"], decode_pulls),
    "dispatches": (SCHEMAS["dispatches"], decode_dispatches),
    "registry": (SCHEMAS["registry"], decode_registry),
}
kinds = pytest.mark.parametrize("kind", DECODERS)


def block(raw: bytes, *, count: int, schema: int) -> bytes:
    """Returns a block with a correct checksum around any payload."""
    stored = zstd.compress(raw)
    head = struct.pack("<4sBBHIII", b"HWB1", 1, 0, schema, count, len(raw), len(stored))
    return head + struct.pack("<I", zlib.crc32(stored, zlib.crc32(head))) + stored


def many(count: int, element: bytes) -> bytes:
    """Returns a msgpack list that repeats the element."""
    return b"\xdd" + count.to_bytes(4, "big") + element * count


def packed(*parts: bytes) -> bytes:
    return bytes([0x90 | len(parts)]) + b"".join(parts)


def test_text_that_is_not_utf_8_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        decode(block(NO_TEXT, count=1, schema=1))
    archived = encode_messages(["orders~1/0"], [Entry(0, 0, 0, 1, 1, 0, 0)], [Message(body="\x7f" * 9)])
    with pytest.raises(Corrupt, match="a text that is none"):
        decode_messages(spoilt(archived, b"\x7f" * 9, b"\xff" * 9)).columns.messages(1)


def lengths(*sizes: int) -> bytes:
    return struct.pack(f"<{len(sizes)}i", *sizes)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ([lengths(1), b"x"], "body of 1.0"),
        ([lengths(2, 1), b"xx"], "their lengths say 3"),
        ([lengths(1, 2**31 - 1), b"xx"], "their lengths say 2147483648"),
        ([lengths(1, -2), b"xx"], "their lengths say 1"),
        ([lengths(1, -1), b"xx"], "their lengths say 1"),
        ([lengths(1, 1), "\u00e9".encode()], "a text that is none"),
        (["a", "b"], "holds no messages"),
    ],
)
def test_a_column_whose_lengths_do_not_fit_its_texts_is_corrupt(column: list[Any], reason: str) -> None:
    payload = msgspec.msgpack.encode([["orders~1/0"], [Entry(0, 0, 0, 2, 2, 0, 0)], {"body": column}])
    with pytest.raises(Corrupt, match=reason):
        decode_messages(block(payload, count=1, schema=SCHEMAS["messages"])).columns.messages(2)


def test_messages_with_and_without_texts_are_read_as_they_were_written() -> None:
    sent = [
        Message(body="\u00e9\U0001f600", key="k", tags=["a"], attempt=2),
        Message(body_base64=b"\xff\0", headers={"h": ""}, reason="rejected"),
        Message(body="", id="1", due_at="2026-11-20T09:00:00.000Z"),
    ]
    made = encode_messages(["orders~1/0"], [Entry(0, 0, 0, 3, 3, 0, 0)], sent)
    assert decode_messages(made.data).columns.messages(3) == sent


@kinds
@pytest.mark.parametrize("count", [0, 1, 200_000])
def test_lists_in_lists_without_end_are_corrupt(kind: str, count: int) -> None:
    schema, read = DECODERS[kind]
    for raw in (DEEP, packed(b"\x90", DEEP), packed(b"\x90", b"\x90", DEEP), b"\x91\x81\xa1x" + DEEP):
        with pytest.raises(Corrupt):
            read(block(raw, count=count, schema=schema))


def test_a_row_or_record_that_is_damaged_so_is_corrupt() -> None:
    for value in (
        DEEP,
        b"\x98" + DEEP,
        msgspec.msgpack.encode([0, 0, 0, 0, 0, b"", ["k", 0, 0]]).replace(b"k", b"\xff"),
    ):
        with pytest.raises(Corrupt):
            from_record(Record(value, b"t" * 16))


@kinds
@pytest.mark.parametrize("count", [1, 8, BATCH_MESSAGES, MIB])
def test_what_a_block_holds_is_counted_before_there_are_objects(kind: str, count: int) -> None:
    """Returns a kilobyte that unpacks to a megabyte: a million rows, logs or messages, of 150 bytes each."""
    schema, read = DECODERS[kind]
    entry = msgspec.msgpack.encode(Entry(0, 0, 0, 1_000, 1_000, 0, 0))
    hostile = [
        many(MIB, b"\x80"),
        packed(many(MIB, b"\xa0"), b"\x90", b"\x80"),
        packed(b"\x91\xa1a", many(MIB, b"\x90"), b"\x80"),
        packed(b"\x91\xa1a", many(MIB, b"\x90")),
        packed(b"\x91\xa1a", b"\x91" + entry, b"\x81\xa4tags" + many(MIB, b"\x90")),
        packed(b"\x91\xa1a", b"\x91" + entry, b"\x81\xa7headers" + many(MIB, b"\x80")),
    ]

    def attempt() -> None:
        for raw in hostile:
            with pytest.raises(Corrupt):
                read(block(raw, count=count, schema=schema))

    assert peak_bytes(attempt) < 16 * MIB


def test_a_footer_longer_than_its_segment_can_need_is_corrupt() -> None:
    footer = msgspec.msgpack.encode(["messages", [[0, 0, 0]] * 50_000])
    trailer = struct.pack("<III4s", len(footer), zlib.crc32(footer), FORMAT, b"HWA1")
    with pytest.raises(Corrupt):
        blocks_of(b"x" * 100 + footer + trailer, "messages")


def test_a_registry_snapshot_with_another_count_is_corrupt() -> None:
    raw = msgspec.msgpack.encode([[], []])
    assert decode_registry(encode_registry(RegistrySnapshot([], [])).data) == RegistrySnapshot([], [])
    with pytest.raises(Corrupt, match="claims 3"):
        decode_registry(block(raw, count=3, schema=SCHEMAS["registry"]))


@given(st.binary(max_size=60), st.integers(0, 5), st.sampled_from(sorted(DECODERS)))
def test_any_payload_is_read_or_called_corrupt(raw: bytes, count: int, kind: str) -> None:
    schema, read = DECODERS[kind]
    with contextlib.suppress(Corrupt):
        read(block(raw, count=count, schema=schema))


def spoilt(made: Block, old: bytes, new: bytes) -> bytes:
    """Returns the block with other bytes in its payload and a correct checksum."""
    data = made.data
    assert data[4] == 0, "not compressed"
    assert old in data
    stored = data[24:].replace(old, new)
    return data[:20] + struct.pack("<I", zlib.crc32(stored, zlib.crc32(data[:20]))) + stored
