"""The client of threads and that of asyncio do the same: one table of cases, each run on both."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from hourwheel.client import (
    AddressedMessage,
    Api,
    AsyncApi,
    DeadSelection,
    Delivery,
    Message,
    Reject,
    Retry,
    Settlement,
)
from hourwheel.client.transport.endpoint import REPEAT_HEADER
from tests.unit.client.aio.conftest import Run
from tests.unit.client.aio.test_consumer import consumer as async_consumer
from tests.unit.client.aio.test_consumer import handled
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillClock, StillIds
from tests.unit.client.test_consumer import Running, consumer, fill, group

NO_ZONE = datetime(2026, 1, 1)  # noqa: DTZ001 - a time that both clients refuse

Call = Callable[[Any], Any]

CALLS: dict[str, Call] = {
    "produce": lambda api: api.produce("orders", [Message("päid", key="k", tags=["eu"], headers={"a": "b"})]),
    "produce bytes": lambda api: api.produce("orders", [Message(b"\0\xff")]),
    "produce once": lambda api: api.produce("orders", [Message("a")], idempotency_key="once"),
    "produce later": lambda api: api.produce("orders", [Message("a", delay="90d")]),
    "produce nothing": lambda api: api.produce("orders", []),
    "produce a wrong delay": lambda api: api.produce("orders", [Message("a", delay="soon")]),
    "produce an object": lambda api: api.produce("orders", [Message(object())]),
    "produce for many": lambda api: api.produce_many([AddressedMessage("a", subject="one")]),
    "pull": lambda api: api.pull("orders", "billing", "host-1", max_messages=2),
    "pull for nobody": lambda api: api.pull("orders", "billing", ""),
    "pull of a wrong name": lambda api: api.pull("a/b", "billing", "host-1"),
    "settle nothing known": lambda api: api.settle("orders", "billing", [Settlement(receipt="unknown")]),
    "put a subject": lambda api: api.put_subject("orders", queues=2, retention_seconds=60),
    "get a subject": lambda api: api.get_subject("orders"),
    "get no subject": lambda api: api.get_subject("nothing"),
    "delete a subject": lambda api: api.delete_subject("orders"),
    "put a group": lambda api: api.put_group("orders", "mail", max_attempts=3, ordered=True),
    "list groups": lambda api: api.list_groups("orders", limit=1),
    "lag": lambda api: api.lag("orders", "billing"),
    "seek to the end": lambda api: api.seek("orders", "billing", "end"),
    "seek to a time": lambda api: api.seek("orders", "billing", datetime(2026, 1, 1, tzinfo=UTC)),
    "seek to a time without a zone": lambda api: api.seek("orders", "billing", NO_ZONE),
    "redrive nothing": lambda api: api.redrive("orders", "billing", DeadSelection(ids=[])),
    "no scheduled id": lambda api: api.get_scheduled(""),
    "an unknown scheduled id": lambda api: api.cancel("s-77"),
    "list delayed messages": lambda api: api.list_subject_delayed("orders", limit=3, bodies=True),
    "count delayed messages": lambda api: api.pending("orders"),
    "health": lambda api: api.health(),
}

FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "cut off once": {"cut": True},
    "answer lost once": {"lose": True},
    "too many requests": {"status": 429, "retry_after": "0"},
    "unavailable once": {"status": 503, "retry_after": "0"},
    "unavailable for good": {"status": 503, "retry_after": "0", "times": -1},
    "a fault of the server": {"status": 500},
    "a refusal": {"status": 409},
    "no answer of Hourwheel": {"status": 404, "raw": b"<html>not here</html>", "kind": "text/html"},
    "an answer that cannot be read": {"status": 200, "raw": b"{"},
}


class Outcome(NamedTuple):
    """What a call answered or raised, and the requests that the server got."""

    answer: Any
    error: tuple[str, str] | None
    requests: list[tuple[str, str, Any, str | None]]


def prepare(server: FakeServer, fault: dict[str, Any]) -> None:
    fill(server, "first", "second")
    with server.broker.changed:
        server.broker.put_group("orders", "billing", {})
    if fault:
        for call in OPERATIONS:
            server.fail(call, **fault)


OPERATIONS = (
    "produce",
    "produce_many",
    "pull",
    "settle",
    "put_subject",
    "get_subject",
    "delete_subject",
    "put_group",
    "list_groups",
    "lag",
    "seek",
    "redrive",
    "cancel",
    "list_subject_delayed",
    "pending",
    "health",
)
"""The names of the calls in the fake."""


def options(fault: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of the client. Ids without chance make its pauses short; it repeats what a fault that passes
    has cut off."""
    retry_seconds = 0 if fault.get("times") == -1 else 20
    return {"ids": StillIds(), "clock": StillClock(), "timeout_seconds": 20, "retry_seconds": retry_seconds}


