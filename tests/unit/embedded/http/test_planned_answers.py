"""Some requests are answered without a task of their own."""

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Callable

import pytest

from hourwheel.embedded.http.answer_plans import Answerer
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.heads import SHORT_BYTES, Head
from hourwheel.embedded.http.registry import ConnectionRegistry
from hourwheel.embedded.http.requests import Request
from tests.unit.embedded.http.talking import LAST, Client, asking_first, post, quick, said, statuses


def at_once(request: Request, reply: Callable[[Answer], None]) -> None:
    reply(Answer(200, {}, request.complete_body))


def later(request: Request, reply: Callable[[Answer], None]) -> None:
    asyncio.get_running_loop().call_soon(reply, Answer(200, {}, request.complete_body))


@pytest.mark.parametrize("begin", [at_once, later])
def test_thousands_of_requests_that_were_sent_ahead_are_answered_in_order(begin: Answerer) -> None:
    async def talk(client: Client) -> bytes:
        requests = [post("/", f"{number:04d}") for number in range(3_000)]
        await client.send(b"".join([*requests, post("/", "last", LAST)]))
        return await client.reader.read()

    answer = said(talk, plan=lambda request: begin)
    assert [part[:4] for part in answer.split(b"\r\n\r\n")[1:]] == [
        *(b"%04d" % number for number in range(3_000)),
        b"last",
    ]


def test_a_body_that_comes_in_pieces_is_answered_once_it_is_there() -> None:
    async def talk(client: Client) -> bytes:
        data = post("/", "hello", LAST)
        await client.send(data[:-3], data[-3:-1], data[-1:])
        return await client.reader.read()

    assert said(talk, plan=lambda request: at_once).endswith(b"hello")


def test_a_client_that_asks_is_told_to_send_its_body() -> None:
    assert statuses(said(asking_first, plan=lambda request: at_once)) == [100, 200]


def test_an_answer_to_a_client_that_has_left_ends_the_connection() -> None:
    replies: list[Callable[[Answer], None]] = []
    left = asyncio.Event()

    def begin(request: Request, reply: Callable[[Answer], None]) -> None:
        replies.append(reply)
        request.when_left(left.set)

    async def talk(client: Client) -> bytes:
        await client.send(post("/", "x"))
        client.writer.close()
        await left.wait()
        replies[0](Answer(200, {}, b"late"))
        return b"gone"

    assert said(talk, plan=lambda request: begin) == b"gone"


def test_a_request_that_is_not_planned_is_answered_by_a_task() -> None:
    async def talk(client: Client) -> bytes:
        await client.send(post("/planned", "a"), post("/else", "b", LAST))
        return await client.reader.read()

    answer = said(talk, plan=lambda request: at_once if request.path == "/planned" else None)
    assert [part[:1] for part in answer.split(b"\r\n\r\n")[1:]] == [b"a", b"b"]


def test_a_head_that_was_seen_is_not_parsed_again() -> None:
    head = b"GET / HTTP/1.1\r\nhost: a"
    registry, other = ConnectionRegistry(quick(), 1), ConnectionRegistry(quick(), 1)
    assert registry.parse_short_head(head) is registry.parse_short_head(bytes(bytearray(head)))
    assert registry.parse_short_head(head) is not other.parse_short_head(head), "another server's token may differ"


def test_heads_of_a_thousand_subjects_are_planned_once_though_the_bodies_have_many_lengths() -> None:
    registry = ConnectionRegistry(quick(), 1)

    def parsed(length: int) -> list[Head]:
        head = "POST /v1/subjects/s-%d/messages HTTP/1.1\r\nhost: a\r\ncontent-length: %d"
        return [registry.parse_short_head((head % (subject, length)).encode()) for subject in range(1_000)]

    first = parsed(0)
    for length in range(10, 30):
        heads = parsed(length)
        assert {head.length for head in heads} == {length}
        assert all(head.plans is planned.plans for head, planned in zip(heads, first, strict=True))


@pytest.mark.parametrize("length", [b"", b"\r\ncontent-length: 1"])
def test_heads_made_to_fill_the_memory_take_fifty_megabytes_at_most(length: bytes) -> None:
    parse = ConnectionRegistry(quick(), 1).parse_short_head
    headers = b"\r\n".join(b"%x:" % number for number in range(SHORT_BYTES))
    tracemalloc.start()
    try:
        for number in range(10_000):
            head = b"GET /%d HTTP/1.1\r\nhost: a%s\r\n" % (number, length) + headers
            parse(head[: head.rindex(b"\r\n", 0, SHORT_BYTES)])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50e6


@pytest.mark.parametrize("begin", [at_once, later])
@pytest.mark.parametrize("count", [2, 3, 4, 50])
def test_requests_that_were_sent_ahead_by_a_client_that_has_ended_its_side_are_answered(
    begin: Answerer, count: int
) -> None:
    async def talk(client: Client) -> bytes:
        client.writer.write(b"".join(post("/", f"{number:02d}") for number in range(count)))
        client.writer.write_eof()
        return await client.reader.read()

    assert statuses(said(talk, plan=lambda request: begin)) == [200] * count


@pytest.mark.parametrize("begin", [at_once, None])
def test_the_request_of_a_connection_that_has_ended_takes_no_memory(begin: Answerer | None) -> None:
    requests: list[weakref.ref[Request]] = []

    def plan(request: Request) -> Answerer | None:
        requests.append(weakref.ref(request))
        return begin

    async def answered(client: Client) -> bytes:
        await client.send(post("/", "hello", LAST))
        return await client.reader.read()

    async def broken_off(client: Client) -> bytes:
        await client.send(post("/", "hello", LAST)[:-1])
        return b""

    gc.disable()
    try:
        said(answered, plan=plan)
        said(broken_off, plan=plan)
        assert len(requests) == 2
        assert [request() for request in requests] == [None, None]
    finally:
        gc.enable()
