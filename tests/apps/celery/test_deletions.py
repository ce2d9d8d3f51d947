"""A queue that somebody deletes is declared again with its own settings, and one that ends leaves nothing behind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from kombu import Connection, Exchange, Queue
from kombu.pidbox import Mailbox

from hourwheel.client import Api, NotFound
from tests.apps.celery.test_kombu import SECONDS, Inbox
from tests.integration.process import Server

SETTINGS = {"retention_seconds": 123_456, "max_attempts": 7, "wait_seconds": 1}
PINGS = 100
MANY = 300


@pytest.fixture
def connection(broker: str) -> Iterator[Connection]:
    with Connection(broker, transport_options=SETTINGS) as made:
        yield made


def wait_for(found: Callable[[], Any]) -> Any:
    """Waits until a call finds a subject or group that was deleted before."""
    give_up_at = time.monotonic() + SECONDS
    while True:
        try:
            return found()
        except NotFound:
            assert time.monotonic() < give_up_at


def check_settings(api: Api, subject: str, group: str) -> None:
    assert wait_for(lambda: api.get_group(subject, group)).max_attempts == 7
    assert api.get_subject(subject).retention_seconds == 123_456


def test_a_queue_that_is_deleted_while_it_is_consumed_has_its_own_settings_again(
    connection: Connection, api: Api, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox(connection, Queue(name))
    inbox.consumer.consume()
    with connection.Producer() as producer:
        producer.publish("before", routing_key=name)
        inbox.get(1)
        api.delete_subject(name)
        check_settings(api, name, "celery")
        producer.publish("after", routing_key=name)
        assert inbox.get(2) == ["before", "after"]
    assert [line for line in caplog.messages if "declared again" in line] == [
        f"queue {name!r} is missing on the server: it is declared again"
    ]


@pytest.mark.parametrize("confirms", [True, False])
def test_a_message_for_a_deleted_queue_declares_the_queue_again(
    broker: str, api: Api, name: str, confirms: bool
) -> None:
    options = {**SETTINGS, "confirm_publish": confirms}
    with Connection(broker, transport_options=options) as connection, connection.Producer() as producer:
        producer.publish("before", routing_key=name, declare=[Queue(name)])
        wait_for(lambda: api.get_group(name, "celery"))
        connection.transport.producer.flush(SECONDS)  # without a confirmation it may still be under way
        api.delete_subject(name)
        producer.publish("after", routing_key=name)
        check_settings(api, name, "celery")
        connection.transport.producer.flush(SECONDS)  # a close at this moment would tell of a message that was not sent
        assert api.lag(name, "celery").waiting == 1
    with Connection(broker) as connection:
        inbox = Inbox(connection, Queue(name))
        inbox.consumer.consume()
        assert inbox.get(1) == ["after"]


def test_many_messages_for_a_deleted_queue_declare_it_once(
    broker: str, api: Api, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {**SETTINGS, "confirm_publish": False}
    with Connection(broker, transport_options=options) as connection, connection.Producer() as producer:
        Queue(name)(connection.default_channel).declare()
        api.delete_subject(name)
        for number in range(MANY):
            producer.publish(number, routing_key=name)
        connection.transport.producer.flush(SECONDS)
        check_settings(api, name, "celery")
        assert api.lag(name, "celery").waiting == MANY
    assert [line for line in caplog.messages if "declared again" in line] == [
        f"queue {name!r} is missing on the server: it is declared again"
    ]


def test_an_exchange_that_is_deleted_has_its_own_settings_again(connection: Connection, api: Api, name: str) -> None:
    news = Exchange(f"news-{name}", "fanout")
    inbox = Inbox(connection, Queue(name, news))
    inbox.consumer.consume()
    api.delete_subject(f"news-{name}.exchange")
    check_settings(api, f"news-{name}.exchange", name)
    with connection.Producer() as producer:
        producer.publish("after", exchange=news)
        assert inbox.get(1) == ["after"]


def test_what_was_sent_since_an_exchange_was_deleted_reaches_its_durable_queue(
    connection: Connection, api: Api, name: str
) -> None:
    news = Exchange(f"news-{name}", "fanout")
    reader = Queue(name, news)(connection.channel())
    reader.declare()
    with connection.Producer() as producer:
        producer.publish("before", exchange=news)
        assert reader.get(no_ack=True).payload == "before"
        api.delete_subject(f"news-{name}.exchange")
        producer.publish("after", exchange=news)  # creates the subject, and not the group of the queue
    assert reader.get(no_ack=True).payload == "after"


def pidbox_series(server: Server) -> list[str]:
    lines = httpx.get(f"http://127.0.0.1:{server.port}/metrics").text.splitlines()
    return sorted(line.rpartition(" ")[0] for line in lines if "reply." in line)


def test_reply_queues_leave_nothing_on_the_server(broker: str, api: Api, server: Server) -> None:
    with Connection(broker) as connection:
        for number in itertools.count(1):
            mailbox = Mailbox("celery", type="fanout")(connection)  # each process that inspects has a reply queue
            mailbox._broadcast("ping", reply=True, timeout=0.01)
            if number == 1:
                first = pidbox_series(server)
            if number == PINGS:
                break
    assert api.lag("reply.celery.pidbox.exchange", "queues").consumers in (None, [])
    assert pidbox_series(server) == first
