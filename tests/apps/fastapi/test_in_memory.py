"""A FastAPI service is tested on a queue in memory: with httpx in the test's event loop, or with the TestClient."""

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI

from hourwheel.client import AsyncConsumer, AsyncProducer
from hourwheel.testing import Queue

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on import it asks for another package of the same authors, httpx2
    from fastapi.testclient import TestClient

URL = "http://127.0.0.1:7420"


class Service:
    """Sends an order for each request, and handles orders beside its requests."""

    def __init__(self) -> None:
        self.billed: list[int] = []
        consumer = AsyncConsumer(URL, "orders", "billing", concurrency=10)

        @consumer.handler
        async def bill(order: dict[str, int]) -> None:
            await asyncio.sleep(0)
            self.billed.append(order["order"])

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            async with AsyncProducer(URL, subject="orders") as app.state.producer, asyncio.TaskGroup() as tasks:
                tasks.create_task(consumer.run())
                yield
                consumer.stop()

        self.app = FastAPI(lifespan=lifespan)

        @self.app.post("/orders")
        async def order(body: dict[str, int]) -> None:
            await self.app.state.producer.send(body, delay="1h")


def test_with_httpx_the_handlers_run_in_the_event_loop_of_the_test() -> None:
    async def main() -> None:
        with Queue(url=URL) as queue:
            queue.api.put_group("orders", "billing")
            service = Service()
            transport = httpx.ASGITransport(service.app)
            async with (
                service.app.router.lifespan_context(service.app),
                httpx.AsyncClient(transport=transport, base_url="http://service") as client,
            ):
                for number in range(3):
                    assert (await client.post("/orders", json={"order": number})).status_code == 200
                queue.assert_sent("orders", {"order": 2})
                assert await queue.advance_async(minutes=59) == 0
                assert await queue.advance_async(minutes=1) == 3
            assert service.billed == [0, 1, 2]

    asyncio.run(main())


def test_with_the_test_client_the_handlers_run_between_the_requests() -> None:
    with Queue(url=URL) as queue:
        queue.api.put_group("orders", "billing")
        service = Service()
        with TestClient(service.app) as client:
            for number in range(3):
                assert client.post("/orders", json={"order": number}).status_code == 200
            assert queue.advance(hours=1) == 3
        assert service.billed == [0, 1, 2]
        assert queue.api.lag("orders", "billing").in_flight == 0
