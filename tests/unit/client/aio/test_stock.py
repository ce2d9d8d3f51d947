"""Two consumers of asyncio share a backlog, though their handlers are slow."""

import asyncio
from typing import Any

from hourwheel.client import Delivery
from tests.unit.client.aio.conftest import Run, until
from tests.unit.client.aio.test_consumer import consumer, handled
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import fill, group
from tests.unit.client.test_ordered_consumer import fill as fill_keys
from tests.unit.client.test_stock import BODIES, HELD, KEYS, MESSAGES, Waiting, in_flight


class AsyncWaiting(Waiting):
    def handler(self) -> Any:
        begun: list[Any] = []
        self.begun.append(begun)

        async def handle(message: Delivery) -> None:
            begun.append(message.body)
            await until(self.told.is_set)

        return handle


def all_settled(server: FakeServer) -> bool:
    return len(group(server).acked) == MESSAGES


@HELD
def test_two_consumers_with_slow_handlers_share_a_backlog(
    server: FakeServer, run: Run[Any], concurrency: int, held: int
) -> None:
    fill(server, *BODIES)
    waiting = AsyncWaiting(server)

    async def main() -> None:
        async with asyncio.TaskGroup() as running:
            try:
                for number in (1, 2):
                    takes = consumer(server, concurrency=concurrency)
                    running.create_task(handled(takes, waiting.handler(), lambda: all_settled(server)))
                    await until(lambda number=number: in_flight(server) >= number * held)
                assert in_flight(server) == 2 * held
                await until(lambda: waiting.all_begun(concurrency))
            finally:
                waiting.told.set()

    run(main())
    waiting.check_end()


def test_max_messages_is_obeyed(server: FakeServer, run: Run[Any]) -> None:
    fill(server, *BODIES)
    waiting = AsyncWaiting(server)

    async def main() -> None:
        async with asyncio.TaskGroup() as running:
            takes = consumer(server, max_messages=30)
            running.create_task(handled(takes, waiting.handler(), lambda: all_settled(server)))
            try:
                await until(lambda: in_flight(server) == MESSAGES)
            finally:
                waiting.told.set()

    run(main())
    assert server.calls("pull")[0].body["max_messages"] == 30


def test_a_batch_handler_gets_all_that_is_there(server: FakeServer, run: Run[Any]) -> None:
    fill(server, *BODIES)
    seen: list[Any] = []

    async def main() -> None:
        takes = consumer(server)

        @takes.batch_handler
        async def handle(messages: list[Delivery]) -> None:
            await asyncio.sleep(0)
            seen.append([message.body for message in messages])
            takes.stop()

        await takes.run()

    run(main())
    assert seen == [BODIES]


def test_an_ordered_group_is_served_beyond_the_key_in_hand(server: FakeServer, run: Run[Any]) -> None:
    group(server).ordered = True
    fill_keys(server, *KEYS)
    waiting = AsyncWaiting(server)

    async def main() -> None:
        async with asyncio.TaskGroup() as running:
            takes = consumer(server, concurrency=2)
            running.create_task(handled(takes, waiting.handler(), lambda: all_settled(server)))
            try:
                await until(lambda: waiting.begun[0][1:])
                assert waiting.begun[0] == [KEYS[0], KEYS[-1]]
            finally:
                waiting.told.set()

    run(main())
