"""A message that ends its process becomes a dead letter; the messages that were pulled with it are handled."""

import sys
from pathlib import Path

import pytest

from hourwheel.client import Api, Message, RetryPolicy
from tests.integration.conftest import Start
from tests.integration.poison import POISON, handled, run_until_dead

MESSAGES = 60
ATTEMPTS = 4

SYNC = """
import os, sys
from hourwheel.client import Consumer
consumer = Consumer(sys.argv[1], "orders", "billing", lease_seconds=1, wait_seconds=1, concurrency=int(sys.argv[3]))
@consumer.handler
def handle(message):
    if message.body == "poison":
        os._exit(9)
    journal = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, (message.body + "\\n").encode())
consumer.run()
"""

ASYNC = """
import asyncio, os, sys
from hourwheel.client import AsyncConsumer
async def main():
    consumer = AsyncConsumer(
        sys.argv[1], "orders", "billing", lease_seconds=1, wait_seconds=1, concurrency=int(sys.argv[3])
    )
    @consumer.handler
    async def handle(message):
        if message.body == "poison":
            os._exit(9)
        journal = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(journal, (message.body + "\\n").encode())
    await consumer.run()
asyncio.run(main())
"""


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["threads", "asyncio"])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_only_the_message_that_ends_its_process_dies(
    start: Start, tmp_path: Path, program: str, ordered: bool, concurrency: int
) -> None:
    url, journal = f"http://127.0.0.1:{start().port}", tmp_path / "journal"
    with Api(url) as api:
        at_once = RetryPolicy(first_seconds=0.0, cap_seconds=0.0)
        api.put_subject("orders")
        api.put_group("orders", "billing", max_attempts=ATTEMPTS, retry=at_once, ordered=ordered)
        bodies = [f"m{number}" for number in range(MESSAGES)]
        bodies[10] = POISON
        api.produce("orders", [Message(body, key=body) for body in bodies])
        others = {body for body in bodies if body != POISON}
        command = [sys.executable, "-c", program, url, str(journal), str(concurrency)]
        ended = run_until_dead(command, api, ("orders", "billing"), lambda: handled(journal) == others)
        dead = [(message.body, message.attempt) for message in api.list_dead("orders", "billing").messages]
    assert dead == [(POISON, ATTEMPTS)]
    assert ended == ATTEMPTS + 1, "the first end of a lease counts no attempt"
