"""A connection that exceeds its bounds of bytes or time is ended, without the client's help."""

import asyncio
import resource
import time

import pytest

from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.bounds import Bounds, connection_cap
from hourwheel.embedded.http.requests import Request
from tests.unit.embedded.http.talking import LAST, Client, assert_refused, chunked, get, post, quick, said, statuses

SOON = 0.05
EMPTY = len("GET / HTTP/1.1\r\nhost: localhost\r\n")


def test_an_endless_header_is_refused() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(get("/")[:-2] + b"x: ")
        return await client.send_until_closed(b"a" * 10_000)

    assert_refused(said(talk), 431, "headers-too-large")


@pytest.mark.parametrize(("size", "fits"), [(Bounds().head_bytes, True), (Bounds().head_bytes + 1, False)])
@pytest.mark.parametrize("pieces", [1, 3])
def test_the_head_of_a_request_has_a_bound(size: int, fits: bool, pieces: int) -> None:
    request = get("/", "x: " + "a" * (size - EMPTY - len("x: \r\nconnection: close")), LAST)
    step = -(-len(request) // pieces)

    async def talk(client: Client) -> bytes:
        await client.send(*(request[at : at + step] for at in range(0, len(request), step)))
        return await client.reader.read()

    if fits:
        assert statuses(said(talk)) == [200]
    else:
        assert_refused(said(talk), 431, "headers-too-large")


@pytest.mark.parametrize(
    "begun", [b"0\r\n", b"0\r\nx: ", b"1;", b""], ids=["lines", "a line", "an extension", "extensions"]
)
def test_endless_trailers_and_extensions_are_refused(begun: bytes) -> None:
    more = {b"0\r\n": b"a: b\r\n" * 1_000, b"": b"1;abcdefgh\r\nx\r\n" * 1_000}.get(begun, b"a" * 10_000)

    async def talk(client: Client) -> bytes:
        await client.send(chunked("/") + begun)
        return await client.send_until_closed(more)

    assert_refused(said(talk), 431, "headers-too-large")


SLOW = {
    "a connection that sends nothing": (b"", b""),
    "line ends alone": (b"", b"\r\n"),
    "headers": (get("/")[:-2], b"a: b\r\n"),
    "a header": (get("/")[:-2] + b"a: ", b"b"),
    "half a head": (get("/")[:-2], b""),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_head_has_its_time(name: str) -> None:
    begin, more = SLOW[name]

    async def talk(client: Client) -> bytes:
        await client.send(begin)
        return await client.send_until_closed(more)

    answer = said(talk, bounds=quick(head_seconds=SOON))
    if begin:
        assert_refused(answer, 408, "request-timeout")
    else:
        assert answer == b""


@pytest.mark.parametrize("earlier", [b"", get("/")], ids=["at first", "between two"])
def test_only_some_empty_lines_come_before_a_request(earlier: bytes) -> None:
    async def talk(client: Client) -> bytes:
        await client.send(earlier + b"\r\n" * 400 + get("/"), b"\r\n" * 400 + get("/"))
        return await client.send_until_closed(b"\r\n" * 100)

    answer = said(talk)
    assert statuses(answer) == [200] * answer.count(b" 200 ") + [400]
    assert answer.count(b" 200 ") == 2 + bool(earlier)
    assert b"empty lines" in answer


def test_a_flood_of_empty_lines_is_refused_at_once() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(b"\r\n" * 200_000 + get("/", LAST))
        return await client.reader.read()

    assert_refused(said(talk), 400, "http-invalid")


SLOW_BODIES = {
    "half a body": (post("/", "x" * 1_000)[:-10], b""),
    "a slow body": (post("/", "x" * 100_000)[:-99_999], b"x"),
    "a slow chunk": (chunked("/") + b"ffffff\r\n", b"x"),
    "slow chunks": (chunked("/"), b"1\r\nx\r\n"),
    "a chunk that does not come": (chunked("/"), b""),
    "a slow trailer": (chunked("/") + b"0\r\nx: ", b"y"),
    "slow trailers": (chunked("/") + b"0\r\n", b"x: y\r\n"),
    "a trailer that does not come": (chunked("/") + b"0\r\n", b""),
}


@pytest.mark.parametrize("name", SLOW_BODIES)
def test_a_body_has_its_time(name: str) -> None:
    begin, more = SLOW_BODIES[name]

    async def talk(client: Client) -> bytes:
        await client.send(begin)
        return await client.send_until_closed(more)

    assert_refused(said(talk, bounds=quick(request_seconds=SOON)), 408, "request-timeout")


@pytest.mark.parametrize("name", SLOW_BODIES)
@pytest.mark.parametrize("expects", [False, True])
def test_so_has_a_body_whose_request_was_answered_early(name: str, expects: bool) -> None:
    begin, more = SLOW_BODIES[name]

    async def refuse(request: Request) -> Answer:
        return Answer(401, {}, b"")

    async def talk(client: Client) -> bytes:
        await client.send(begin.replace(b"host:", b"expect: 100-continue\r\nhost:", int(expects)))
        return await client.send_until_closed(more)

    assert statuses(said(talk, bounds=quick(request_seconds=SOON), respond=refuse)) == [401]


def test_clients_do_not_pay_for_a_server_that_was_held_up() -> None:
    async def talk(client: Client) -> bytes:
        client.writer.write(get("/", LAST))
        time.sleep(5 * SOON)  # the server runs on this loop
        return await client.reader.read()

    assert statuses(said(talk, bounds=quick(head_seconds=SOON))) == [200]


def test_a_later_request_has_the_same_time() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(get("/"))
        first = await client.reader.readuntil(b"\r\n\r\n")
        await client.send(get("/")[:-2])
        return first + await client.reader.read()

    assert statuses(said(talk, bounds=quick(head_seconds=SOON))) == [200, 408]


def test_an_idle_connection_is_closed_without_a_word() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(get("/"))
        first = await client.reader.readuntil(b"\r\n\r\n")
        return first + await client.send_until_closed(b"\r\n")

    assert statuses(said(talk, bounds=quick(idle_seconds=SOON))) == [200]


def test_a_request_that_is_worked_on_takes_its_time() -> None:
    async def respond(request: Request) -> Answer:
        await asyncio.sleep(5 * SOON)
        return Answer(200, {}, b"")

    async def talk(client: Client) -> bytes:
        await client.send(get("/", LAST))
        return await client.reader.read()

    short = quick(head_seconds=SOON, request_seconds=SOON, idle_seconds=SOON, answer_seconds=SOON)
    assert statuses(said(talk, bounds=short, respond=respond)) == [200]


@pytest.mark.parametrize("more", [b"", get("/")], ids=["silent", "asks on"])
@pytest.mark.parametrize("ends", [False, True])
def test_an_answer_that_nobody_reads_is_cut(more: bytes, ends: bool) -> None:
    async def respond(request: Request) -> Answer:
        return Answer(200, {}, b"x" * 20_000_000)

    async def talk(client: Client) -> bytes:
        client.reader._transport.pause_reading()
        await client.send(get("/", *([LAST] if ends else [])))
        while not client.registry.open:
            await asyncio.sleep(0)
        while client.registry.open:
            if more and client.writer.transport.get_write_buffer_size() < 100_000:
                client.writer.write(more)
            await asyncio.sleep(0.001)
        return b"cut"

    assert said(talk, bounds=quick(answer_seconds=SOON), respond=respond) == b"cut"


def test_one_that_is_read_slowly_is_not() -> None:
    async def respond(request: Request) -> Answer:
        return Answer(200, {}, b"x" * 20_000_000)

    async def talk(client: Client) -> bytes:
        await client.send(get("/", LAST))
        size = 0
        while part := await client.reader.read(200_000):
            size += len(part)
            await asyncio.sleep(0.01)
        return b"%d" % size

    assert int(said(talk, bounds=quick(answer_seconds=0.3), respond=respond)) > 20_000_000


def test_the_cap_lies_below_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [1_024, 4_096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.__setitem__(slice(None), limit))
    assert (connection_cap(500), limits) == (500, [1_024, 4_096])
    assert (connection_cap(1_000), limits) == (1_000, [1_256, 4_096])
    assert (connection_cap(100_000), limits) == (3_840, [4_096, 4_096])
    limits[:] = [256, 256]
    assert connection_cap(1_000) == 64
    limits[:] = [resource.RLIM_INFINITY, resource.RLIM_INFINITY]
    assert connection_cap(1_000) == 1_000
