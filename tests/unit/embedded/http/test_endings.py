"""A connection leaves nothing behind, whatever ended it: its objects go at once, without the garbage collector."""

import asyncio
import gc
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest

from hourwheel.embedded.credentials.tls import server_context
from hourwheel.embedded.greenlets import GreenletRunner
from hourwheel.embedded.http.answer_plans import Plan, no_plan
from hourwheel.embedded.http.answers import Answer, encode_answer
from hourwheel.embedded.http.bounds import Bounds
from hourwheel.embedded.http.connection import Connection
from hourwheel.embedded.http.requests import Disconnected, Request
from hourwheel.embedded.http.secure import Secure
from tests.certificates import Certificate
from tests.unit.embedded.http.talking import LAST, LONG, Client, Tls, chunked, get, post, quick, said

SOON = 0.05
BODY = b"x" * 500_000
KINDS = (Connection, Request, Secure, ssl.SSLObject)
Talk = Callable[[Client], Awaitable[None]]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    made = Certificate(tmp_path_factory.mktemp("certificates") / "mine")
    return Tls(server_context(made.chain, made.key), ssl.create_default_context(cafile=made.chain))


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def respond(request: Request) -> Answer:
    """Answers by the path: with an error, never, or with a large answer."""
    if request.path == "/fault":
        raise RuntimeError("planted")
    if request.path == "/refused":
        return Answer(401, {}, b"")
    await request.body()
    if request.path == "/wait":
        left = asyncio.Event()
        request.when_left(left.set)
        await left.wait()
        raise Disconnected
    return Answer(200, {}, BODY * (40 if request.path == "/large" else 1))


async def answered(client: Client) -> None:
    await client.send(get("/"))
    head = await client.reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head
    await client.reader.readexactly(len(BODY))


async def closes(client: Client) -> None:
    await answered(client)
    client.writer.close()


async def closes_early(client: Client) -> None:
    await client.send(post("/", "half")[:-2])
    client.writer.close()


async def leaves(client: Client) -> None:
    await client.send(get("/wait"))
    while not client.registry.busy:
        await asyncio.sleep(0)
    client.writer.close()


async def half_closes(client: Client) -> None:
    await answered(client)
    if client.writer.can_write_eof():
        client.writer.write_eof()
        await client.reader.read()
    else:
        await asyncio.to_thread(_half_closes_tls, client, ends_tls=False)


async def ends_tls(client: Client) -> None:
    await asyncio.to_thread(_half_closes_tls, client, ends_tls=True)


def _half_closes_tls(client: Client, *, ends_tls: bool) -> None:
    """Ends the client's side of a second connection, with or without the end of TLS: the client of the event loop
    does neither alone."""
    context, address = (client.writer.get_extra_info(name) for name in ("sslcontext", "peername"))
    with (
        socket.create_connection(address, timeout=LONG) as raw,
        context.wrap_socket(raw, server_hostname=address[0]) as secure,
    ):
        secure.sendall(get("/"))
        unread = len(encode_answer(Answer(200, {}, BODY), close=False))
        while unread > 0:
            unread -= len(secure.recv(unread))
        if ends_tls:
            secure.unwrap().close()
        else:
            secure.shutdown(socket.SHUT_WR)
            while secure.recv(1 << 16):  # the end of TLS, and of the connection
                pass


async def resets(client: Client) -> None:
    await client.send(get("/wait"))
    while not client.registry.busy:
        await asyncio.sleep(0)
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


async def resets_idle(client: Client) -> None:
    await answered(client)
    client.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


async def last(client: Client) -> None:
    await client.send(get("/", LAST))
    await client.reader.read()


async def silent(client: Client) -> None:
    await client.reader.read()


async def idle(client: Client) -> None:
    await answered(client)
    await client.reader.read()


async def half_a_head(client: Client) -> None:
    await client.send(get("/")[:-2])
    await client.reader.read()


async def half_a_body(client: Client) -> None:
    await client.send(post("/", "x" * 100_000)[:-10])
    await client.reader.read()


async def half_an_unwanted_body(client: Client) -> None:
    await client.send(post("/refused", "x" * 100_000)[:-10])
    await client.reader.read()


async def unread(client: Client) -> None:
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
    await client.send(get("/large"))
    while client.registry.open:
        await asyncio.sleep(0.001)


async def malformed(client: Client) -> None:
    await client.send(chunked("/") + b"x\r\n")
    await client.reader.read()


