"""No thread or task of a consumer ends without a word: an unexpected error ends the run, and the run raises it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hourwheel.client.consuming.lease_tracker import LeaseTracker
from tests.unit.client.aio.conftest import LONG_SECONDS as LOOP_SECONDS
from tests.unit.client.aio.test_consumer import consumer as async_consumer
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import LONG_SECONDS, Running, consumer, fill
from tests.unit.client.test_creation import Worker


class Unexpected(Exception):
    pass


@pytest.fixture(params=["complete", "open", "due"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails before a pull, after one, or before a settlement."""

    def fail(*_: object, **__: object) -> Any:
        raise Unexpected

    monkeypatch.setattr(LeaseTracker, request.param, fail)


@pytest.mark.usefixtures("broken")
def test_an_unexpected_error_ends_the_run(server: FakeServer) -> None:
    fill(server, "paid")
    running = Running(consumer(server), lambda message: None)
    with running:
        running.join()
    assert isinstance(running.error, Unexpected)


@pytest.mark.usefixtures("broken")
def test_an_unexpected_error_ends_the_run_of_tasks(server: FakeServer) -> None:
    fill(server, "paid")

    async def main() -> None:
        takes = async_consumer(server)

        @takes.handler
        async def handle(message: Any) -> None:
            pass

        async with asyncio.timeout(LOOP_SECONDS):
            await takes.run()

    with pytest.raises(Unexpected):
        asyncio.run(main())


def take_all(worker: Worker) -> None:
    while worker.ready.wait(LONG_SECONDS):
        worker.ready.clear()
        worker.subscription.take()


@pytest.mark.usefixtures("broken")
def test_a_framework_hears_of_an_unexpected_error(server: FakeServer) -> None:
    fill(server, "paid")
    worker = Worker(server)
    worker.subscription.start()
    with pytest.raises(Unexpected):
        take_all(worker)
    worker.subscription.close()
