"""Makes a short run against a server, and checks that each rule finds its violations."""

import asyncio
import re
from random import Random

import pytest

from hourwheel.aws.urls import URL_ROUTES
from tests.docs.api_pages import all_calls, unnamed
from tests.fuzz.conversation import Account, Conversation
from tests.fuzz.grammar import ALL_ROUTES, Call, Grammar
from tests.fuzz.oracle import PROBLEMS, Answer, Violation, judge
from tests.fuzz.run import fuzz
from tests.fuzz.wire import encode

REQUESTS = 1_500
PROBLEM = {"type": "urn:hourwheel:json-invalid", "status": 400, "detail": "x"}
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
TYPE = {"content-type": "application/problem+json"}


def test_no_rule_is_broken() -> None:
    report = fuzz(REQUESTS, seed=0)
    assert report.account.requests >= REQUESTS
    assert report.stored >= len(report.account.accepted) > 300


def test_the_grammar_knows_each_route_of_the_docs() -> None:
    told = {call.partition(" ")[2] for call in all_calls()}
    # The server that is fuzzed has no function URLs.
    known = {unnamed(route.template) for route in (*ALL_ROUTES, *URL_ROUTES)}
    assert told <= known
    drawn = {re.sub(r"[^/]+", "*", call.target.split("?")[0]) for call in map(_draw, range(3_000))}
    assert {re.sub(r"[^/]+", "*", route.template) for route in ALL_ROUTES} <= drawn


def test_a_seed_draws_the_same_bytes_again() -> None:
    assert [encode(Random(n), _draw(n)) for n in range(100)] == [encode(Random(n), _draw(n)) for n in range(100)]


def test_the_docs_tell_the_problems() -> None:
    assert {"json-invalid", "http-invalid"} <= PROBLEMS[400]
    assert {"server-busy", "unavailable"} <= PROBLEMS[503]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, TYPE, {**PROBLEM, "type": "urn:hourwheel:internal", "status": 500}),
        Answer(418, TYPE, {**PROBLEM, "status": 418}),
        Answer(400, {}, PROBLEM),
        Answer(400, TYPE, {**PROBLEM, "type": "urn:hourwheel:something-new"}),
        Answer(400, TYPE, {**PROBLEM, "status": 404}),
        Answer(400, TYPE, {**PROBLEM, "detail": ""}),
    ],
)
def test_an_answer_that_the_docs_do_not_know_breaks_a_rule(answer: Answer) -> None:
    assert judge(Answer(400, TYPE, PROBLEM), "POST").status == 400
    with pytest.raises(Violation):
        judge(answer, "POST")


class Liar(asyncio.Protocol):
    """A server that answers each request this many times."""

    def __init__(self, answers: int) -> None:
        self._answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(ANSWER * self._answers * data.count(b"HTTP/1.1"))
        if not self._answers:
            self._transport.close()


@pytest.mark.parametrize(
    ("answers", "said"), [(0, "no answer"), (2, "nobody asked for|what is no request|no status line")]
)
def test_each_request_has_one_answer(answers: int, said: str) -> None:
    async def talk() -> None:
        server = await asyncio.get_running_loop().create_server(lambda: Liar(answers), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            for n in range(100):
                await Conversation(port, Account(), f"{n}").hold()

    with pytest.raises(Violation, match=said):
        asyncio.run(talk())


def _draw(n: int) -> Call:
    return Grammar(Random(n), "test").draw()