async def faulty(client: Client) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    await client.send(get("/fault"))
    with suppress(ConnectionError):
        await client.reader.read()


async def stopped(client: Client) -> None:
    await answered(client)
    client.registry.stopping = True
    client.registry.finish()
    await client.reader.read()


async def stopped_at_work(client: Client) -> None:
    await client.send(get("/wait"))
    while not client.registry.busy:
        await asyncio.sleep(0)
    client.registry.abort()
    with suppress(ConnectionError):
        await client.reader.read()


ENDINGS: dict[str, tuple[Talk, Bounds]] = {
    "its client closes": (closes, quick()),
    "its client closes within a request": (closes_early, quick()),
    "its client leaves before the answer": (leaves, quick()),
    "its client ends its side": (half_closes, quick()),
    "its client ends TLS": (ends_tls, quick()),
    "its client resets it before the answer": (resets, quick()),
    "its client resets it": (resets_idle, quick()),
    "after its last answer": (last, quick()),
    "nothing is sent": (silent, quick(head_seconds=SOON)),
    "it is idle": (idle, quick(idle_seconds=SOON)),
    "its head is late": (half_a_head, quick(head_seconds=SOON)),
    "its body is late": (half_a_body, quick(request_seconds=SOON)),
    "its unwanted body is late": (half_an_unwanted_body, quick(request_seconds=SOON)),
    "its answer is not read": (unread, quick(answer_seconds=SOON)),
    "its request is malformed": (malformed, quick()),
    "the application fails": (faulty, quick()),
    "the server stops": (stopped, quick()),
    "the server stops at once": (stopped_at_work, quick()),
}


def left_behind(
    talk: Talk, *, bounds: Bounds, tls: Tls | None, handshake: bool = True, cap: int = 100, plan: Plan = no_plan
) -> dict[str, int]:
    """Has the talk with a server of one connection, and returns the number of its objects that are left."""
    left: dict[str, int] = {}

    async def watched(client: Client) -> bytes:
        await talk(client)
        client.writer.close()
        with suppress(OSError):
            await client.writer.wait_closed()
        while client.registry.open or client.registry.farewells or client.registry.busy:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)  # the callback that ended the connection returns
        assert client.registry.held_bytes == 0
        assert not client.registry.strangers
        mine = client.writer.get_extra_info("ssl_object")
        objects = [each for each in gc.get_objects() if isinstance(each, KINDS) and each is not mine]
        left.update({kind.__name__: sum(type(each) is kind for each in objects) for kind in KINDS})
        return b""

    said(watched, bounds=bounds, respond=respond, tls=tls, handshake=handshake, cap=cap, plan=plan)
    return left


NOTHING = dict.fromkeys((kind.__name__ for kind in KINDS), 0)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("name", "secure"),
    [(name, secure) for name in ENDINGS for secure in (False, True) if secure or name != "its client ends TLS"],
)
def test_no_object_of_a_connection_stays(name: str, secure: bool, tls: Tls) -> None:
    talk, bounds = ENDINGS[name]
    assert left_behind(talk, bounds=bounds, tls=tls if secure else None) == NOTHING


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_no_object_of_one_beyond_the_cap_stays(secure: bool, tls: Tls) -> None:
    assert left_behind(silent, bounds=quick(), tls=tls if secure else None, cap=0) == NOTHING


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("sent", [b"", get("/"), b"\x16\x03\x01\x00\x04abcd"], ids=["silent", "plain text", "broken"])
def test_no_object_of_one_that_does_not_shake_hands_stays(sent: bytes, tls: Tls) -> None:
    async def talk(client: Client) -> None:
        await client.send(sent)
        with suppress(ConnectionError):
            await client.reader.read()

    assert left_behind(talk, bounds=quick(head_seconds=SOON), tls=tls, handshake=False) == NOTHING


@pytest.mark.usefixtures("uncollected")
def test_a_greenlet_that_is_kept_for_later_work_keeps_nothing_of_the_earlier(tls: Tls) -> None:
    greenlets = GreenletRunner()

    def plan(request: Request) -> Callable[[Request, Callable[[Answer], None]], None]:
        greenlets.attach(asyncio.get_running_loop())
        return lambda request, reply: greenlets.spawn(lambda: reply(Answer(200, {}, BODY)))

    assert left_behind(closes, bounds=quick(), tls=tls, plan=plan) == NOTHING
