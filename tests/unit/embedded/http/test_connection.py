"""One request after the other, each answered once, with exactly its own body."""

import asyncio

import pytest

from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.bounds import Bounds
from hourwheel.embedded.http.requests import Disconnected, Request
from tests.unit.embedded.http.talking import (
    LAST,
    LONG,
    Client,
    asking_first,
    assert_refused,
    chunked,
    get,
    post,
    quick,
    said,
    statuses,
)

SMUGGLED = "DELETE /v1/subjects/orders HTTP/1.1\r\nhost: localhost\r\n\r\n"
UPGRADES = [
    (
        "connection: Upgrade, HTTP2-Settings",
        "upgrade: h2c",
        "http2-settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
    ),
    (
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
        "sec-websocket-version: 13",
    ),
    ("connection: Upgrade", "upgrade: x, y/1, TLS/1.0"),
]


@pytest.mark.parametrize("upgrade", UPGRADES, ids=["h2c", "websocket", "others"])
@pytest.mark.parametrize("pieces", [1, 7])
def test_an_upgrade_is_ignored_and_the_body_intact(upgrade: tuple[str, ...], pieces: int) -> None:
    seen: list[str] = []

    async def talk(client: Client) -> bytes:
        of_chunks = chunked("/chunked", *upgrade) + f"{len(SMUGGLED):x}\r\n{SMUGGLED}\r\n0\r\n\r\n".encode()
        data = post("/sized", SMUGGLED, *upgrade) + of_chunks + get("/last", LAST, *upgrade)
        step = -(-len(data) // pieces)
        await client.send(*(data[at : at + step] for at in range(0, len(data), step)))
        answer = await client.reader.read()
        seen.extend(client.seen)
        return answer

    assert statuses(said(talk)) == [200, 200, 200]
    assert seen == [f"POST /sized {SMUGGLED}".rstrip(), f"POST /chunked {SMUGGLED}".rstrip(), "GET /last"]


def test_trailers_are_dropped() -> None:
    headers: list[tuple[bytes, bytes]] = []

    async def respond(request: Request) -> Answer:
        await request.body()
        headers.extend(request.headers)
        return Answer(200, {}, b"")

    async def talk(client: Client) -> bytes:
        await client.send(chunked("/", LAST) + b"1\r\nx\r\n0\r\nAuthorization: Bearer s3cret\r\n\r\n")
        return await client.reader.read()

    assert statuses(said(talk, respond=respond)) == [200]
    assert b"authorization" not in dict(headers)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(b"".join(post(f"/{n}", f"<{n}>") for n in range(50)) + get("/last", LAST))
        return await client.reader.read()

    answer = said(talk)
    assert statuses(answer) == [200] * 51
    assert [int(part.split(b">")[0]) for part in answer.split(b"<")[1:]] == list(range(50))


def test_nothing_is_read_while_a_request_is_worked_on() -> None:
    release = asyncio.Event()

    async def respond(request: Request) -> Answer:
        await release.wait()
        return Answer(200, {}, b"")

    async def talk(client: Client) -> bytes:
        client.writer.write(get("/first") + post("/second", "x" * 50_000_000, LAST))
        while client.writer.transport.get_write_buffer_size() < 10_000_000:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert client.writer.transport.get_write_buffer_size() > 10_000_000
        release.set()
        return await client.reader.read()

    assert statuses(said(talk, respond=respond)) == [200, 200]


def test_a_client_that_ends_its_side_is_answered() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(post("/a", "1") + post("/b", "2"))
        client.writer.write_eof()
        return await client.reader.read()

    answer = said(talk)
    assert [part[-1:] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"1", b"2"]


@pytest.mark.parametrize("sent", [b"", b"GET / HT", get("/"), post("/", "x")[:-1], get("/") + get("/")[:-1]])
def test_a_connection_ends_with_its_client(sent: bytes) -> None:
    async def talk(client: Client) -> bytes:
        await client.send(sent)
        client.writer.write_eof()
        return await client.reader.read()

    assert statuses(said(talk)) == [200] * sent.count(b"\r\n\r\n" if b"POST" not in sent else b"nothing")


def test_a_request_learns_that_its_client_left() -> None:
    left = asyncio.Event()

    async def respond(request: Request) -> Answer:
        request.when_left(left.set)
        await left.wait()
        raise Disconnected

    async def talk(client: Client) -> bytes:
        await client.send(post("/", "x"))
        client.writer.close()
        await left.wait()
        return b"left"

    assert said(talk, respond=respond) == b"left"


def test_a_client_is_told_to_go_on_once_its_body_is_wanted() -> None:
    answer = said(asking_first)
    assert statuses(answer) == [100, 200]
    assert answer.endswith(b"hello")


async def refuse(request: Request) -> Answer:
    """Answers without looking at the body."""
    return Answer(401, {}, b"")


def test_a_client_that_asked_whether_to_send_a_body_that_nobody_wants_is_not_read_further() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(post("/", "x" * 100, "expect: 100-continue")[:-100])
        first = await client.reader.readuntil(b"\r\n\r\n")
        await client.send(get("/"))
        return first + await client.reader.read()

    assert statuses(said(talk, respond=refuse)) == [401]


def test_a_body_that_nobody_wants_is_dropped_and_the_next_request_answered() -> None:
    async def talk(client: Client) -> bytes:
        data = post("/", SMUGGLED)
        await client.send(data[:-10])
        first = await client.reader.readuntil(b"\r\n\r\n")
        await client.send(data[-10:] + chunked("/") + b"3\r\nabc\r\n0\r\n\r\n" + get("/", LAST))
        return first + await client.reader.read()

    assert statuses(said(talk, respond=refuse)) == [401, 401, 401]


def test_head_is_told_a_length_and_sent_no_body() -> None:
    async def respond(request: Request) -> Answer:
        return Answer(405, {}, b"12345")

    async def talk(client: Client) -> bytes:
        await client.send(get("/", LAST).replace(b"GET", b"HEAD"))
        return await client.reader.read()

    answer = said(talk, respond=respond)
    assert b"content-length: 5\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("headers", [{}, {"x-content-type-options": "nosniff"}], ids=["plain", "of the console"])
def test_no_answer_is_taken_for_another_kind(headers: dict[str, str]) -> None:
    async def respond(request: Request) -> Answer:
        return Answer(200, headers, b"")

    async def talk(client: Client) -> bytes:
        await client.send(get("/") + chunked("/") + b"x\r\n")
        return await client.reader.read()

    answer = said(talk, respond=respond)
    assert statuses(answer)[0] == 200
    assert answer.count(b"x-content-type-options: nosniff\r\n") == len(statuses(answer)) == 2


@pytest.mark.parametrize("broken", [b"x\r\n", b"1\r\nab"])
def test_a_body_that_is_malformed_is_refused_once(broken: bytes) -> None:
    async def talk(client: Client) -> bytes:
        await client.send(chunked("/") + broken + get("/"))
        return await client.reader.read()

    assert_refused(said(talk), 400, "http-invalid")


def test_a_fault_of_the_application_ends_the_connection_only() -> None:
    async def respond(request: Request) -> Answer:
        return Answer(200, {"x": "a\r\nset-cookie: b"}, b"")

    async def talk(client: Client) -> bytes:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        await client.send(get("/"))
        try:
            return await client.reader.read()
        except ConnectionError:
            return b""

    assert said(talk, respond=respond) == b""


def test_too_many_headers_are_refused() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(get("/", *(["x: y"] * Bounds().header_count)))
        return await client.reader.read()

    assert_refused(said(talk), 431, "headers-too-large")


def test_too_many_headers_are_refused_before_they_are_looked_at() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(get("/", *["malformed"] * 1_000))
        return await client.reader.read()

    assert_refused(said(talk), 431, "headers-too-large")


def test_connections_beyond_the_cap_are_told_to_come_back() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(get("/"))
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        address = client.writer.get_extra_info("peername")
        refusals = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection(*address)
            refusals.append(await reader.read())
            writer.close()
        assert_refused(refusals[0], 503, "server-busy")
        assert b"retry-after: 1\r\n" in refusals[0]
        assert statuses(b"".join(refusals)) == [503, 503, 503]
        await client.send(get("/", LAST))
        return await client.reader.read()

    assert statuses(said(talk, cap=1)) == [200]


def test_only_some_of_them_wait_at_the_same_time_and_the_oldest_is_told_at_once() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(get("/"))
        await client.reader.readuntil(b"\r\n\r\n")
        address = client.writer.get_extra_info("peername")
        oldest, latest = [await asyncio.open_connection(*address) for _ in range(2)]
        told = await oldest[0].read()
        latest[1].write(get("/"))
        told += await latest[0].read()
        for _, writer in (oldest, latest):
            writer.close()
        return told

    assert statuses(said(talk, cap=1, bounds=quick(farewells=1, farewell_seconds=LONG))) == [503, 503]
