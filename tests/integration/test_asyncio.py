"""The client for asyncio with a real server, which is killed too."""

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from hourwheel.client import Api, AsyncApi, AsyncConsumer, AsyncProducer, Delivery
from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, bodies, pull
from tests.unit.client.aio.conftest import Run, run

__all__ = ["run"]

TASKS = 8
EACH = 30


def test_what_tasks_share_is_stored_once_and_in_their_order_though_the_server_is_killed(
    start: Start, run: Run[Any]
) -> None:
    server = start()
    port = server.port

    async def call(producer: AsyncProducer, half: asyncio.Barrier, name: str) -> None:
        for number in range(EACH):
            if number == EACH // 2:
                await half.wait()
            await producer.send(f"{name}-{number:02}")

    async def main() -> None:
        half = asyncio.Barrier(TASKS + 1)
        async with (
            AsyncProducer(f"http://127.0.0.1:{port}", subject="orders") as producer,
            asyncio.TaskGroup() as tasks,
        ):
            for name in range(TASKS):
                tasks.create_task(call(producer, half, str(name)))
            await half.wait()
            server.kill()  # with requests under way
            await asyncio.to_thread(start, port=port)

    run(main())
    with Api(f"http://127.0.0.1:{port}") as api:
        page = api.peek("orders")
        stored = [str(message.body) for message in page.messages]
        while page.next is not None:  # a killed server may leave an offset that no message has
            page = api.peek("orders", offset=page.next)
            stored += [str(message.body) for message in page.messages]
    for name in range(TASKS):
        own = [body for body in stored if body.startswith(f"{name}-")]
        assert own == [f"{name}-{number:02}" for number in range(EACH)]
    assert len(stored) == TASKS * EACH


def test_a_pull_that_is_cancelled_leases_nothing(server: Server, run: Run[Any]) -> None:
    async def main() -> None:
        async with AsyncApi(f"http://127.0.0.1:{server.port}") as api:
            await api.put_group("orders", "billing")
            waiting = asyncio.ensure_future(api.pull("orders", "billing", "gone", wait_seconds=20))
            while not (await api.list_consumers("orders", "billing")):
                await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with AsyncProducer(f"http://127.0.0.1:{server.port}", subject="orders") as producer:
            await producer.send("paid")

    run(main())
    assert bodies(pull(server)) == ["paid"]


def test_many_handlers_keep_the_order_of_each_key_of_an_ordered_group(server: Server, run: Run[Any]) -> None:
    url = f"http://127.0.0.1:{server.port}"
    seen: dict[str, list[int]] = defaultdict(list)

    async def main() -> None:
        async with AsyncApi(url) as api:
            await api.put_group("orders", "ledger", ordered=True)
        async with AsyncProducer(url, subject="orders") as producer, asyncio.TaskGroup() as tasks:
            for number in range(200):
                tasks.create_task(producer.send(str(number), key=f"key-{number % 7}"))
        consumer = AsyncConsumer(url, "orders", "ledger", concurrency=20, max_messages=30, wait_seconds=1)

        @consumer.handler
        async def handle(number: int, message: Delivery) -> None:
            await asyncio.sleep(0)
            if number % 50 == 3 and message.attempt == 1:
                message.retry(delay=0)
                return
            seen[message.key or ""].append(number)
            if sum(map(len, seen.values())) == 200:
                consumer.stop()

        async with asyncio.timeout(SECONDS):
            await consumer.run()
        async with AsyncApi(url) as api:
            lag = await api.lag("orders", "ledger")
            assert (lag.waiting, lag.in_flight, lag.retrying) == (0, 0, 0)

    run(main())
    assert {key: sorted(numbers) for key, numbers in seen.items()} == dict(seen)
