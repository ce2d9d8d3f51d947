"""A batch handler gets lists of messages, and decides about some of them or all."""

import threading

import pytest

from hourwheel.client import Delivery, Reject, Retry
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_consumer import LONG_SECONDS, Running, consumer, fill, group, settled
from tests.unit.client.test_ordered_consumer import fill as fill_keys


class RunningBatches(Running):
    """``run`` of a consumer with a batch handler."""

    def __init__(self, server: FakeServer, handle: object, **options: object) -> None:
        super().__init__(consumer(server, **options), lambda message: None)
        self.consumer.batch_handler(handle)


def test_a_list_holds_the_messages_that_are_there_and_is_acknowledged(server: FakeServer) -> None:
    fill(server, *map(str, range(25)))
    seen: list[list[str]] = []
    with RunningBatches(server, lambda messages: seen.append([m.body for m in messages]), max_messages=10):
        server.wait_until(lambda broker: settled(broker, 25))
    assert [body for bodies in seen for body in bodies] == [str(number) for number in range(25)]
    assert 1 <= min(map(len, seen)) <= max(map(len, seen)) <= 10
    assert not group(server).retries


def test_a_batch_handler_decides_about_some_and_the_rest_is_acknowledged(server: FakeServer) -> None:
    fill(server, "fine", "later", "hopeless", "fine too")

    def handle(messages: list[Delivery]) -> None:
        for message in list(messages):
            if message.body == "later" and message.attempt == 1:
                message.retry(delay="10m")
            if message.body == "hopeless":
                message.dead()
        messages.clear()  # the list is the handler's own

    with RunningBatches(server, handle):
        server.wait_until(lambda broker: settled(broker, 2))
    assert group(server).acked == ["fine", "fine too"]
    assert [(delay, message["body"]) for delay, message in group(server).backing_off] == [("10m", "later")]
    assert [letter["body"] for letter in group(server).dead] == ["hopeless"]


@pytest.mark.parametrize("error", [RuntimeError("not today"), Retry("closed", delay="10m"), Reject("never")])
def test_an_error_decides_about_the_messages_that_the_handler_left(server: FakeServer, error: Exception) -> None:
    fill(server, "done", "left 1", "left 2")

    def handle(messages: list[Delivery]) -> None:
        if messages[0].attempt == 1:
            messages[0].ack()
            raise error

    with RunningBatches(server, handle, max_messages=3):
        server.wait_until(lambda broker: "done" in broker.group("orders", "billing").acked)
        server.wait_until(
            lambda broker: settled(broker, 3) or len(group(server).backing_off) == 2 or len(group(server).dead) == 2
        )
    left = ["left 1", "left 2"]
    if isinstance(error, Retry):
        assert [message["body"] for _, message in group(server).backing_off] == left
    elif isinstance(error, Reject):
        assert [letter["body"] for letter in group(server).dead] == left
    else:
        assert sorted(group(server).acked) == ["done", *left]  # at their second attempt


def test_a_batch_handler_that_ends_the_program_is_heard(server: FakeServer) -> None:
    fill(server, "a", "b")

    def handle(messages: list[Delivery]) -> None:
        raise SystemExit(3)

    running = RunningBatches(server, handle)
    with running:
        running.join()
    assert isinstance(running.error, SystemExit)
    assert sorted(message["body"] for message in group(server).retries) == ["a", "b"]


def test_a_list_of_an_ordered_group_has_a_key_once(server: FakeServer) -> None:
    with server.broker.changed:
        group(server).ordered = True
    fill_keys(server, "a1", "a2", "b1", "a3", "b2")
    lists: list[list[str]] = []

    def handle(messages: list[Delivery]) -> None:
        lists.append([str(message.body) for message in messages])

    with RunningBatches(server, handle, concurrency=2):
        server.wait_until(lambda broker: settled(broker, 5))
    assert all(len({body[0] for body in bodies}) == len(bodies) for bodies in lists)
    handled = [body for bodies in lists for body in bodies]
    assert [body for body in handled if body[0] == "a"] == ["a1", "a2", "a3"]


def test_what_a_batch_handler_acknowledged_is_settled_while_it_goes_on(server: FakeServer) -> None:
    fill(server, "fast", "slow")
    go_on = threading.Event()

    def handle(messages: list[Delivery]) -> None:
        messages[0].ack()
        assert go_on.wait(LONG_SECONDS)

    with RunningBatches(server, handle):
        server.wait_until(lambda broker: broker.group("orders", "billing").acked == ["fast"])
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 2))
