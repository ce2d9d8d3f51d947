"""Provides a server over loopback, and a client that sends bytes."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import uvloop

from hourwheel.embedded.http.answer_plans import Plan, Respond, no_plan
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.bounds import Bounds
from hourwheel.embedded.http.connection import Connection
from hourwheel.embedded.http.registry import ConnectionRegistry
from hourwheel.embedded.http.requests import Request
from hourwheel.embedded.http.secure import Secure

LONG = 120.0
"""Longer than anything here takes: a test that hangs fails."""


class Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    registry: ConnectionRegistry
    seen: list[str]
    """The requests that reached the application: method, path and body of each."""

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def send_until_closed(self, piece: bytes) -> bytes:
        """Sends again and again, and returns the bytes that the server sent meanwhile."""
        answer = asyncio.ensure_future(self.reader.read())
        while not answer.done():
            with suppress(OSError, RuntimeError):  # of uvloop: the handle is closed
                await self.send(piece)
            await asyncio.sleep(0.001)
        with suppress(ConnectionError):
            return await answer
        return b""


class Tls(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext


Talk = Callable[[Client], Awaitable[bytes]]


def said(
    talk: Talk,
    *,
    bounds: Bounds | None = None,
    cap: int = 100,
    respond: Respond | None = None,
    plan: Plan = no_plan,
    tls: Tls | None = None,
    handshake: bool = True,
) -> bytes:
    """Returns the result of the talk with a server that answers 200 and the request's body, unless ``respond`` is
    given. Without ``handshake`` the client of a server with TLS sends bytes as they are. Fails if a connection stays
    open."""

    async def run() -> bytes:
        registry = ConnectionRegistry(bounds or quick(), cap)
        seen: list[str] = []

        async def echo(request: Request) -> Answer:
            request.trusted = True
            body = await request.body()
            seen.append(f"{request.method} {request.path} {body.decode()}".rstrip())
            return Answer(200, {}, body)

        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            plain = Connection(registry, respond or echo, plan)
            return plain if tls is None else Secure(tls.server, plain)

        made = await loop.create_server(connection, "127.0.0.1", 0)
        watch = asyncio.ensure_future(registry.watch())
        context = tls.client if tls is not None and handshake else None
        reader, writer = await asyncio.open_connection(*made.sockets[0].getsockname(), ssl=context)
        try:
            async with asyncio.timeout(LONG):
                answer = await talk(Client(reader, writer, registry, seen))
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
                await registry.drained(LONG)
        finally:
            watch.cancel()
            made.close()
            registry.abort()
            await made.wait_closed()
        return answer

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def quick(**given: float) -> Bounds:
    """Bounds in time that no test reaches, but for those given; checked often."""
    long = {f"{name}_seconds": LONG for name in ("head", "request", "idle", "answer")}
    return Bounds(**{**long, "farewell_seconds": 0.05, "tick_seconds": 0.01, **given})


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *headers, "", ""]).encode()


def post(path: str, body: str, *headers: str) -> bytes:
    length = f"content-length: {len(body)}"
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: localhost", length, *headers, "", body]).encode()


def chunked(path: str, *headers: str) -> bytes:
    coding = "transfer-encoding: chunked"
    return "\r\n".join([f"POST {path} HTTP/1.1", "host: localhost", coding, *headers, "", ""]).encode()


LAST = "connection: close"


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def assert_refused(answer: bytes, status: int, slug: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in head
    assert b"content-type: application/problem+json" in head
    assert f"urn:hourwheel:{slug}".encode() in body


async def asking_first(client: Client) -> bytes:
    """Sends a body once the server has asked for it, and returns both answers."""
    head, body = post("/", "hello", "expect: 100-continue", LAST).split(b"\r\n\r\n")
    await client.send(head + b"\r\n\r\n")
    first = await client.reader.readuntil(b"\r\n\r\n")
    await client.send(body)
    return first + await client.reader.read()
