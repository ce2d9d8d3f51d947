"""With TLS, the server knows the number of unsent bytes, and counts every connection."""

import asyncio
import resource
import socket
import ssl
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from hourwheel.embedded.credentials.tls import server_context
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.requests import Request
from tests.certificates import Certificate
from tests.unit.embedded.http.talking import LAST, LONG, Client, Tls, get, post, quick, said, statuses

SOON = 0.05
LARGE = b"x" * 20_000_000


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    made = Certificate(tmp_path_factory.mktemp("certificates") / "mine")
    return Tls(server_context(made.chain, made.key), ssl.create_default_context(cafile=made.chain))


async def large(request: Request) -> Answer:
    return Answer(200, {}, LARGE)


def test_requests_are_answered_in_their_order(tls: Tls) -> None:
    async def talk(client: Client) -> bytes:
        await client.send(post("/", "a" * 50_000), post("/", "b"), get("/c", LAST))
        answer = await client.reader.read()
        assert [one[:8] for one in client.seen] == ["POST / a", "POST / b", "GET /c"]
        return answer

    assert statuses(said(talk, tls=tls)) == [200, 200, 200]


@pytest.mark.parametrize("ends", [False, True])
def test_an_answer_that_nobody_reads_is_cut(tls: Tls, ends: bool) -> None:
    async def talk(client: Client) -> bytes:
        client.writer.transport.pause_reading()
        await client.send(get("/", *([LAST] if ends else [])))
        while client.registry.open:
            await asyncio.sleep(0.001)
        return b"cut"

    assert said(talk, tls=tls, bounds=quick(answer_seconds=SOON), respond=large) == b"cut"


def test_no_further_request_is_answered_while_one_answer_is_unread(tls: Tls) -> None:
    answered = 0

    async def respond(request: Request) -> Answer:
        nonlocal answered
        answered += 1
        return await large(request)

    async def talk(client: Client) -> bytes:
        client.writer.transport.pause_reading()
        client.writer.write(get("/") * 100)
        while client.registry.open:
            await asyncio.sleep(0.001)
        return b""

    said(talk, tls=tls, bounds=quick(answer_seconds=SOON), respond=respond)
    assert answered == 1


def test_the_last_answer_of_a_connection_is_whole_however_slowly_it_is_read(tls: Tls) -> None:
    async def talk(client: Client) -> bytes:
        return await asyncio.to_thread(_read_slowly, client.writer.get_extra_info("peername"), tls)

    assert int(said(talk, tls=tls, handshake=False, respond=large)) > len(LARGE)


def test_one_that_does_not_shake_hands_counts_and_has_the_time_of_a_head(tls: Tls) -> None:
    async def talk(client: Client) -> bytes:
        while not client.registry.open:
            await asyncio.sleep(0)
        return await client.reader.read()

    assert said(talk, tls=tls, handshake=False, bounds=quick(head_seconds=SOON)) == b""


def test_connections_beyond_the_cap_are_told_to_come_back(tls: Tls) -> None:
    async def talk(client: Client) -> bytes:
        return await client.reader.read()

    assert statuses(said(talk, tls=tls, cap=0)) == [503]


def test_one_beyond_the_cap_that_does_not_shake_hands_is_closed(tls: Tls) -> None:
    async def talk(client: Client) -> bytes:
        with suppress(ConnectionError):
            return await client.reader.read()
        return b""

    assert said(talk, tls=tls, handshake=False, cap=0) == b""


@pytest.mark.parametrize("sent", [get("/"), b"\x16\x03\x01\x00\x04abcd"], ids=["plain text", "broken"])
def test_what_is_not_tls_ends(tls: Tls, sent: bytes) -> None:
    async def talk(client: Client) -> bytes:
        await client.send(sent)
        return await client.reader.read()

    assert b"HTTP" not in said(talk, tls=tls, handshake=False)


def test_a_connection_ends_with_its_client(tls: Tls) -> None:
    async def talk(client: Client) -> bytes:
        await client.send(post("/", "half")[:-2])
        client.writer.close()
        return await client.reader.read()

    assert said(talk, tls=tls) == b""


def test_an_open_connection_does_not_keep_the_memory_of_its_largest_answer(tls: Tls) -> None:
    async def talk(client: Client) -> bytes:
        address = client.writer.get_extra_info("peername")
        with ExitStack() as stack:
            await asyncio.to_thread(_read_large, stack, address, tls)  # what the process keeps once
            before = _resident_bytes()
            for _ in range(10):
                await asyncio.to_thread(_read_large, stack, address, tls)
            return b"%d" % (_resident_bytes() - before)

    assert int(said(talk, tls=tls, handshake=False, respond=large)) < 2 * len(LARGE)


def _read_large(stack: ExitStack, address: tuple[str, int], tls: Tls) -> None:
    raw = stack.enter_context(socket.create_connection(address, timeout=LONG))
    connection = stack.enter_context(tls.client.wrap_socket(raw, server_hostname=address[0]))
    connection.sendall(get("/"))
    unread = len(LARGE)
    while unread > 0:
        unread -= len(connection.recv(200_000))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _read_slowly(address: tuple[str, int], tls: Tls) -> bytes:
    """Returns the length of the answer at a blocking client: the client of the event loop drops unread bytes when TLS
    ends."""
    size = 0
    with (
        socket.create_connection(address, timeout=LONG) as raw,
        tls.client.wrap_socket(raw, server_hostname=address[0]) as connection,
    ):
        connection.sendall(get("/", LAST))
        while part := connection.recv(200_000):
            size += len(part)
            time.sleep(0.0005)
    return b"%d" % size
