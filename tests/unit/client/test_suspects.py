"""A consumer takes the messages of a lease that ended one by one, and holds no other message beside one of them."""

import threading
from typing import Any

from hourwheel.client import Delivery
from tests.unit.client.fake import FakeServer
from tests.unit.client.runs import LONG_SECONDS, Start
from tests.unit.client.test_consumer import fill, group, settled

BODIES = ["a", "b", "c", "d"]


def held(server: FakeServer) -> int:
    """Returns how many messages consumers hold whose leases have not ended."""
    with server.broker.changed:
        return sum(len(lease.left) for lease in group(server).leases.values() if not lease.taken_over)


def lose(server: FakeServer) -> None:
    """Leases all messages to a consumer that ends without a word."""
    with server.broker.changed:
        server.broker.pull("orders", "billing", {"consumer": "lost", "max_messages": 100})
    server.broker.end_leases("orders", "billing")


def test_suspects_are_handled_one_by_one(server: FakeServer, start: Start) -> None:
    fill(server, *BODIES)
    lose(server)
    seen: list[tuple[Any, int, int]] = []
    with start(server, lambda message: seen.append((message.body, message.attempt, held(server))), concurrency=3):
        server.wait_until(lambda broker: settled(broker, len(BODIES)))
    assert sorted(seen) == [(body, 1, 1) for body in BODIES]
    assert not group(server).dead


def test_a_suspect_waits_until_the_messages_in_hand_are_handled(server: FakeServer, start: Start) -> None:
    fill(server, "suspect")
    lose(server)
    with server.broker.changed:
        suspect = group(server).suspects.pop()
    fill(server, "first")
    begun, go_on = threading.Event(), threading.Event()
    seen: list[tuple[Any, int]] = []

    def handle(message: Delivery) -> None:
        seen.append((message.body, held(server)))
        if message.body == "first":
            begun.set()
            assert go_on.wait(LONG_SECONDS)

    with start(server, handle, waits=True, concurrency=2):
        assert begun.wait(LONG_SECONDS)
        with server.broker.changed:
            group(server).suspects.append(suspect)
            server.broker.changed.notify_all()
        server.wait_until(lambda _: any(pull.body.get("suspects") is False for pull in server.calls("pull")))
        assert seen == [("first", 1)]
        go_on.set()
        server.wait_until(lambda broker: settled(broker, 2))
    assert seen == [("first", 1), ("suspect", 1)]


def test_a_suspect_that_ends_its_consumers_becomes_a_dead_letter_and_no_other_message_does(
    server: FakeServer, start: Start
) -> None:
    fill(server, "poison", "good")
    lose(server)
    with server.broker.changed:
        group(server).max_attempts = 2
        for _ in range(2):
            group(server).suspects.sort(key=lambda message: message["body"] != "poison")
            server.broker.pull("orders", "billing", {"consumer": "lost"})
            for lease in group(server).leases.values():
                lease.until = 0.0
            server.broker._take_over_ended(group(server))
    assert [letter["body"] for letter in group(server).dead] == ["poison"]
    with start(server, lambda message: None):
        server.wait_until(lambda broker: settled(broker, 1))
    assert group(server).acked == ["good"]
