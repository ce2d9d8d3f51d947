"""What a connection may send before there is a request: so much, and for so long."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from hourwheel.embedded import protocol

LONG = 30.0
START = b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n"
END = b"\r\n"
EMPTY = len("/v1/health") + len("host: localhost\r\n")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


async def application(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


def said(talk: Talk) -> bytes:
    """What a server answers until it closes the connection."""

    async def run() -> bytes:
        config = uvicorn.Config(application, lifespan="off", log_config=None)
        state = ServerState()
        loop = asyncio.get_running_loop()
        made = await loop.create_server(lambda: protocol.Protocol(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname())
        try:
            async with asyncio.timeout(LONG):
                return await talk(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            made.close()
            await made.wait_closed()

    return asyncio.run(run())


def test_an_endless_header_is_refused() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(START + b"x: ")
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(b"a" * 10_000)
            with suppress(OSError):
                await writer.drain()
            await asyncio.sleep(0)
        return await answer

    assert_refused(said(talk), 431, "headers-too-large")


@pytest.mark.parametrize(("size", "fits"), [(protocol.HEAD_BYTES, True), (protocol.HEAD_BYTES + 1, False)])
@pytest.mark.parametrize("pieces", [1, 3])
def test_headers_may_be_so_large(size: int, fits: bool, pieces: int) -> None:
    header = b"x: " + b"a" * (size - EMPTY - len("x: \r\nconnection: close\r\n")) + b"\r\nconnection: close\r\n"
    request = START + header + END
    step = -(-len(request) // pieces)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for at in range(0, len(request), step):
            writer.write(request[at : at + step])
            await writer.drain()
            await asyncio.sleep(0.01)
        return await reader.read()

    answer = said(talk)
    if fits:
        assert answer.startswith(b"HTTP/1.1 204 ")
    else:
        assert_refused(answer, 431, "headers-too-large")


def test_headers_that_do_not_arrive_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(START)
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(b"a: b\r\n")
            await asyncio.sleep(0.01)
        return await answer

    assert_refused(said(talk), 408, "request-timeout")


def test_those_of_a_later_request_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(START + END)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
        await asyncio.sleep(0.1)
        writer.write(START)
        return await reader.read()

    assert_refused(said(talk), 408, "request-timeout")


def test_a_connection_that_sends_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        return await reader.read()

    assert said(talk) == b""


def test_a_body_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nconnection: close\r\n\r\na")
        await asyncio.sleep(0.1)
        writer.write(b"b")
        return await reader.read()

    assert said(talk).startswith(b"HTTP/1.1 204 ")


def assert_refused(answer: bytes, status: int, slug: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in head
    assert f"urn:hourwheel:{slug}".encode() in body
