import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from hourwheel.client import Consumer, Delivery, Message
from tests.unit.client.broker import Broker
from tests.unit.client.broker_records import FakeGroup
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillIds

LONG_SECONDS = 120.0


def fill(server: FakeServer, *bodies: str) -> None:
    with server.broker.changed:
        server.broker.produce("orders", {"messages": [{"body": body} for body in bodies]})


def consumer(server: FakeServer, **options: Any) -> Consumer:
    options = {"drain_seconds": 0.1, "settle_linger_seconds": 0.02, "wait_seconds": 0.2, **options}
    return Consumer(server.url, "orders", "billing", ids=StillIds(), **options)


def group(server: FakeServer) -> FakeGroup:
    return server.broker.group("orders", "billing")


def settled(broker: Broker, count: int) -> bool:
    return len(broker.group("orders", "billing").acked) == count


class Running:
    """``run`` on a thread of its own, and stopped at the end."""

    def __init__(self, consumer: Consumer, handle: Callable[[Delivery], object]) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        consumer.handler(handle)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:
            self.error = error

    def __enter__(self) -> "Running":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.consumer.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(LONG_SECONDS)
        assert not self._thread.is_alive()


def test_a_message_shows_all_that_was_sent(server: FakeServer) -> None:
    with server.broker.changed:
        message = {"body": "a", "key": "k", "tags": ["eu"], "headers": {"t": "1"}, "id": "o-7"}
        server.broker.produce("orders", {"messages": [message]})
    with consumer(server) as messages:
        first = next(iter(messages))
    assert (first.id, first.body, first.key, first.tags, first.headers) == ("o-7", "a", "k", ["eu"], {"t": "1"})
    assert (first.queue, first.offset, first.attempt, first.produced_at.year) == (0, 0, 1, 2026)
    assert "o-7" in repr(first)


def test_a_message_says_when_it_was_due(server: FakeServer) -> None:
    with server.broker.changed:
        late = {"body": "late", "deliver_at": "2027-01-01T09:00:00Z"}
        [accepted, _] = server.broker.produce("orders", {"messages": [late, {"body": "at once"}]})["results"]
    server.broker.fall_due(accepted["scheduled_id"])
    with consumer(server) as messages:
        loop = iter(messages)
        due = {message.body: message.due_at for message in (next(loop), next(loop))}
    assert due == {"at once": None, "late": datetime(2027, 1, 1, 9, tzinfo=UTC)}


def test_a_loop_without_a_message_cuts_the_pull_that_waits_when_it_is_stopped(server: FakeServer) -> None:
    with consumer(server, wait_seconds=20, drain_seconds=LONG_SECONDS) as messages:
        stopping = threading.Thread(
            target=lambda: (server.wait_until(lambda broker: broker.waiting_pulls == 1), messages.stop())
        )
        stopping.start()
        assert list(messages) == []
    stopping.join()
    assert server.broker.waiting_pulls == 1
    fill(server, "a")  # lets the pull at the server end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_cleanly(server: FakeServer, number: signal.Signals) -> None:
    fill(server, "a")
    before = signal.getsignal(number)
    subject = consumer(server)
    subject.handler(lambda message: os.kill(os.getpid(), number))
    subject.run()
    assert group(server).acked == ["a"]
    assert signal.getsignal(number) is before


def test_a_handler_that_ends_the_program_is_heard(server: FakeServer) -> None:
    fill(server, "a")
    subject = consumer(server)

    @subject.handler
    def handle(message: Delivery) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        subject.run()
    assert [message["body"] for message in group(server).retries] == ["a"]


def test_the_loop_acknowledges_when_it_asks_for_the_next(server: FakeServer) -> None:
    fill(server, "a", "b", "c")
    with consumer(server) as messages:
        for message in messages:
            if message.body == "b":
                server.wait_until(lambda broker: broker.group("orders", "billing").acked == ["a"])
                message.retry()
            if message.body == "c":
                break
    assert group(server).acked == ["a", "c"]
    assert [message["body"] for message in group(server).retries] == ["b"]


def test_an_exception_that_leaves_the_loop_retries_the_message(server: FakeServer) -> None:
    fill(server, "a", "b", "c")

    def work() -> None:
        with consumer(server, max_messages=100, settle_linger_seconds=60) as messages:
            for message in messages:
                if message.body == "b":
                    raise KeyError("b")

    with pytest.raises(KeyError):
        work()
    assert group(server).acked == ["a"]
    assert sorted(message["body"] for message in group(server).retries) == ["b", "c"]


def test_stop_ends_the_loop(server: FakeServer) -> None:
    fill(server, "a", "b")
    seen = []
    with consumer(server, drain_seconds=LONG_SECONDS) as messages:
        for message in messages:
            seen.append(message.body)
            messages.stop()
    assert seen == ["a", "b"]
    assert group(server).acked == ["a", "b"]


def test_misuse_is_told(server: FakeServer) -> None:
    with pytest.raises(RuntimeError, match="handler"):
        consumer(server).run()
    with pytest.raises(RuntimeError, match="with block"):
        iter(consumer(server))
    with consumer(server) as messages, pytest.raises(RuntimeError, match="one run"):
        messages.__enter__()


def test_a_handler_whose_call_would_run_nothing_is_refused(server: FakeServer) -> None:
    async def bill(message: Delivery) -> None: ...

    def bill_each(messages: list[Delivery]) -> Iterator[None]:
        yield

    class Billing:
        async def __call__(self, message: Delivery) -> None: ...

    takes = consumer(server)
    for refused in (bill, functools.partial(bill), Billing(), bill_each):
        for decorate in (takes.handler, takes.batch_handler, takes.handler(idempotent=cast(Any, object()))):
            with pytest.raises(TypeError, match=r"is asynchronous: use AsyncConsumer|is a generator function"):
                decorate(refused)


def test_each_consumer_names_itself(server: FakeServer) -> None:
    fill(server, "a")
    with consumer(server) as messages:
        next(iter(messages))
    name = server.calls("pull")[0].body["consumer"]
    assert str(os.getpid()) in name
    assert len(name) <= 100


def test_a_message_of_a_producer_arrives(server: FakeServer) -> None:
    from hourwheel.client import Producer

    with Producer(server.url, subject="orders") as producer, consumer(server, wait_seconds=5) as messages:
        producer.send_batch([Message(b"\x00\xff")])
        assert next(iter(messages)).body == b"\x00\xff"
