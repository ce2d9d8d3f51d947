"""The server finds the end of a body, in whatever pieces it arrives."""

import pytest

from hourwheel.embedded.http.bodies import Body, ChunkedBody, SizedBody, TooMuch
from hourwheel.embedded.http.heads import Malformed

EXTRA = 50


def read(body: Body, *pieces: bytes) -> tuple[bytes, bytes]:
    """Returns the body, and the rest behind it."""
    parts, rest = [], b""
    for piece in pieces:
        part, rest = body.feed(rest + piece)
        parts.append(part)
    return b"".join(parts), rest


CHUNKED = b'5\r\nhello\r\n00006;a="b\t;"\r\n world\r\n0 ;x\r\nAuthorization: Bearer t\r\nx:\r\n\r\n'


@pytest.mark.parametrize("cut", range(len(CHUNKED)))
def test_chunks_come_in_any_pieces(cut: int) -> None:
    body = ChunkedBody(EXTRA)
    assert read(body, CHUNKED[:cut], CHUNKED[cut:] + b"GET") == (b"hello world", b"GET")
    assert body.complete


def test_chunks_come_byte_by_byte() -> None:
    body = ChunkedBody(EXTRA)
    assert read(body, *(bytes([byte]) for byte in CHUNKED)) == (b"hello world", b"")
    assert body.complete


@pytest.mark.parametrize("cut", range(6))
def test_a_body_of_known_length_ends_there(cut: int) -> None:
    body = SizedBody(5)
    assert read(body, b"hello"[:cut], b"hello"[cut:] + b"GET") == (b"hello", b"GET")
    assert body.complete


def test_a_body_of_no_length_is_complete_at_once() -> None:
    assert SizedBody(0).complete


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b" 1\r\n",
        b"1 \r\n",
        b"1000000000000000\r\n",
        b"1\nx\r\n",
        b"1;\x00\r\n",
        b"1;a\nb\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n\r\n",
        b"1\r\nx\rz",
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\n folded: x\r\n\r\n",
        b"0\r\nx: \x00\r\n\r\n",
        b"0\r\nx: a\nb: c\r\n\r\n",
    ],
)
def test_what_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        read(ChunkedBody(EXTRA), data)


@pytest.mark.parametrize(
    "data",
    [
        b"1;" + b"a" * EXTRA + b"\r\n",
        b"1;aaaa\r\nx\r\n" * (EXTRA // 5 + 1),
        b"0\r\n" + b"a: b\r\n" * (EXTRA // 6 + 1),
        b"0\r\na: " + b"b" * EXTRA + b"\r\n",
        b"1;" + b"a" * (EXTRA + 16),
        b"0\r\na" + b"b" * (EXTRA + 16),
        b"1\r\nx\r\n" * (EXTRA // 4 + 1),
        b"00000000000001\r\nx\r\n" * (EXTRA // 17 + 1),
    ],
    ids=[
        *("an extension", "extensions", "trailers", "a trailer", "an extension without end", "a trailer without end"),
        *("chunks of a byte", "sizes full of zeros"),
    ],
)
def test_extensions_trailers_and_the_framing_of_tiny_chunks_are_counted(data: bytes) -> None:
    with pytest.raises(TooMuch):
        read(ChunkedBody(EXTRA), data)


def test_chunks_that_are_larger_than_their_framing_are_not_counted() -> None:
    body = ChunkedBody(EXTRA)
    assert read(body, b"5\r\nhello\r\n" * 10_000 + b"0\r\n\r\n") == (b"hello" * 10_000, b"")
