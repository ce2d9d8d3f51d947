"""The head of a request is understood, or refused where two readers could understand it differently."""

import pytest

from hourwheel.embedded.http.heads import Malformed, parse_head, without_length

GET = b"GET / HTTP/1.1\r\nhost: a"


def test_a_request_line_and_headers_are_taken_apart() -> None:
    head = parse_head(
        b"POST /v1/a%2Fb?x=1&y HTTP/1.1\r\nHOST: localhost:7420\r\nX-One: \t a b \t\r\nContent-Length: 12"
    )
    assert (head.method, head.path, head.query, head.length) == ("POST", "/v1/a%2Fb", "x=1&y", 12)
    assert head.headers == [(b"host", b"localhost:7420"), (b"x-one", b"a b"), (b"content-length", b"12")]


@pytest.mark.parametrize(
    ("extra", "length", "keep_alive", "expects"),
    [
        (b"", 0, True, False),
        (b"\r\ncontent-length: 0", 0, True, False),
        (b"\r\nTransfer-Encoding: CHUNKED", None, True, False),
        (b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c", 0, True, False),
        (b"\r\nConnection: x\r\nConnection: y , Close", 0, False, False),
        (b"\r\nExpect: 100-Continue", 0, True, True),
    ],
)
def test_framing(extra: bytes, length: int | None, keep_alive: bool, expects: bool) -> None:
    head = parse_head(GET + extra)
    assert (head.length, head.keep_alive, head.expects_continue) == (length, keep_alive, expects)


def test_http_1_0_needs_no_host_keeps_no_connection_and_expects_nothing() -> None:
    head = parse_head(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\nexpect: 100-continue")
    assert (head.keep_alive, head.expects_continue) == (False, False)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [(b"http://b.example/v1?x", "/v1", "x"), (b"HTTP://b.example", "/", ""), (b"https://b.example?x=/", "/", "x=/")],
)
def test_the_authority_of_an_absolute_uri_replaces_the_host(target: bytes, path: str, query: str) -> None:
    head = parse_head(b"GET " + target + b" HTTP/1.1\r\nhost: a.example\r\nx: y")
    assert (head.path, head.query) == (path, query)
    assert head.headers == [(b"x", b"y"), (b"host", b"b.example")]


def test_options_may_ask_for_the_server() -> None:
    assert parse_head(b"OPTIONS * HTTP/1.1\r\nhost: a").path == "*"


@pytest.mark.parametrize(
    "head",
    [
        b"HELLO",
        b"GET /",
        b"GET  / HTTP/1.1\r\nhost: a",
        b" GET / HTTP/1.1\r\nhost: a",
        b"GET /\tx HTTP/1.1\r\nhost: a",
        b"GET /\xc3\xa9 HTTP/1.1\r\nhost: a",
        b"GET / HTTP/2.0\r\nhost: a",
        b"GET / http/1.1\r\nhost: a",
        b"PRI * HTTP/2.0",
        b"CONNECT localhost:80 HTTP/1.1\r\nhost: a",
        b"GET * HTTP/1.1\r\nhost: a",
        b"GET a HTTP/1.1\r\nhost: a",
        b"GET /#x HTTP/1.1\r\nhost: a",
        b"GET http:///x HTTP/1.1\r\nhost: a",
        b"GET http://user@b/x HTTP/1.1\r\nhost: a",
        b"GET ftp://b/x HTTP/1.1\r\nhost: a",
        b"GET / HTTP/1.1",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: a",
        b"GET / HTTP/1.0\r\nhost: a\r\nhost: b",
        b"GET http://b/ HTTP/1.1\r\nhost: a\r\nHost: b",
        b"GET / HTTP/1.1\r\nhost: a b",
        b"GET / HTTP/1.1\r\nhost: [::1].evil.com",
        b"GET / HTTP/1.1\r\nhost: a@b",
        GET + b"\r\nx : y",
        GET + b"\r\n x: y",
        GET + b"\r\nx",
        GET + b"\r\n: y",
        GET + b"\r\nx: a\r\n folded",
        GET + b"\r\nx: a\r\n\tfolded: b",
        GET + b"\r\nx: \x00",
        GET + b"\r\nx: a\rb",
        GET + b"\r\nx: a\nhost: b",
        GET + b"\r\nx: a\x7f",
        GET + b"\r\n\xc3\xa9: a",
        GET + b"\r\ncontent-length: 1\r\ncontent-length: 2",
        GET + b"\r\ncontent-length: 1\r\ncontent-length: 1",
        GET + b"\r\ncontent-length: 1, 1",
        GET + b"\r\ncontent-length: +1",
        GET + b"\r\ncontent-length: -1",
        GET + b"\r\ncontent-length: 0x1",
        GET + b"\r\ncontent-length: 1_0",
        GET + b"\r\ncontent-length:",
        GET + b"\r\ncontent-length: 9999999999999999999",
        GET + b"\r\ncontent-length: 1\r\ntransfer-encoding: chunked",
        GET + b"\r\ntransfer-encoding: gzip, chunked",
        GET + b"\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked",
        GET + b"\r\ntransfer-encoding: chunked, identity",
        GET + b"\r\ntransfer-encoding: xchunked",
        GET + b"\r\ntransfer-encoding:",
        b"GET / HTTP/1.0\r\ntransfer-encoding: chunked",
    ],
)
def test_what_is_refused(head: bytes) -> None:
    with pytest.raises(Malformed):
        parse_head(head)


@pytest.mark.parametrize("line", [b"\r\ncontent-length: 12", b"\r\nContent-Length: 12"])
@pytest.mark.parametrize("more", [b"", b"\r\nx: y"])
def test_the_length_is_taken_out_of_a_head(line: bytes, more: bytes) -> None:
    assert without_length(GET + line + more) == (GET + more, 12)


@pytest.mark.parametrize(
    "lines",
    [
        b"",
        b"\r\ncontent-length: 12\r\ncontent-length: 12",
        b"\r\ncontent-length: 12\r\nContent-Length : 12",
        b"\r\ncontent-length: 12\r\ntransfer-encoding: chunked",
        b"\r\ncontent-length: 12, 12",
        b"\r\ncontent-length: +12",
        b"\r\ncontent-length: 1234567890123456789",
        b"\r\nx-content-length: 12",
    ],
)
def test_a_head_whose_length_is_not_plain_stays_whole(lines: bytes) -> None:
    assert without_length(GET + lines) == (GET + lines, None)


def test_a_folded_length_is_refused_without_its_first_line_too() -> None:
    with pytest.raises(Malformed):
        parse_head(without_length(GET + b"\r\ncontent-length: 1\r\n 2")[0])
