"""A consumer of an ordered group handles the messages of a key one after the other, with any number of threads."""

import threading

import msgspec
import pytest

from hourwheel.client import Delivery, Retry
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import LONG_SECONDS, Running, consumer, group, settled
from tests.unit.client.test_msgpack import MSGPACK


@pytest.fixture
def ordered(server: FakeServer) -> FakeServer:
    with server.broker.changed:
        group(server).ordered = True
    return server


def fill(server: FakeServer, *bodies: str) -> None:
    """Sends messages of which the first letter is the key."""
    messages = [{"body": body, "key": body[0]} for body in bodies]
    with server.broker.changed:
        server.broker.produce("orders", {"messages": messages})


def test_threads_handle_other_keys_while_a_key_is_in_hand(ordered: FakeServer) -> None:
    handled: list[str] = []
    others = threading.Event()

    def handle(message: Delivery) -> None:
        if message.body == "a1":
            assert others.wait(LONG_SECONDS)
        handled.append(str(message.body))
        if {"b1", "c1"} <= {*handled}:
            others.set()

    fill(ordered, "a1", "a2", "a3", "b1", "c1")
    with Running(consumer(ordered, concurrency=3), handle):
        ordered.wait_until(lambda broker: settled(broker, 5))
    assert [body for body in handled if body[0] == "a"] == ["a1", "a2", "a3"]
    assert handled.index("a1") > handled.index("c1")


def test_after_a_failure_the_messages_of_its_key_in_the_same_pull_are_given_back(ordered: FakeServer) -> None:
    def handle(message: Delivery) -> None:
        if message.body == "a1":
            raise Retry("not now", delay="1h")

    fill(ordered, "a1", "a2", "b1", "a3")
    with Running(consumer(ordered, concurrency=2, max_messages=100, settle_linger_seconds=60), handle):
        ordered.wait_until(lambda broker: "b1" in group(ordered).acked)
    calls = (*ordered.calls("settle"), *ordered.calls("pull"))
    entries = [entry for call in calls for entry in call.body.get("settle", [])]
    (failed,) = [entry for entry in entries if "retry" in entry]
    assert failed["release"] == [1, 3]


def test_messages_that_cannot_be_decoded_are_retried_one_after_the_other_and_others_go_on(ordered: FakeServer) -> None:
    block = {"messages": [{"body": 5}, {"body": 6}], "queue": 0, "offset": 0, "attempt": 1}
    pull = {"receipt": "r", "queue": 0, "lease_until": "2026-11-20T09:00:30.000Z", "blocks": [block], "ordered": True}
    ordered.fail("pull", raw=msgspec.msgpack.encode({"pulls": [pull]}), kind=MSGPACK)
    errors: list[Exception] = []

    def handle(message: Delivery) -> None:
        try:
            assert message.body == "a1"
        except msgspec.MsgspecError as error:
            errors.append(error)
            raise

    fill(ordered, "a1")
    with Running(consumer(ordered), handle):
        ordered.wait_until(lambda broker: settled(broker, 1))
    entries = [
        entry
        for call in (*ordered.calls("settle"), *ordered.calls("pull"))
        for entry in call.body.get("settle", [])
        if entry["receipt"] == "r"
    ]
    assert [([each["index"] for each in entry["retry"]], entry["release"]) for entry in entries[:1]] == [([0], [1])]
    assert entries[0]["retry"][0]["detail"].startswith("ValidationError: ")
    assert len(errors) == 1


def test_without_an_order_threads_share_the_messages_of_a_key(server: FakeServer) -> None:
    together = threading.Barrier(2, timeout=LONG_SECONDS)
    fill(server, "a1", "a2")
    with Running(consumer(server, concurrency=2), lambda message: together.wait()):
        server.wait_until(lambda broker: settled(broker, 2))
