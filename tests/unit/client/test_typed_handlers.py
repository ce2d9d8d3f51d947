"""A consumer whose handler takes bodies: a body that fits is handled, one that does not becomes a dead letter at
once."""

import logging

import msgspec
import pytest

from hourwheel.client import Consumer, Delivery, Producer
from tests.unit.client.fake import FakeServer
from tests.unit.client.test_batch_handler import RunningBatches
from tests.unit.client.test_consumer import Running, consumer, fill, group, settled


class Order(msgspec.Struct):
    order: int


def test_what_does_not_fit_becomes_a_dead_letter_without_retries(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, '{"order": 1}', '{"order": "x"}', "paid", '{"order": 2}')
    seen: list[Order] = []

    def bill(order: Order) -> None:
        seen.append(order)

    with caplog.at_level(logging.INFO, logger="hourwheel"), Running(consumer(server), bill):
        server.wait_until(lambda broker: settled(broker, 2) and len(group(server).dead) == 2)
    assert seen == [Order(1), Order(2)]
    assert [(letter["body"], letter["attempt"]) for letter in group(server).dead] == [
        ('{"order": "x"}', 1),
        ("paid", 1),
    ]
    misfit = "the body does not fit Order: order must be a whole number, got text"
    assert misfit in caplog.text
    assert group(server).dead[0]["detail"] == misfit
    assert group(server).dead[1]["detail"] == "the body does not fit Order: the body is not JSON in UTF-8 (byte 0)"


def test_a_batch_holds_what_fits_and_the_rest_becomes_dead_letters(server: FakeServer) -> None:
    fill(server, '{"order": 1}', "paid", '{"order": 2}')
    seen: list[tuple[int, str | bytes]] = []

    def bill(orders: list[Order], messages: list[Delivery]) -> None:
        seen.extend((order.order, message.body) for order, message in zip(orders, messages, strict=True))

    with RunningBatches(server, bill):
        server.wait_until(lambda broker: settled(broker, 2) and group(server).dead)
    assert seen == [(1, '{"order": 1}'), (2, '{"order": 2}')]
    assert [(letter["body"], "is not JSON" in letter["detail"]) for letter in group(server).dead] == [("paid", True)]


def test_a_batch_in_which_nothing_fits_calls_no_handler(server: FakeServer) -> None:
    fill(server, "paid", "paid too")

    def bill(orders: list[Order]) -> None:
        raise AssertionError("there is nothing to bill")

    with RunningBatches(server, bill):
        server.wait_until(lambda broker: len(group(server).dead) == 2)
    assert not group(server).retries


def test_a_handler_that_cannot_be_typed_is_refused_when_it_is_set(server: FakeServer) -> None:
    made = Consumer(server.url, "orders", "billing")
    with pytest.raises(TypeError, match="the handler bill cannot take a body as FakeServer"):

        @made.handler
        def bill(order: FakeServer) -> None: ...

    with pytest.raises(RuntimeError, match=r"decorate a function with @consumer\.handler first"):
        made.run()


def test_a_handler_that_nobody_would_await_is_refused_when_it_is_set(server: FakeServer) -> None:
    """A call of it returns at once, and the message would be acknowledged."""

    class Bill:
        async def __call__(self, message: Delivery) -> None: ...

    async def bill(message: Delivery) -> None: ...

    async def bill_all(messages: list[Delivery]) -> None: ...

    made = Consumer(server.url, "orders", "billing")
    for function in (bill, Bill()):
        with pytest.raises(TypeError, match="asynchronous: use AsyncConsumer"):
            made.handler(function)
    with pytest.raises(TypeError, match="the handler bill_all is asynchronous"):
        made.batch_handler(bill_all)


def test_a_producer_sends_objects_as_json(server: FakeServer) -> None:
    with Producer(server.url, subject="orders") as producer:
        producer.send(Order(1)).result()
        producer.send_batch([Order(2), {"order": 3}, "paid"])
    assert server.bodies("orders") == ['{"order":1}', '{"order":2}', '{"order":3}', "paid"]
