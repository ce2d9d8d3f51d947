"""Answers of HTTP/1.1 are parsed however their bytes are cut."""

import http.client

import pytest

from hourwheel.client.transport.answers import AnswerParser

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\nDate: now\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;name=value\r\nlo\r\n0\r\nTrailer: x\r\n\r\n"
)


def parsed(*pieces: bytes, end: bool = False) -> AnswerParser:
    parser = AnswerParser()
    *before, last = pieces
    assert [parser.feed(piece) for piece in before] == [False] * len(before)
    complete = parser.feed(last)
    assert complete is not end
    if end:
        assert parser.end()
    return parser


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN])
@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_an_answer_is_the_same_however_it_is_cut(answer: bytes, size: int) -> None:
    parser = parsed(*(answer[start : start + size] for start in range(0, len(answer), size)))
    assert parser.reply is not None
    assert (parser.reply.status, parser.reply.body, parser.reusable) == (200, b"hello", True)


def test_an_answer_shows_the_fields_that_the_client_reads() -> None:
    reply = parsed(PLAIN).reply
    assert reply is not None
    assert (reply.kind, reply.date, reply.encoding, reply.retry_after) == ("application/json", "now", None, None)


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    parser = parsed(b"HTTP/1.0 502 Bad Gateway\r\n\r\nso", b"rry", end=True)
    assert parser.reply is not None
    assert (parser.reply.status, parser.reply.body, parser.reusable) == (502, b"sorry", False)


def test_no_content_has_no_body() -> None:
    parser = parsed(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert parser.reply is not None
    assert (parser.reply.body, parser.reusable) == (b"", True)


@pytest.mark.parametrize(
    "answer",
    [
        PLAIN.replace(b"Date: now", b"Connection: close"),
        PLAIN.replace(b"HTTP/1.1", b"HTTP/1.0"),
        PLAIN.replace(b"Date: now", b"Connection: keep-alive, Close"),
        PLAIN + b"more",
        CHUNKED + b"HTTP/1.1 200 OK\r\nContent-Le",
    ],
)
def test_a_connection_that_is_to_end_or_holds_too_much_is_not_used_again(answer: bytes) -> None:
    assert not parsed(answer).reusable


@pytest.mark.parametrize(
    "answer",
    [
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"HTTP/1.1 two hundred\r\n\r\n",
        PLAIN.replace(b"Length: 5", b"Length: -5"),
        PLAIN.replace(b"Length: 5", b"Length: \xb2"),
        PLAIN.replace(b"Length: 5", b"Length: " + b"5" * 5_000),
        CHUNKED.replace(b"3\r\n", b"-3\r\n", 1),
        CHUNKED.replace(b"3\r\n", b"x\r\n", 1),
        CHUNKED.replace(b"hel\r\n", b"helXX"),
        CHUNKED.replace(b"chunked", b"gzip"),
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(http.client.HTTPException):
        AnswerParser().feed(answer)


@pytest.mark.parametrize("answer", [b"", PLAIN[:10], PLAIN[:-1], CHUNKED[:-4]])
def test_an_answer_that_is_cut_off_is_none(answer: bytes) -> None:
    parser = AnswerParser()
    assert not parser.feed(answer)
    with pytest.raises(http.client.HTTPException):
        parser.end()
