"""Puts requests on the wire, in ways that must change nothing, and in ways that must be refused."""

from random import Random
from typing import NamedTuple

from tests.fuzz.grammar import Call

_UPGRADES = (
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
    "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n",
    "connection: keep-alive, UPGRADE\r\nupgrade: foo/2\r\n",
)
_HARMLESS = (
    "Content-Type: application/json\r\n",
    "Cookie: a=b; c=d\r\nX-Empty:\r\n",
    "Trailer: Authorization\r\nTE: trailers\r\n",
    "Expect: 100-continue\r\n",
    "X-Latin: \u00e9\r\n",
    "Accept-Encoding: gzip, br\r\n",
    "Range: bytes=0-1\r\nIf-Match: *\r\n",
    "X-Long: " + "x" * 8_000 + "\r\n",
)
_BROKEN = (
    ("\r\n", "\n"),
    (" HTTP/1.1", " HTTP/2.0"),
    (" HTTP/1.1", ""),
    ("Host:", "Host :"),
    ("Host:", "Host: a\r\nHost:"),
    ("Host: ", "X-Host: "),
    ("Host: localhost", "Host: [::1].evil.com"),
    ("Host: localhost\r\n", "Host: localhost\r\n folded: x\r\n"),
    ("Host: localhost\r\n", "Host: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
    ("Host: localhost\r\n", "Host: localhost\r\nTransfer-Encoding: gzip, chunked\r\n"),
    ("Host: localhost\r\n", "Host: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n"),
    ("Host: localhost\r\n", "Host: localhost\r\nContent-Length: -1\r\n"),
    ("Host: localhost\r\n", "Host: localhost\r\nX: \x00\r\n"),
    ("Host: localhost\r\n", "Host: localhost\r\nX: a\rb\r\n"),
    ("Host: localhost\r\n", "Host: localhost\r\n" + "a: b\r\n" * 200),
    ("Host: localhost\r\n", "Host: localhost\r\nX: " + "x" * 70_000 + "\r\n"),
)
_BROKEN_CHUNKS = (
    b"x\r\n",
    b"-1\r\n",
    b"1\nx",
    b"3\r\nabcd\r\n",
    b"1;\x00\r\n",
    b"0\r\n bad\r\n\r\n",
    b"fffffffffffffffff\r\n",
)


class Sent(NamedTuple):
    """The bytes of a request. ``whole``: they are a valid request, which the server must answer; otherwise it must
    refuse them with 400 or 431 and end the connection."""

    data: bytes
    whole: bool


def encode(rng: Random, call: Call) -> Sent:
    head = f"{call.method} {_target(rng, call)} HTTP/1.1\r\nHost: localhost\r\n"
    for extra in rng.sample(_HARMLESS, k=rng.choice((0, 0, 0, 1, 2))):
        head += extra
    if call.msgpack:
        head = _typed(head)
    if rng.random() < 0.25:
        head += "Accept: application/msgpack\r\n"
    if rng.random() < 0.15:
        head += rng.choice(_UPGRADES)
    if rng.random() < 0.06:
        return _broken(rng, head, call.body)
    if rng.random() < 0.35:
        return Sent((head + "Transfer-Encoding: chunked\r\n\r\n").encode("latin-1") + _chunks(rng, call.body), True)
    length = f"Content-Length: {len(call.body)}\r\n" if call.body or rng.random() < 0.5 else ""
    return Sent((head + length + "\r\n").encode("latin-1") + call.body, True)


def _typed(head: str) -> str:
    return head.replace("Content-Type: application/json\r\n", "") + "Content-Type: application/msgpack\r\n"


def _target(rng: Random, call: Call) -> str:
    return f"http://localhost:7420{call.target}" if rng.random() < 0.05 else call.target


def _broken(rng: Random, head: str, body: bytes) -> Sent:
    if rng.random() < 0.3:
        bad = rng.choice(_BROKEN_CHUNKS)
        return Sent((head + "Transfer-Encoding: chunked\r\n\r\n").encode("latin-1") + bad + b"\r\n\r\n", False)
    old, new = rng.choice(_BROKEN)
    return Sent((head.replace(old, new, 1) + f"Content-Length: {len(body)}\r\n\r\n").encode("latin-1") + body, False)


def _chunks(rng: Random, body: bytes) -> bytes:
    parts = []
    at = 0
    while at < len(body):
        size = rng.choice((1, 7, 100, 5_000, len(body)))
        part = body[at : at + size]
        at += size
        extension = rng.choice((b"", b"", b"", b";a", b' ; q="x,y"'))
        parts.append(b"%x%s\r\n%s\r\n" % (len(part), extension, part))
    trailers = rng.choice((b"", b"", b"Authorization: Bearer x\r\nContent-Length: 7\r\n", b"X: y\r\n" * 50))
    return b"".join(parts) + b"000\r\n" + trailers + b"\r\n"


def cut(rng: Random, data: bytes) -> list[bytes]:
    """Returns the bytes in the parts in which they are sent."""
    if rng.random() < 0.7:
        return [data]
    marks = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((1, 2, 5))))
    return [data[first:last] for first, last in zip([0, *marks], [*marks, len(data)], strict=True) if first < last]
