"""The store of a server fails at one call, or its socket at one point of a request. The client repeats the request by
itself, and the effect is that of one request."""

import asyncio
import inspect
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hourwheel.api import problems
from hourwheel.client import Api, AsyncApi, Message, ServerUnavailable, Settlement
from hourwheel.errors import Broken, Unavailable
from tests.unit.client.ids import StillIds
from tests.unit.embedded.failing_server import POINTS, FailingServer

GROUP = "billing"
ERRORS = {"unavailable": Unavailable("busy"), "broken": Broken("disk I/O error"), "unforeseen": OSError(5, "I/O error")}


class Flow(NamedTuple):
    """A request. ``sent`` are the bodies that are there before it, of which ``leased`` are pulled. ``waiting`` are the
    messages that wait behind it, with their attempts; ``held`` is the number of messages that are leased then, ``dead``
    that of dead letters."""

    name: str
    sent: str
    leased: int
    request: Callable[[Any, str, str], Any]
    waiting: list[str]
    held: int
    dead: int


def _produce(api: Any, subject: str, receipt: str) -> Any:
    return api.produce(subject, [Message(body) for body in "abc"], idempotency_key="once")


def _settle(api: Any, subject: str, receipt: str) -> Any:
    wanted = Settlement(receipt=receipt, ack=[0], retry=[1], dead=[2], release=[3])
    return api.settle(subject, GROUP, [wanted])


def _settle_by_pull(api: Any, subject: str, receipt: str) -> Any:
    wanted = Settlement(receipt=receipt, ack=[0], dead=[1])
    return api.pull(subject, GROUP, "c1", settle=[wanted])


FLOWS = [
    Flow("produce", "", 0, _produce, ["a 1", "b 1", "c 1"], 0, 0),
    Flow("settle", "abcd", 4, _settle, ["b 2", "d 1"], 0, 1),
    # A lost answer has leased the message, and its lease has not ended yet.
    Flow("settle by pull", "abc", 2, _settle_by_pull, [], 1, 1),
]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingServer]:
    monkeypatch.setattr(problems, "RETRY_AFTER_SECONDS", 0)
    opened = FailingServer(tmp_path)
    with closing(opened.runtime):
        yield opened


class Caller:
    """A client that repeats requests, blocking in a thread or with asyncio."""

    def __init__(self, url: str, kind: type[Api] | type[AsyncApi]) -> None:
        self._api = kind(url, ids=StillIds())
        self._again = kind(url, ids=StillIds(), retry_seconds=0)

    async def __call__(self, request: Callable[[Any], Any], *, once: bool = False) -> Any:
        api = self._again if once else self._api
        if isinstance(api, AsyncApi):
            return await request(api)
        return await asyncio.to_thread(request, api)

    async def close(self) -> None:
        for api in (self._api, self._again):
            closed = await asyncio.to_thread(api.close) if isinstance(api, Api) else api.close()
            if inspect.isawaitable(closed):
                await closed


async def prepared(call: Caller, flow: Flow, subject: str) -> str:
    """Sends and pulls what the flow begins with. Returns the receipt."""
    await call(lambda api: api.put_group(subject, GROUP, max_attempts=9))
    if not flow.sent:
        return ""
    await call(lambda api: api.produce(subject, [Message(body) for body in flow.sent], idempotency_key="before"))
    pulled = await call(lambda api: api.pull(subject, GROUP, "c1", max_messages=flow.leased, lease_seconds=600))
    (pull,) = pulled.pulls
    receipt: str = pull.receipt
    return receipt


async def check_effects(call: Caller, flow: Flow, subject: str, where: str) -> None:
    found: list[str] = []
    while (pulled := await call(lambda api: api.pull(subject, GROUP, "c2"))).pulls:
        found += [f"{message.body} {message.attempt}" for pull in pulled.pulls for message in pull.messages]
        wanted = [Settlement(receipt=pull.receipt) for pull in pulled.pulls]
        settled = await call(lambda api, wanted=wanted: api.settle(subject, GROUP, wanted))
        assert {each.status for each in settled} == {"settled"}, where
    assert sorted(found) == flow.waiting, where
    lag = await call(lambda api: api.lag(subject, GROUP))
    left = (lag.waiting, lag.in_flight, lag.retrying, lag.backing_off, lag.dead)
    assert left == (0, flow.held, 0, 0, flow.dead), where


@pytest.mark.parametrize("kind", [Api, AsyncApi])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_a_socket_that_fails_at_one_point_of_a_request_leaves_the_effect_of_one_request(
    server: FailingServer, flow: Flow, point: str, kind: type[Api] | type[AsyncApi]
) -> None:
    async def use(url: str) -> None:
        call = Caller(url, kind)
        receipt = await prepared(call, flow, "orders")
        server.point = point
        await call(lambda api: flow.request(api, "orders", receipt))
        assert server.point == "", "the socket has failed"
        await check_effects(call, flow, "orders", point)
        await call.close()

    server.serve(use)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.name)
def test_a_store_that_fails_at_one_call_of_a_request_leaves_the_effect_of_one_request(
    server: FailingServer, flow: Flow, error: str, *, after: bool
) -> None:
    server.failure.error, server.failure.after = ERRORS[error], after

    async def use(url: str) -> None:
        call = Caller(url, AsyncApi)
        for at in range(1, 200):
            subject = f"orders-{at}"
            receipt = await prepared(call, flow, subject)
            server.failure.fails_at = at
            try:
                await call(lambda api: flow.request(api, subject, receipt), once=True)  # noqa: B023 -- called at once
            except ServerUnavailable as failed:
                check_told(server, failed, error)
                # On the connection that was told of the error.
                await call(lambda api: flow.request(api, subject, receipt), once=True)  # noqa: B023 -- called at once
            came, server.failure.fails_at = server.failure.came, 0
            await check_effects(call, flow, subject, f"the store failed at call {at}")
            if not came:
                break
        assert at > 4
        await call.close()

    server.serve(use)


def check_told(server: FailingServer, failed: ServerUnavailable, error: str) -> None:
    """The answer has a correlation id. The log has it too, with the error, where the server is at fault."""
    expected = (503, "unavailable") if error == "unavailable" else (500, "internal")
    assert (failed.problem.status, failed.problem.slug) == expected
    assert failed.problem.instance
    if error != "unavailable":
        assert server.correlation_ids.count(failed.problem.instance) == 1
