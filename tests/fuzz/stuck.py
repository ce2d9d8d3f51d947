"""Runs clients that stop or never end: the server ends each connection."""

import asyncio
from contextlib import suppress
from typing import NamedTuple

from tests.fuzz.oracle import Violation

SECONDS = 30.0
_HOST = b"Host: localhost\r\n"
_POST = b"POST /v1/subjects/orders/messages HTTP/1.1\r\n" + _HOST
_NOWHERE = b"POST /nowhere HTTP/1.1\r\n" + _HOST
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
_LONG = b"Content-Length: 5000000\r\n\r\n{"


class Shape(NamedTuple):
    name: str
    begin: bytes
    more: bytes = b""


SHAPES = (
    Shape("sends nothing", b""),
    Shape("sends line ends", b"", b"\r\n"),
    Shape("stops in the head", b"GET /v1/health HTT"),
    Shape("sends a head slowly", b"GET /v1/health HTTP/1.1\r\n", b"a: b\r\n"),
    Shape("stops in the body", _POST + _LONG),
    Shape("sends a body slowly", _POST + _LONG, b" "),
    Shape("sends chunks slowly", _POST + _CHUNKED, b"1\r\n \r\n"),
    Shape("sends trailers slowly", _POST + _CHUNKED + b"0\r\n", b"a: b\r\n"),
    Shape("sends a trailer slowly", _POST + _CHUNKED + b"0\r\na: ", b"b"),
    Shape("was answered early and is silent", _NOWHERE + _LONG),
    Shape("was answered early and sends on", _NOWHERE + _LONG, b" "),
    Shape("was answered early and sends chunks", _NOWHERE + _CHUNKED, b"1\r\n \r\n"),
    Shape("was answered early and sends a trailer", _NOWHERE + _CHUNKED + b"0\r\na: ", b"b"),
    Shape("asked before it sent a body, and is silent", _NOWHERE + b"Expect: 100-continue\r\n" + _LONG[:-1]),
    Shape("said that it is too large", _POST + b"Content-Length: 9000000\r\n\r\n", b" "),
    Shape("was refused and sends on", b"HELLO\r\n\r\n", b"x"),
)


async def stay(port: int, shape: Shape) -> None:
    """Raises ``Violation`` if the server has not ended the connection in time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(SECONDS):
            writer.write(shape.begin)
            ended = asyncio.ensure_future(reader.read())
            while not ended.done():
                writer.write(shape.more)
                await asyncio.sleep(0.05)
            with suppress(ConnectionError):
                ended.result()
    except TimeoutError:
        raise Violation(f"a client that {shape.name} stays") from None
    finally:
        writer.transport.abort()
