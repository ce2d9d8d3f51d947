"""A consumer of an ordered group settles soon while a handler is idle: the group hands out the next message of a key
once the one before it is settled."""

import threading
import time
from typing import Any

import msgspec
import pytest

from hourwheel.client import Delivery
from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import LONG_SECONDS, Start
from tests.unit.client.test_consumer import group
from tests.unit.client.test_full_group import settled
from tests.unit.client.test_msgpack import MSGPACK

MESSAGES = 20
SLOWLY = 0.005
"""Seconds. All messages together take much longer than the 10 ms after which an idle handler has a settlement sent."""


@pytest.fixture
def ordered(server: FakeServer) -> FakeServer:
    """Returns a server whose next pull answers a message of each of two keys of an ordered group."""
    return with_messages(server, [{"body": body, "key": body} for body in ("fast", "slow")])


@pytest.fixture
def one_key(server: FakeServer) -> FakeServer:
    """Returns a server whose next pull answers the messages of one key of an ordered group."""
    return with_messages(server, [{"body": str(number), "key": "k"} for number in range(MESSAGES)])


def with_messages(server: FakeServer, messages: list[Any]) -> FakeServer:
    with server.broker.changed:
        group(server)  # settlements of a group that does not exist are refused
    block = {"messages": messages, "queue": 0, "offset": 0, "attempt": 1}
    pull = {"receipt": "r", "queue": 0, "lease_until": "2026-11-20T09:00:30.000Z", "blocks": [block], "ordered": True}
    server.fail("pull", raw=msgspec.msgpack.encode({"pulls": [pull]}), kind=MSGPACK)
    return server


def test_a_message_is_settled_while_a_handler_is_idle_and_another_has_a_message_in_hand(
    ordered: FakeServer, start: Start
) -> None:
    told = threading.Event()

    def handle(message: Delivery) -> None:
        assert message.body == "fast" or told.wait(LONG_SECONDS)

    with start(ordered, handle, waits=True, concurrency=2, settle_linger_seconds=1_000):
        ordered.wait_until(lambda _: settled(ordered))
        told.set()
    assert settled(ordered)[0] == {"receipt": "r", "ack": [0]}


def test_the_messages_of_one_key_that_are_in_hand_share_a_settlement_though_a_handler_is_idle(
    one_key: FakeServer, start: Start
) -> None:
    with start(one_key, lambda _: time.sleep(SLOWLY), waits=True, concurrency=2, settle_linger_seconds=1_000):
        one_key.wait_until(lambda _: settled(one_key))
    assert settled(one_key) == [{"receipt": "r"}]
