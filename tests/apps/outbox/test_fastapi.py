"""The example service of FastAPI: a message is on its way once its order is committed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.apps.outbox.fastapi_shop import service
from tests.integration.process import Server, bodies, pull


@pytest.mark.parametrize("driver", ["psycopg", "aiosqlite"])
def test_an_order_is_told_once_it_is_committed(
    driver: str, request: pytest.FixtureRequest, tmp_path: Path, server: Server
) -> None:
    database = f"sqlite:///{tmp_path}/shop.db" if driver == "aiosqlite" else str(request.getfixturevalue("postgres"))
    app = service(database, driver, f"http://127.0.0.1:{server.port}")

    async def orders() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://x") as shop,
        ):
            assert (await shop.post("/orders/book", params={"paid": False})).status_code == 402
            assert (await shop.post("/orders/lamp")).status_code == 200
            (message,) = bodies(await asyncio.to_thread(pull, server, wait_seconds=20))
            assert json.loads(message)["item"] == "lamp"

    asyncio.run(orders())
