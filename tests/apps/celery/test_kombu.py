"""Kombu works on a server: the cases of Kombu's integration tests, and the additions of this transport."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from kombu.exceptions import ChannelError, OperationalError

from hourwheel.apps.celery.wire import NotKombu, decode
from hourwheel.client import Api, BadRequest, Message

SECONDS = 20.0
MOMENT = 0.3  # in which nothing is to come


class Inbox:
    """Records the messages of a consumer, and acknowledges each."""

    def __init__(self, connection: Connection, *queues: Queue, **how: Any) -> None:
        self.connection = connection
        self.messages: list[Any] = []
        self.bodies: list[Any] = []
        self.acknowledge = True
        self.consumer = Consumer(connection.channel(), list(queues), callbacks=[self._take], **how)

    def _take(self, body: Any, message: Any) -> None:
        self.bodies.append(body)
        self.messages.append(message)
        if self.acknowledge:
            message.ack()

    def get(self, count: int) -> list[Any]:
        """Waits for this many messages, and sees that no other comes with them."""
        while len(self.bodies) < count:
            self.connection.drain_events(timeout=SECONDS)
        return self.bodies

    def is_empty(self) -> bool:
        with pytest.raises(TimeoutError):
            self.connection.drain_events(timeout=MOMENT)
        return not self.bodies


def test_a_connection_opens_closes_and_opens_again(connection: Connection) -> None:
    for _ in range(2):
        connection.connect()
        assert connection.connected
        assert connection.default_channel
        connection.close()
        assert not connection.connected


def test_a_server_that_is_away_refuses_connections() -> None:
    with pytest.raises(OperationalError, match="cannot be reached"):
        Connection("hourwheel://127.0.0.1:1").ensure_connection(max_retries=1, interval_start=0)


def test_the_next_url_is_tried_where_the_first_server_is_away(broker: str, name: str) -> None:
    with Connection(f"hourwheel://127.0.0.1:1;{broker}") as connection:
        connection.ensure_connection(max_retries=2, interval_start=0)
        with closing(connection.SimpleQueue(name)) as queue:
            queue.put("found")
            assert queue.get(timeout=SECONDS).payload == "found"


def test_a_wrong_option_is_named(broker: str) -> None:
    with pytest.raises(ValueError, match="visibility_timeout"):
        Connection(broker, transport_options={"visibility_timeout": "long"}).connect()


@pytest.mark.parametrize("serializer", ["json", "pickle", "yaml"])
def test_a_message_comes_as_it_was_sent(connection: Connection, name: str, serializer: str) -> None:
    queue = Queue(name, Exchange(name), routing_key=name)
    Producer(connection).publish(
        {"hello": "wörld", "zero": 0},
        exchange=queue.exchange,
        routing_key=name,
        declare=[queue],
        serializer=serializer,
        compression="gzip",
        headers={"k": "v"},
        correlation_id="7",
    )
    inbox = Inbox(connection, queue, accept=[serializer])
    with inbox.consumer:
        assert inbox.get(1) == [{"hello": "wörld", "zero": 0}]
    (message,) = inbox.messages
    assert message.headers["k"] == "v"
    assert message.properties["correlation_id"] == "7"
    assert message.delivery_info == {"exchange": name, "routing_key": name, "redelivered": False}


def test_an_empty_queue_gives_nothing(connection: Connection, name: str) -> None:
    inbox = Inbox(connection, Queue(name))
    with inbox.consumer:
        assert inbox.is_empty()


def test_a_queue_is_counted_purged_and_deleted(connection: Connection, name: str) -> None:
    with closing(connection.SimpleQueue(name)) as queue:
        for number in range(3):
            queue.put(number)
        assert queue.qsize() == 3
        assert queue.clear() == 3
        assert queue.qsize() == 0
    channel = connection.default_channel
    channel.queue_delete(name)
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        channel.queue_declare(name, passive=True)


@pytest.mark.parametrize("how", ["get", "get_nowait"])
def test_acknowledged_and_rejected_messages_are_gone_and_requeued_ones_come_again(
    connection: Connection, api: Api, name: str, how: str
) -> None:
    with closing(connection.SimpleQueue(name)) as queue:
        get = getattr(queue, how)
        for outcome in ("requeue", "ack", "reject"):
            queue.put(outcome)
            message = get()
            assert message.payload == outcome
            if outcome == "requeue":
                message.requeue()
                message = get()
                assert message.payload == outcome
                assert message.delivery_info["redelivered"]
                message.ack()
            else:
                getattr(message, outcome)()
        with pytest.raises(queue.Empty):
            queue.get(timeout=MOMENT)
    connection.release()
    (dead,) = api.list_dead(name, "celery").messages
    assert "reject" in str(dead.body)


def test_a_closed_channel_gives_back_what_was_not_acknowledged(connection: Connection, name: str) -> None:
    producer = Producer(connection)
    for number in range(3):
        producer.publish(number, routing_key=name, declare=[Queue(name)])
    with connection.channel() as channel:
        channel.basic_qos(0, 2, False)
        held: list[Any] = []
        with Consumer(channel, [Queue(name)], callbacks=[lambda body, message: held.append(message)]):
            while len(held) < 2:
                connection.drain_events(timeout=SECONDS)
            with pytest.raises(TimeoutError):
                connection.drain_events(timeout=MOMENT)  # two are the most
            held.pop(0).ack()
            connection.drain_events(timeout=SECONDS)
    inbox = Inbox(connection, Queue(name))
    with inbox.consumer:
        assert sorted(inbox.get(2)) == [1, 2]
        assert not any(message.delivery_info["redelivered"] for message in inbox.messages)


@pytest.mark.parametrize("settle", ["ack", "reject", "requeue"])
def test_a_queue_without_room_goes_on_when_a_message_of_another_queue_is_settled(
    connection: Connection, name: str, settle: str
) -> None:
    first, second = Queue(f"{name}-first"), Queue(f"{name}-second")
    producer = Producer(connection.channel())
    for queue in (first, second):
        producer.publish(queue.name, routing_key=queue.name, declare=[queue(connection.default_channel)])
    inbox = Inbox(connection, first, prefetch_count=1)
    inbox.acknowledge = False
    with inbox.consumer:
        inbox.get(1)
        inbox.consumer.add_queue(second)
        inbox.consumer.consume()  # its puller begins without room
        if settle == "requeue":
            inbox.consumer.cancel_by_queue(first.name)
        getattr(inbox.messages[0], settle)()
        assert inbox.get(2) == [first.name, second.name]


def test_a_direct_exchange_routes_by_the_whole_key(connection: Connection, name: str) -> None:
    exchange = Exchange(f"{name}-x", type="direct")
    one = Queue(f"{name}-1", exchange, routing_key="a")
    two = Queue(f"{name}-2", exchange, routing_key="b")
    producer = Producer(connection, exchange)
    for key in ("a", "b", "nobody"):
        producer.publish(key, routing_key=key, declare=[one, two])
    first, second = Inbox(connection, one), Inbox(connection, two)
    with first.consumer, second.consumer:
        assert first.get(1) == ["a"]
        assert second.get(1) == ["b"]
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=MOMENT)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    ("kind", "key", "sent", "taken"),
    [
        ("fanout", "", ["x", "y"], ["x", "y"]),
        ("topic", "t.*", ["t.1", "u.1", "t.1.2"], ["t.1"]),
        ("topic", "#", ["t.1", "u"], ["t.1", "u"]),
    ],
)
def test_every_queue_of_an_exchange_gets_the_messages_that_match(
    broker: str, name: str, durable: bool, kind: str, key: str, sent: list[str], taken: list[str]
) -> None:
    exchange = Exchange(f"{name}-x", type=kind, durable=durable)
    queues = [Queue(f"{name}@{i}", exchange, key, durable=durable, auto_delete=not durable) for i in range(2)]
    with Connection(broker) as receiving, Connection(broker) as sending:
        inboxes = [Inbox(receiving, queue) for queue in queues]
        with inboxes[0].consumer, inboxes[1].consumer:
            producer = Producer(sending, exchange)
            for each in sent:
                producer.publish(each, routing_key=each)
            for inbox in inboxes:
                assert inbox.get(len(taken)) == taken
            with pytest.raises(TimeoutError):
                receiving.drain_events(timeout=MOMENT)


def test_a_durable_queue_of_an_exchange_keeps_messages_while_nobody_consumes(connection: Connection, name: str) -> None:
    exchange = Exchange(f"{name}-x", type="topic")
    queue = Queue(name, exchange, routing_key="t.#")
    Producer(connection, exchange).publish("kept", routing_key="t.1.2", declare=[queue])
    inbox = Inbox(connection, queue)
    with inbox.consumer:
        assert inbox.get(1) == ["kept"]


def test_an_exchange_that_nobody_declared_is_an_error(connection: Connection, name: str) -> None:
    with pytest.raises(ChannelError, match="NOT_FOUND"):
        connection.default_channel.basic_publish(
            connection.default_channel.prepare_message(b"x"), exchange=f"{name}-none", routing_key=""
        )


def test_an_expired_message_is_dropped(connection: Connection, name: str) -> None:
    producer = Producer(connection)
    producer.publish("late", routing_key=name, declare=[Queue(name)], expiration=-1)
    producer.publish("in time", routing_key=name, expiration=600)
    inbox = Inbox(connection, Queue(name))
    with inbox.consumer:
        assert inbox.get(1) == ["in time"]


def test_a_body_that_is_none_of_kombu_becomes_a_dead_letter(connection: Connection, api: Api, name: str) -> None:
    api.produce(name, [Message("{"), Message("[1]"), Message(b"\xff\x00")])
    Producer(connection).publish("ours", routing_key=name, declare=[Queue(name)])
    inbox = Inbox(connection, Queue(name))
    with inbox.consumer:
        assert inbox.get(1) == ["ours"]
    connection.release()
    assert len(api.list_dead(name, "celery").messages) == 3


@pytest.mark.parametrize(
    "body",
    [
        "[" * 100_000,
        '{"properties": {}, "body": {"__type__": "decimal", "__value__": "x"}}',
        '{"properties": {"expiration": "soon"}, "body": "x"}',
        '{"properties": {"delivery_info": {"routing_key": 5}}, "body": "x"}',
        '{"properties": {"body_encoding": "base64"}, "body": "x"}',
        '{"properties": {"body_encoding": "rot13"}, "body": "x"}',
        '{"properties": {}, "headers": [], "body": "x"}',
    ],
)
def test_a_body_that_kombu_cannot_read_is_told_from_one_that_it_can(body: str) -> None:
    with pytest.raises(NotKombu):
        decode(body, redelivered=False)


def test_a_message_without_a_level_of_its_own_comes_last(broker: str, name: str) -> None:
    with Connection(broker, transport_options={"priority_steps": [3]}) as connection:
        producer = Producer(connection)
        for body, priority in (("unranked", None), ("high", 7)):
            producer.publish(body, routing_key=name, declare=[Queue(name)], priority=priority)
        inbox = Inbox(connection, Queue(name))
        with inbox.consumer:
            assert inbox.get(2) == ["high", "unranked"]


def test_a_deleted_queue_leaves_the_other_queues_of_its_exchange_what_they_wait_for(
    connection: Connection, name: str
) -> None:
    exchange = Exchange(f"{name}-x", type="fanout")
    queues = [Queue("celery", exchange), Queue(name, exchange)]  # the first one has the name of the group
    Producer(connection, exchange).publish("kept", declare=queues)
    connection.default_channel.queue_delete("celery")
    inbox = Inbox(connection, queues[1])
    with inbox.consumer:
        assert inbox.get(1) == ["kept"]


@pytest.mark.parametrize("how", ["get", "get_nowait"])
def test_a_higher_priority_comes_first_where_queues_have_levels(broker: str, name: str, how: str) -> None:
    with Connection(broker, transport_options={"priority_steps": [0, 3, 6, 9]}) as connection:
        producer = Producer(connection)
        queue = Queue(name, max_priority=10)
        for body, priority in (("low", 3), ("high", 7), ("low too", 4), ("lowest", 0)):
            producer.publish(body, routing_key=name, declare=[queue], priority=priority)
        with closing(connection.SimpleQueue(name)) as simple:
            got = []
            for _ in range(4):
                message = getattr(simple, how)()
                got.append(message.payload)
                message.ack()
    assert got == ["high", "low", "low too", "lowest"]


def test_a_message_is_delayed_in_the_queue(connection: Connection, api: Api, name: str) -> None:
    producer = Producer(connection)
    producer.publish("later", routing_key=name, declare=[Queue(name)], delay="1h")
    producer.publish("at", routing_key=name, deliver_at=datetime.now(UTC) + timedelta(days=700))
    producer.publish("soon", routing_key=name, delay=0.2)
    assert api.pending(name).messages >= 1
    inbox = Inbox(connection, Queue(name))
    with inbox.consumer:
        assert inbox.get(1) == ["soon"]


def test_a_delay_beyond_two_years_is_refused_with_the_limit(connection: Connection, name: str) -> None:
    with pytest.raises(BadRequest, match="732 days"):
        Producer(connection).publish("never", routing_key=name, declare=[Queue(name)], delay="733d")


def test_names_of_kombu_that_are_no_names_here_stay_apart(connection: Connection) -> None:
    names = ["a@b", "a b", "ä", "x" * 150, "x" * 151]
    for each in names:
        with closing(connection.SimpleQueue(each)) as queue:
            queue.put(each)
    for each in names:
        with closing(connection.SimpleQueue(each)) as queue:
            message = queue.get(timeout=SECONDS)
            assert message.payload == each
            message.ack()


def test_kombu_finds_the_transport_by_its_scheme() -> None:
    assert kombu.transport.get_transport_cls("hourwheel").__module__ == "hourwheel.apps.celery.transport"
