"""A client whose requests may create nothing says so in each of them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hourwheel.client import AsyncProducer, NotFound, Producer
from hourwheel.client.consuming.subscription import Subscription
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillIds
from tests.unit.client.runs import prefetch_options
from tests.unit.client.test_consumer import LONG_SECONDS, fill, group


def told(server: FakeServer, call: str) -> list[object]:
    return [request.body.get("create") for request in server.calls(call)]


def test_a_producer_that_creates_nothing_says_so(server: FakeServer) -> None:
    with Producer(server.url, subject="orders", create=False, ids=StillIds()) as producer:
        producer.send_batch(["a"])
        producer.send_batch(["b"])
    assert server.bodies("orders") == ["a", "b"]
    assert told(server, "produce") == [False, False]


def test_a_producer_of_asyncio_that_creates_nothing_says_so(server: FakeServer) -> None:

    async def main() -> None:
        async with AsyncProducer(server.url, subject="orders", create=False, ids=StillIds()) as producer:
            await producer.send("a")
            await producer.send("b")

    asyncio.run(main())
    assert server.bodies("orders") == ["a", "b"]
    assert told(server, "produce") == [False, False]


class Worker:
    """A subscription that records how often something was missing, and when messages come."""

    def __init__(self, server: FakeServer) -> None:
        self.missing = 0
        self.ready = threading.Event()
        self.subscription = Subscription(
            prefetch_options(server),
            room=lambda: 10,
            limit=lambda: 10,
            on_ready=self.ready.set,
            on_missing=self._on_missing,
        )

    def _on_missing(self) -> None:
        self.missing += 1


@pytest.fixture
def worker(server: FakeServer) -> Worker:
    return Worker(server)


def take(worker: Worker) -> object:
    worker.subscription.start()
    assert worker.ready.wait(LONG_SECONDS)
    taken = worker.subscription.take()
    worker.subscription.close()
    return taken


def test_a_subscription_says_that_it_creates_nothing(server: FakeServer, worker: Worker) -> None:
    fill(server, "a")
    assert take(worker) is not None
    assert set(told(server, "pull")) == {False}
    assert worker.missing == 0
    assert all("suspects" in call.body for call in server.calls("pull"))


def test_a_subscription_creates_what_is_missing_and_pulls_again(server: FakeServer, worker: Worker) -> None:
    fill(server, "a")
    server.fail("pull", status=404)
    assert take(worker) is not None
    assert told(server, "pull")[:2] == [False, None]
    assert worker.missing == 1


def test_a_subscription_that_may_not_create_fails(server: FakeServer, worker: Worker) -> None:
    server.fail("pull", status=404, times=2)
    with pytest.raises(NotFound):
        take(worker)
    assert worker.missing == 1
    assert not group(server).leases
