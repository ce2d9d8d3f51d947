"""A FastAPI service opens a producer and a consumer in its lifespan."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from hourwheel.client import AsyncConsumer, AsyncProducer
from tests.docs.pages import ROOT, examples
from tests.integration.conftest import server, start
from tests.integration.process import SECONDS, Server, bodies, pull

__all__ = ["server", "start"]


def served(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service")


def test_the_example_of_the_guide_sends_the_body_of_a_request(server: Server) -> None:
    (code,) = [text for text in examples(ROOT / "docs/client.md", "py") if "FastAPI" in text]
    assert len(code.splitlines()) <= 15
    names: dict[str, Any] = {"__name__": "example"}
    exec(code.replace(":7420", f":{server.port}"), names)

    async def main() -> list[Any]:
        app = names["app"]
        async with app.router.lifespan_context(app), served(app) as client:
            answers = await asyncio.gather(*(client.post("/orders", json={"order": number}) for number in range(3)))
        return sorted(answer.json()["offset"] for answer in answers)

    assert asyncio.run(main()) == [0, 1, 2]
    assert sorted(bodies(pull(server))) == ['{"order":0}', '{"order":1}', '{"order":2}']


def test_a_service_handles_messages_beside_its_requests_and_settles_them_when_it_ends(server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}"
    consumer = AsyncConsumer(url, "orders", "billing", concurrency=10, wait_seconds=1)
    billed: list[int] = []

    @consumer.handler
    async def bill(order: dict[str, int]) -> None:
        billed.append(order["order"])

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncProducer(url, subject="orders") as app.state.producer, asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.run())
            yield
            consumer.stop()

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders")
    async def order(body: dict[str, int]) -> int:
        await app.state.producer.send(body)
        return len(billed)

    async def main() -> None:
        async with asyncio.timeout(SECONDS), app.router.lifespan_context(app), served(app) as client:
            for number in range(5):
                assert (await client.post("/orders", json={"order": number})).status_code == 200
            while len(billed) < 5:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert sorted(billed) == [0, 1, 2, 3, 4]
    lag = server.ok("GET", "/v1/subjects/orders/groups/billing/lag")
    assert (lag["waiting"], lag["in_flight"]) == (0, 0)
