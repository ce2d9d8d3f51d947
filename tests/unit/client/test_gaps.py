"""An interrupt between a lock and its block, which Python 3.14 lets through, leaves no lock held, on any version."""

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest

from hourwheel.client import Closed, Consumer, NotSent, Producer, SendResult
from tests.unit.client.fake import FakeServer
from tests.unit.gaps import FAR_SECONDS, Gaps, interrupt_at_each_gap, patch_locks

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket")  # the collector closes what an interrupt drops


@pytest.fixture
def gaps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gaps]:
    yield patch_locks(monkeypatch)
    gc.collect()


def cancel(future: "Future[SendResult]") -> object:
    future.add_done_callback(lambda _: None)
    return future.cancel()


CALLS: dict[str, Callable[[Producer], Any]] = {
    "send": lambda producer: producer.send("mine"),
    "result": lambda producer: producer.send("mine").result(FAR_SECONDS),
    "exception": lambda producer: producer.send("mine").exception(FAR_SECONDS),
    "cancel": lambda producer: cancel(producer.send("mine")),
    "send_batch": lambda producer: producer.send_batch(["mine"]),
    "flush": lambda producer: producer.flush(),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_producer_goes_on_after_an_interrupt_behind_any_of_its_locks(
    name: str, server: FakeServer, gaps: Gaps
) -> None:
    producers: list[Producer] = []

    def begin() -> tuple[Callable[[], Any], Callable[[], Any]]:
        producer = Producer(server.url, subject="orders")
        producers.append(producer)
        producer.send("first")

        def other() -> None:
            producer.send("paid").result(FAR_SECONDS)
            producer.send_batch(["paid"])
            producer.flush()

        return lambda: CALLS[name](producer), other

    assert interrupt_at_each_gap(gaps, begin) > 0
    assert server.bodies("orders").count("paid") == 4 * len(producers)
    for producer in producers:
        producer.close()


def test_a_producer_may_be_closed_after_an_interrupt_behind_any_lock_of_close(server: FakeServer, gaps: Gaps) -> None:
    server.fail("produce", times=-1, status=503)
    results: list[Future[SendResult]] = []

    def begin() -> tuple[Callable[[], Any], Callable[[], Any]]:
        producer = Producer(server.url, subject="orders")
        future = producer.send("paid")

        def close() -> None:
            with suppress(NotSent):
                producer.close(0)

        def other() -> None:
            close()
            assert isinstance(future.exception(FAR_SECONDS), Closed)
            results.append(future)

        return close, other

    passed = interrupt_at_each_gap(gaps, begin)
    assert len(results) == 2 * (passed + 1)


def test_a_consumer_ends_after_an_interrupt_behind_any_of_its_locks(server: FakeServer, gaps: Gaps) -> None:
    producer = Producer(server.url, subject="orders")
    producer.send_batch(["paid"])
    consumers: list[Consumer] = []

    def begin() -> tuple[Callable[[], Any], Callable[[], Any]]:
        producer.send_batch(["paid"])
        consumer = Consumer(server.url, "orders", "billing", lease_seconds=5)
        consumers.append(consumer)

        def use() -> None:
            with consumer:
                loop = iter(consumer)
                next(loop).ack()
                consumer.stop()

        return use, consumer.stop

    assert interrupt_at_each_gap(gaps, begin) > 0
    producer.close()
