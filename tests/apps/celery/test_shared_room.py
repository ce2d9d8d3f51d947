"""The queues of a channel share its prefetch count, and take turns."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kombu import Connection, Consumer, Queue

from hourwheel.client import Api
from tests.apps.celery.test_kombu import MOMENT, SECONDS

TASKS = 10


class Holder:
    """Consumes queues on a channel, and acknowledges nothing by itself."""

    def __init__(self, connection: Connection, prefetch_count: int, *names: str) -> None:
        self.connection = connection
        self.held: list[Any] = []
        self.consumer = Consumer(
            connection.channel(), [Queue(name) for name in names], callbacks=[lambda _, message: self._take(message)]
        )
        self.consumer.qos(prefetch_count=prefetch_count)
        self.consumer.consume()

    def _take(self, message: Any) -> None:
        self.held.append(message)

    def take(self, count: int) -> list[str]:
        """Waits for this many messages, and returns their queues, the oldest first."""
        while len(self.held) < count:
            self.connection.drain_events(timeout=SECONDS)
        return [message.delivery_info["routing_key"] for message in self.held]

    def take_and_acknowledge(self, count: int) -> list[str]:
        """Acknowledges the oldest message before it takes each one, and returns the queues of those that it took."""
        queues = []
        for _ in range(count):
            held = len(self.held)
            if held:
                self.held.pop(0).ack()
            queues.append(self.take(max(held, 1))[-1])
        return queues

    def check_no_more(self) -> None:
        with pytest.raises(TimeoutError):
            self.connection.drain_events(timeout=MOMENT)


def send(connection: Connection, name: str, count: int = TASKS) -> None:
    with connection.Producer() as producer:
        for number in range(count):
            producer.publish(number, routing_key=name, declare=[Queue(name)])


def wait_for_in_flight(api: Api, names: list[str], count: int) -> None:
    give_up_at = time.monotonic() + SECONDS
    while (held := sum(api.lag(name, "celery").in_flight for name in names)) != count:
        assert time.monotonic() < give_up_at, f"{held} messages are in flight"


def wait_for_returned(api: Api, name: str) -> None:
    """Waits until a message of a queue was pulled and given back."""
    give_up_at = time.monotonic() + SECONDS
    while not api.lag(name, "celery").retrying:
        assert time.monotonic() < give_up_at, "nothing was given back"


@pytest.fixture
def names(name: str) -> list[str]:
    return [f"{name}-{letter}" for letter in "abc"]


def test_queues_with_many_messages_hold_the_prefetch_count_together(
    connection: Connection, api: Api, names: list[str]
) -> None:
    for name in names:
        send(connection, name)
    holder = Holder(connection, 4, *names)
    holder.take(4)
    holder.check_no_more()
    wait_for_in_flight(api, names, 4)
    assert sum(api.lag(name, "celery").waiting + api.lag(name, "celery").retrying for name in names) == 26


def test_queues_take_turns_where_one_message_is_held_at_a_time(
    connection: Connection, api: Api, names: list[str]
) -> None:
    for name in names:
        send(connection, name)
    holder = Holder(connection, 1, *names)
    (first,) = holder.take(1)
    for name in set(names) - {first}:
        wait_for_returned(api, name)  # its first pull has shown that it has messages: it gets turns from now on
    queues = holder.take_and_acknowledge(18)
    assert all(queues.count(name) >= 4 for name in names), queues


def test_a_queue_that_is_added_beside_one_that_leaves_no_room_gets_its_turn(
    connection: Connection, api: Api, name: str
) -> None:
    busy, added = f"{name}-busy", f"{name}-added"
    send(connection, busy)
    send(connection, added)
    holder = Holder(connection, 1, busy)
    holder.take(1)
    holder.consumer.add_queue(Queue(added))
    holder.consumer.consume()
    wait_for_returned(api, added)
    assert added in holder.take_and_acknowledge(3)


def test_a_queue_that_was_empty_gets_its_turn_beside_a_busy_one(connection: Connection, api: Api, name: str) -> None:
    busy, quiet = f"{name}-busy", f"{name}-quiet"
    holder = Holder(connection, 4, busy, quiet)
    holder.check_no_more()  # a pull of each queue waits for messages
    send(connection, busy)
    holder.take(4)
    send(connection, quiet, 3)
    wait_for_returned(api, quiet)
    assert quiet in holder.take_and_acknowledge(3)


def test_a_cancelled_queue_leaves_its_room_to_the_others(connection: Connection, names: list[str]) -> None:
    first, second, _ = names
    send(connection, first)
    holder = Holder(connection, 2, first, second)
    holder.take(2)
    holder.consumer.cancel_by_queue(first)
    send(connection, second)
    for message in holder.held:
        message.ack()
    holder.held.clear()
    assert holder.take(2) == [second, second]


def test_every_message_comes_once_though_queues_give_some_back(connection: Connection, names: list[str]) -> None:
    holder = Holder(connection, 3, *names)
    for name in names:
        send(connection, name, 30)
    holder.take(3)
    queues = [*holder.take(3), *holder.take_and_acknowledge(87)]
    assert [queues.count(name) for name in names] == [30, 30, 30]
    holder.check_no_more()
