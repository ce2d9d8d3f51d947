"""An account with ten executions answers 429 to most requests: clients back off, and neither lose nor double a
message."""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hourwheel.client import Api, AsyncConsumer, AsyncProducer, Consumer, Producer
from hourwheel.context import Settings
from hourwheel.model.groups import RetryPolicy
from tests.function_urls import OPERATOR_SESSION, SERVICE_SESSION, serving, take_loopback_for_urls
from tests.integration.account import Account, LoopbackQueues

REGION = "eu-west-1"
GROUPS = ("billing", "mail")
LONG_SECONDS = 120.0
"""A consumer pauses for at most 20 s, and a producer for 5 s: this much later everything has arrived."""
CROWDED_SECONDS = 4.0
SENDS = 30

MOST_CALLS = 20
"""A loop that backs off makes about a dozen calls in that time: its pauses double from 25 ms on. One that does not back
off makes hundreds."""
LOOPS = 2 + 2 * len(GROUPS)  # two ways to send, and the pulls and settlements of each consumer


@pytest.fixture(autouse=True)
def local(monkeypatch: pytest.MonkeyPatch) -> None:
    take_loopback_for_urls(monkeypatch)


@pytest.fixture
def queues() -> Iterator[LoopbackQueues]:
    queues = LoopbackQueues()
    with queues.serving():
        yield queues


@pytest.fixture
def account(queues: LoopbackQueues) -> Account:
    retry = RetryPolicy(first_seconds=0)
    return Account(queues, Settings(registry_seconds=0.5, retry=retry))


@pytest.fixture
def client(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Yields the options of a service's clients, with a token for the subject and its groups."""
    with serving(account, {"AKIASHOP": SERVICE_SESSION, "AKIAOPS": OPERATOR_SESSION}) as urls:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOPS")
        with Api(urls["meta"], region=REGION) as operator:
            token = operator.create_grant(produce=["orders"], pull=["orders/*"]).token
            for group in GROUPS:
                operator.put_group("orders", group)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASHOP")
        yield {"url": urls["meta"], "region": REGION, "token": token}


class Handled:
    """The messages that consumers have handled, by group and body."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._changed = threading.Condition()

    def add(self, group: str, body: str) -> None:
        with self._changed:
            self.counts[group, body] += 1
            self._changed.notify_all()

    def wait_for(self, messages: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.counts) >= messages, LONG_SECONDS), (
                f"{len(self.counts)} came"
            )


@contextlib.contextmanager
def _threads(client: dict[str, Any], handled: Handled) -> Iterator[Callable[[str], Callable[[], None]]]:
    consumers = [Consumer(subject="orders", group=group, lease_seconds=600, **client) for group in GROUPS]
    for group, consumer in zip(GROUPS, consumers, strict=True):
        consumer.handler(lambda message, group=group: handled.add(group, message.body))
    running = [threading.Thread(target=consumer.run) for consumer in consumers]
    for thread in running:
        thread.start()
    producer = Producer(subject="orders", **client)

    def send(name: str) -> Callable[[], None]:
        """Begins to send. The call that it returns waits until all is accepted."""
        batch = threading.Thread(target=lambda: producer.send_batch([f"{name}-batch-{n}" for n in range(SENDS)]))
        batch.start()
        futures = [producer.send(f"{name}-{number}") for number in range(SENDS)]

        def finish() -> None:
            for future in futures:
                future.result(LONG_SECONDS)
            batch.join(LONG_SECONDS)

        return finish

    try:
        yield send
    finally:
        producer.close()
        for consumer in consumers:
            consumer.stop()
        for thread in running:
            thread.join(LONG_SECONDS)
            assert not thread.is_alive()


@contextlib.contextmanager
def _asyncio(client: dict[str, Any], handled: Handled) -> Iterator[Callable[[str], Callable[[], None]]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def consume(group: str, begun: list[AsyncConsumer]) -> None:
        consumer = AsyncConsumer(subject="orders", group=group, lease_seconds=600, **client)

        @consumer.handler
        async def handle(message: Any) -> None:
            handled.add(group, message.body)

        begun.append(consumer)
        await consumer.run()

    async def produce(name: str) -> None:
        if not producers:
            producers.append(AsyncProducer(subject="orders", **client))
        (producer,) = producers
        single = [producer.send(f"{name}-{number}") for number in range(SENDS)]
        batch = producer.send_batch([f"{name}-batch-{number}" for number in range(SENDS)])
        await asyncio.gather(*single, batch)

    def send(name: str) -> Callable[[], None]:
        sending = asyncio.run_coroutine_threadsafe(produce(name), loop)
        return lambda: sending.result(LONG_SECONDS)

    consumers: list[AsyncConsumer] = []
    producers: list[AsyncProducer] = []
    running = [asyncio.run_coroutine_threadsafe(consume(group, consumers), loop) for group in GROUPS]
    try:
        yield send
    finally:
        for consumer in consumers:
            loop.call_soon_threadsafe(consumer.stop)
        for producer in producers:
            asyncio.run_coroutine_threadsafe(producer.close(), loop).result(LONG_SECONDS)
        for run in running:
            run.result(LONG_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LONG_SECONDS)
        loop.close()


@pytest.mark.parametrize("clients", [_threads, _asyncio])
def test_clients_of_a_crowded_account_back_off_and_everything_arrives_once(
    clients: Any, account: Account, queues: LoopbackQueues, client: dict[str, Any]
) -> None:
    handled = Handled()
    with clients(client, handled) as send:
        send("before")()
        handled.wait_for(len(GROUPS) * 2 * SENDS)
        queues.wait_for_consumers(len(GROUPS), LONG_SECONDS)
        account.crowd(on=True)
        accepted = send("crowded")
        threading.Event().wait(CROWDED_SECONDS)
        account.wait_for_refusals("produce", "pull", seconds=LONG_SECONDS)
        account.crowd(on=False)
        calls = account.calls.total()
        accepted()
        send("after")()
        handled.wait_for(len(GROUPS) * 6 * SENDS)
        queues.wait_for_consumers(len(GROUPS), LONG_SECONDS)  # they have looked again: nothing more is there
    assert calls <= MOST_CALLS * LOOPS, account.calls
    names = [
        f"{name}-{kind}{n}" for name in ("before", "crowded", "after") for kind in ("", "batch-") for n in range(SENDS)
    ]
    assert handled.counts == Counter((group, name) for group in GROUPS for name in names)
    for group in GROUPS:
        lag = account.process().groups.lag("orders", group)
        assert (lag.waiting, lag.in_flight, lag.retrying, lag.backing_off, lag.dead) == (0, 0, 0, 0, 0)