def outcome(server: FakeServer, act: Callable[[], Any]) -> Outcome:
    answer, error = None, None
    try:
        answer = act()
    except Exception as raised:
        error = type(raised).__name__, str(raised).replace(server.url, "URL").replace(server.url[7:], "HOST")
    requests = [
        (request.call, request.target, request.body, request.headers.get(REPEAT_HEADER)) for request in server.requests
    ]
    return Outcome(answer, error, requests)


def in_threads(call: Call, fault: dict[str, Any]) -> Outcome:
    with FakeServer().running() as server:
        prepare(server, fault)
        with Api(server.url, **options(fault)) as api:
            return outcome(server, lambda: call(api))


def in_tasks(call: Call, fault: dict[str, Any], run: Run[Any]) -> Outcome:
    with FakeServer().running() as server:
        prepare(server, fault)

        async def main() -> Any:
            async with AsyncApi(server.url, **options(fault)) as api:
                return await call(api)

        return outcome(server, lambda: run(main()))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_has_one_outcome_in_both_clients(call: Call, fault: dict[str, Any], run: Run[Any]) -> None:
    assert in_tasks(call, fault, run) == in_threads(call, fault)


@pytest.mark.parametrize("fault", ["cut off once", "answer lost once", "unavailable once", "too many requests"])
def test_a_request_that_is_retried_says_so(fault: str, run: Run[Any]) -> None:
    call = CALLS["produce once"]
    for seen in (in_threads(call, FAULTS[fault]), in_tasks(call, FAULTS[fault], run)):
        assert [repeat for name, _, _, repeat in seen.requests if name == "produce"] == [None, "1"]


def _fails(message: Delivery) -> None:
    if message.body == "first" and message.attempt == 1:
        raise ValueError("once")


def _rejects(message: Delivery) -> None:
    if message.body == "first":
        raise Reject("never")


def _waits(message: Delivery) -> None:
    if message.body == "first":
        raise Retry("later", delay="10m")


def _decides(message: Delivery) -> None:
    if message.body == "first":
        message.dead()


def _mistakes(message: Delivery) -> None:
    if message.body == "first" and message.attempt == 1:
        raise Retry(delay="1000d")


def _returns(message: Delivery) -> None:
    pass


HANDLERS: dict[str, tuple[Callable[[Delivery], None], int]] = {
    "returns": (_returns, 2),
    "raises once": (_fails, 2),
    "rejects one": (_rejects, 1),
    "asks for a later retry": (_waits, 1),
    "decides by itself": (_decides, 1),
    "asks for a retry that is too late": (_mistakes, 2),
}
"""Each handler, and the number of messages that are acknowledged in the end."""


def _group_state(server: FakeServer) -> Any:
    known = group(server)
    later = [(delay, message["body"], message["attempt"]) for delay, message in known.backing_off]
    return sorted(known.acked), [letter["body"] for letter in known.dead], later, known.retries


@pytest.mark.parametrize(("handle", "acked"), HANDLERS.values(), ids=HANDLERS)
def test_a_handler_has_one_effect_in_both_clients(
    handle: Callable[[Delivery], None], acked: int, run: Run[Any]
) -> None:
    def is_done(known: Any) -> bool:
        return len(known.acked) == acked and len(known.acked) + len(known.dead) + len(known.backing_off) == 2

    with FakeServer().running() as server:
        fill(server, "first", "second")
        with Running(consumer(server), handle):
            server.wait_until(lambda broker: is_done(broker.group("orders", "billing")))
        in_threads = _group_state(server)
    with FakeServer().running() as server:
        fill(server, "first", "second")

        async def handle_in_task(message: Delivery) -> None:
            await asyncio.sleep(0)
            handle(message)

        run(handled(async_consumer(server), handle_in_task, lambda: is_done(group(server))))
        assert _group_state(server) == in_threads
