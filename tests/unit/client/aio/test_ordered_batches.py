"""A batch handler of an ordered group gets messages of different keys at once."""

import asyncio
from typing import Any

from hourwheel.client import Delivery
from tests.unit.client.aio.conftest import Run, until
from tests.unit.client.aio.test_consumer import consumer
from tests.unit.client.aio.test_idle_handlers import with_messages
from tests.unit.client.fake import FakeServer


def test_a_key_goes_on_after_a_batch_whose_first_message_has_no_key(server: FakeServer, run: Run[Any]) -> None:
    with_messages(server, [{"body": "alone"}, {"body": "first", "key": "k"}, {"body": "second", "key": "k"}])
    batches: list[Any] = []

    async def main() -> None:
        takes = consumer(server)

        @takes.batch_handler
        async def handle(messages: list[Delivery]) -> None:
            await asyncio.sleep(0)
            batches.append([message.body for message in messages])

        running = asyncio.ensure_future(takes.run())
        await until(lambda: len(batches) == 2)
        takes.stop()
        await running

    run(main())
    assert batches == [["alone", "first"], ["second"]]
