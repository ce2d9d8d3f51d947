"""A consumer settles at once what it has handled where the group has all the messages in flight that it may have."""

import threading
from typing import Any

import msgspec
import pytest

from hourwheel.client import Delivery
from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import LONG_SECONDS, Start
from tests.unit.client.test_consumer import group
from tests.unit.client.test_msgpack import MSGPACK


@pytest.fixture
def full(server: FakeServer) -> FakeServer:
    """Returns a server whose next pull answers two messages, the last ones that the group may have in flight."""
    with server.broker.changed:
        group(server)  # settlements of a group that does not exist are refused
    block = {"messages": [{"body": "fast"}, {"body": "slow"}], "queue": 0, "offset": 0, "attempt": 1}
    pull = {"receipt": "r", "queue": 0, "lease_until": "2026-11-20T09:00:30.000Z", "blocks": [block]}
    answer = {"pulls": [pull], "limited_by": "max_in_flight"}
    server.fail("pull", raw=msgspec.msgpack.encode(answer), kind=MSGPACK)
    return server


def settled(server: FakeServer) -> list[Any]:
    return [entry for call in server.calls("settle") for entry in call.body["settle"]]


def test_a_message_is_settled_while_another_one_is_in_hand(full: FakeServer, start: Start) -> None:
    told = threading.Event()

    def handle(message: Delivery) -> None:
        assert message.body == "fast" or told.wait(LONG_SECONDS)

    with start(full, handle, waits=True, concurrency=2, settle_linger_seconds=1_000):
        full.wait_until(lambda _: settled(full))
        told.set()
    assert settled(full)[0] == {"receipt": "r", "ack": [0]}
