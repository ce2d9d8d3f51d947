"""Connections together hold a bounded number of bytes, and those that have shown no valid token give way at the cap."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import pytest

from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.bounds import Bounds
from hourwheel.embedded.http.registry import ConnectionRegistry
from hourwheel.embedded.http.requests import Request
from tests.unit.embedded.http.talking import Client, assert_refused, chunked, get, post, quick, said, statuses

MOST = 1_000_000
LARGE = b"x" * 20_000_000
PROBE = "/v1/health"


class Peer(NamedTuple):
    """A connection beside the first one."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> bytes:
        """Returns the answer, which has no body unless the server refuses."""
        self.writer.write(request)
        return await self.reader.readuntil(b"\r\n\r\n")

    async def closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


async def peer(client: Client) -> Peer:
    made = Peer(*await asyncio.open_connection(*client.writer.get_extra_info("peername")))
    made.reader._limit = 1 << 26  # type: ignore[attr-defined]  # a peer that pauses reads nothing behind its back
    return made


async def respond(request: Request) -> Answer:
    request.trusted = request.path.startswith("/known")
    if request.path == "/known/large":
        return Answer(200, {}, LARGE)
    if request.path == "/known/body":
        await request.body()
    if request.path == "/wait":
        left = asyncio.Event()
        request.when_left(left.set)
        await left.wait()
    return Answer(204, {}, b"")


async def end(*peers: Peer) -> None:
    for each in peers:
        each.writer.transport.abort()
        with suppress(OSError):
            await each.writer.wait_closed()


Case = Callable[[Client], Awaitable[None]]


def run(case: Case, *, cap: int = 100, **bounds: float) -> None:
    async def talk(client: Client) -> bytes:
        client.registry.probes = {PROBE}
        await case(client)
        return b""

    said(talk, cap=cap, bounds=quick(farewell_seconds=0.05, **bounds), respond=respond)


def test_the_stranger_that_has_been_idle_longest_gives_way_at_the_cap() -> None:
    async def case(client: Client) -> None:
        await client.send(get("/known"))
        await client.reader.readuntil(b"\r\n\r\n")
        silent, later = await peer(client), await peer(client)
        while len(client.registry.open) < 3:
            await asyncio.sleep(0)
        assert statuses(await silent.ask(get("/unknown"))) == [204]
        newest = await peer(client)
        assert statuses(await newest.ask(get("/known"))) == [204]
        assert await later.closed()  # it was idle for longer than the one that has asked since
        assert statuses(await silent.ask(get("/known"))) == [204]
        await client.send(get("/known"))
        assert statuses(await client.reader.readuntil(b"\r\n\r\n")) == [204]
        await end(silent, later, newest)

    run(case, cap=3)


@pytest.mark.parametrize(
    "begun", [b"", get("/")[:-2], post("/unknown", "x" * 100)[:-1]], ids=["silent", "half a head", "half a body"]
)
def test_one_with_half_a_request_gives_way_too(begun: bytes) -> None:
    async def case(client: Client) -> None:
        await client.send(begun)
        while not client.registry.open:
            await asyncio.sleep(0)
        newest = await peer(client)
        assert statuses(await newest.ask(get("/known"))) == [204]
        await end(newest)

    run(case, cap=1)


@pytest.mark.parametrize("path", ["/known", "/wait"])
def test_one_with_a_token_or_a_request_at_work_stays_and_a_probe_is_answered(path: str) -> None:
    async def case(client: Client) -> None:
        await client.send(get(path))
        while not client.registry.open or (path == "/wait" and not client.registry.busy):
            await asyncio.sleep(0)
        if path == "/known":
            await client.reader.readuntil(b"\r\n\r\n")
        refused, probe, silent = await peer(client), await peer(client), await peer(client)
        assert_refused(await refused.ask(get("/known")) + await refused.reader.read(), 503, "server-busy")
        assert b" 204 " in await probe.ask(get(PROBE))
        assert await probe.closed()
        assert_refused(await silent.reader.read(), 503, "server-busy")
        assert len(client.registry.open) == 1
        await end(refused, probe, silent)

    run(case, cap=1)


