"""Blocks decode to the encoded messages, and other bytes are refused."""

import random
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.errors import Corrupt
from hourwheel.logs.codec import HEADER_BYTES, MAX_RAW_BYTES, decode, encode, tags, zstd
from hourwheel.model.messages import Message, NewMessage

texts = st.text(max_size=40)
messages = st.lists(
    st.builds(
        Message,
        body=st.none() | texts,
        body_base64=st.none() | st.binary(max_size=40),
        key=st.none() | texts,
        tags=st.none() | st.lists(texts, max_size=3),
        headers=st.none() | st.dictionaries(texts, texts, max_size=3),
        id=texts,
        attempt=st.integers(0, 20),
    ),
    max_size=20,
)


def block(raw: bytes, *, claimed: int | None = None, compression: int = 1, count: int = 1, schema: int = 1) -> bytes:
    """Returns a block with a correct checksum around any payload."""
    stored = zstd.compress(raw) if compression else raw
    size = len(raw) if claimed is None else claimed
    head = struct.pack("<4sBBHIII", b"HWB1", compression, 0, schema, count, size, len(stored))
    return head + struct.pack("<I", zlib.crc32(stored, zlib.crc32(head))) + stored


@given(messages)
def test_a_batch_comes_back_as_it_went_in(batch: list[Message]) -> None:
    assert decode(encode(batch).data) == batch


@given(messages)
def test_the_tags_of_a_batch_are_read_alone(batch: list[Message]) -> None:
    assert tags(encode(batch).data) == [None if message.tags is None else tuple(message.tags) for message in batch]


def test_a_large_batch_is_compressed_and_a_small_one_is_not() -> None:
    large, small = encode([NewMessage(body="x" * 10_000)]), encode([NewMessage(body="x")])
    assert len(large.data) < 500
    assert large.raw_bytes > 10_000
    assert len(small.data) == HEADER_BYTES + small.raw_bytes


@given(st.binary(max_size=200))
def test_bytes_that_are_no_block_are_called_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode(data)


def test_every_single_changed_byte_is_noticed() -> None:
    data = encode([NewMessage(body="hello " * 200)]).data
    dice = random.Random(7)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << dice.randrange(8)
        with pytest.raises(Corrupt):
            decode(bytes(changed))


@pytest.mark.parametrize("length", [0, 1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 5])
def test_a_truncated_block_is_corrupt(length: int) -> None:
    with pytest.raises(Corrupt):
        decode(encode([NewMessage(body="hello " * 200)]).data[:length])


def test_a_block_that_unpacks_to_more_than_it_claims_is_refused_before_it_is_unpacked() -> None:
    with pytest.raises(Corrupt, match="more than the 10 bytes"):
        decode(block(b"\x90" + b"\x00" * (64 << 20), claimed=10))


def test_a_block_that_claims_too_much_is_refused() -> None:
    with pytest.raises(Corrupt, match="claims"):
        decode(block(b"\x90", claimed=MAX_RAW_BYTES + 1))


def test_a_block_that_unpacks_to_less_than_it_claims_is_refused() -> None:
    with pytest.raises(Corrupt):
        decode(block(b"\x90", claimed=5_000, count=0))


def test_a_block_of_a_newer_schema_is_refused_by_name() -> None:
    with pytest.raises(Corrupt, match="schema 2"):
        decode(block(b"\x90", schema=2))


def test_a_wrong_count_is_refused() -> None:
    with pytest.raises(Corrupt, match="claims 3 messages"):
        decode(block(b"\x90", count=3))


def records(count: int) -> list[NewMessage]:
    return [
        NewMessage(body=f'{{"order": {number}, "customer": "c-{number % 9}", "paid": true}}') for number in range(count)
    ]


def noise(count: int) -> list[NewMessage]:
    drawn = random.Random(7)
    return [NewMessage(body=drawn.randbytes(100).hex()) for _ in range(count)]


def test_a_large_batch_of_noise_is_compressed_fast_and_comes_back() -> None:
    fast, thorough = (encode(noise(200), noise_bytes=limit) for limit in (4_096, 1 << 20))
    assert len(thorough.data) < len(fast.data) <= fast.raw_bytes + HEADER_BYTES
    assert decode(fast.data) == decode(thorough.data)


def test_a_batch_of_records_takes_as_little_space_whatever_its_size() -> None:
    assert encode(records(200), noise_bytes=4_096) == encode(records(200), noise_bytes=1 << 20)


def test_a_small_batch_of_noise_takes_as_little_space_as_possible() -> None:
    assert encode(noise(10), noise_bytes=4_096) == encode(noise(10), noise_bytes=1 << 20)
