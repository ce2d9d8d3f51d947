"""Bodies are decompressed within the bound of their caller, and only if they are one complete gzip stream."""

import gzip

import pytest

from hourwheel.wire.gzipped import MAGIC, TooLong, pack, unpack


@pytest.mark.parametrize("data", [b"", b"a", b"order " * 10_000], ids=["empty", "a byte", "long"])
def test_a_body_comes_back_as_it_was_packed(data: bytes) -> None:
    assert unpack(pack(data), len(data)) == data
    assert gzip.decompress(pack(data)) == data


def test_a_packed_body_begins_as_gzip_does() -> None:
    assert pack(b"a").startswith(MAGIC)


def test_a_body_of_exactly_the_bound_is_taken_and_one_byte_more_is_not() -> None:
    packed = gzip.compress(b"x" * 1_000)
    assert len(unpack(packed, 1_000)) == 1_000
    with pytest.raises(TooLong, match="more than 999 bytes"):
        unpack(packed, 999)


def test_a_bomb_is_refused_at_the_bound() -> None:
    with pytest.raises(TooLong):
        unpack(gzip.compress(bytes(50_000_000), 9), 1_000)


def test_a_stream_that_is_cut_off_is_refused_wherever_it_ends() -> None:
    packed = gzip.compress(b"an order of some length, and another one")
    for end in range(len(packed)):
        with pytest.raises(ValueError, match="ends before its gzip stream"):
            unpack(packed[:end], 1_000)


def test_bytes_behind_the_stream_are_refused() -> None:
    with pytest.raises(ValueError, match="bytes after its gzip stream"):
        unpack(gzip.compress(b"a") + b"b", 1_000)


def test_a_second_stream_behind_the_first_is_refused() -> None:
    with pytest.raises(ValueError, match="bytes after its gzip stream"):
        unpack(gzip.compress(b"a") + gzip.compress(b"b"), 1_000)


def test_a_stream_with_a_wrong_checksum_is_refused() -> None:
    packed = bytearray(gzip.compress(b"order 7"))
    packed[-8] ^= 1
    with pytest.raises(ValueError, match="not valid gzip"):
        unpack(bytes(packed), 1_000)


@pytest.mark.parametrize(
    "data", [b"{}", b"\x1f\x8b\x09" + bytes(8), b"\x78\x9c\x03\x00\x00\x00\x00\x01"], ids=["JSON", "9", "zlib"]
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not valid gzip"):
        unpack(data, 1_000)


@pytest.mark.parametrize(("size", "taken"), [(1 << 20, True), ((1 << 20) + 1, False), (5_000_000, False)])
def test_a_body_may_be_packed_to_a_two_hundredth_once_it_is_long(size: int, taken: bool) -> None:
    packed = gzip.compress(b" " * size)
    assert len(packed) * 200 < size
    if taken:
        assert len(unpack(packed, 6_000_000)) == size
    else:
        with pytest.raises(TooLong):
            unpack(packed, 6_000_000)