def test_an_address_has_a_cap_of_its_own() -> None:
    async def case(client: Client) -> None:
        await client.send(get("/known"))
        await client.reader.readuntil(b"\r\n\r\n")
        beyond = await peer(client)
        assert_refused(await beyond.ask(get("/known")) + await beyond.reader.read(), 503, "server-busy")
        await end(beyond)

    run(case, connections_per_address=1)


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one(first: str, second: str, shared: bool) -> None:
    class Quiet:
        def check_time(self, now: float) -> None: ...
        def finish(self) -> None: ...
        def abort(self) -> None: ...
        def give_way(self) -> bool:
            return False

    registry = ConnectionRegistry(Bounds(connections_per_address=1), 10)
    connections = [Quiet(), Quiet()]
    assert registry.enter(connections[0], first)
    assert registry.enter(connections[1], second) is not shared
    registry.exit(connections[0])
    registry.exit(connections[0])
    assert registry.enter(Quiet(), first)


async def filled(client: Client) -> None:
    """Leaves an answer unread that is larger than all connections may hold."""
    client.reader._transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
    await client.send(post("/known/large", ""))
    while not client.registry.is_full:
        await asyncio.sleep(0)


def test_requests_are_refused_while_unread_answers_fill_the_memory() -> None:
    async def case(client: Client) -> None:
        await filled(client)
        kept, refused = await peer(client), await peer(client)
        answer = await refused.ask(get("/known")) + await refused.reader.read()
        assert_refused(answer, 503, "server-busy")
        assert b"retry-after: 1\r\n" in answer
        assert statuses(await kept.ask(get(PROBE))) == [204]
        client.writer.transport.abort()
        while client.registry.is_full:
            await asyncio.sleep(0)
        assert statuses(await kept.ask(get("/known"))) == [204]
        await end(kept, refused)

    run(case, held_bytes=MOST)


def test_an_unread_answer_counts_as_a_whole_because_it_stays_in_memory_as_a_whole() -> None:
    async def case(client: Client) -> None:
        await filled(client)
        assert client.registry.held_bytes >= len(LARGE)
        client.writer.transport.abort()
        while client.registry.held_bytes:
            await asyncio.sleep(0)

    run(case, held_bytes=MOST)


def test_an_answer_that_is_ready_too_late_is_refused_unless_its_request_had_an_effect() -> None:
    async def case(client: Client) -> None:
        peers = [await peer(client) for _ in range(2)]
        for each in peers:
            each.writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a socket
            each.writer.write(get("/known/large"))
        posting = await peer(client)
        posting.writer.write(post("/known/large", ""))
        assert (await posting.reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
        await end(*peers, posting)

    run(case, held_bytes=len(LARGE) + MOST)


@pytest.mark.parametrize(
    "half",
    [
        post("/known/body", "x" * 5_000_000)[:2_000_000],
        chunked("/known/body") + b"%x\r\n" % 5_000_000 + bytes(2_000_000),
    ],
    ids=["sized", "chunked"],
)
def test_unfinished_bodies_fill_the_memory_too(half: bytes) -> None:
    async def case(client: Client) -> None:
        await client.send(half)
        answer = await client.reader.read()
        assert_refused(answer, 503, "server-busy")

    run(case, held_bytes=MOST)


def test_so_do_requests_that_are_sent_ahead() -> None:
    async def case(client: Client) -> None:
        await client.send(get("/wait") + get("/known") * 5_000)
        while client.registry.held_bytes < 50_000:
            await asyncio.sleep(0)
        client.registry.abort()
        while client.registry.held_bytes:
            await asyncio.sleep(0)

    run(case)


def test_a_body_that_is_not_wanted_takes_no_memory() -> None:
    sizes = []

    async def part_of(request: Request) -> Answer:
        body = await request.body(10)
        sizes.append((len(body), request.size))
        return Answer(204, {}, b"")

    async def talk(client: Client) -> bytes:
        await client.send(post("/", "x" * 1_000_000)[:500_000])
        answer = await client.reader.readuntil(b"\r\n\r\n")
        await client.send(b"x")
        assert client.registry.held_bytes == 0
        return answer

    assert statuses(said(talk, respond=part_of)) == [204]
    assert sizes == [(11, 11)]
