"""Producers and consumers of asyncio on a queue in memory: no socket, no waiting, one message after the other."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hourwheel.client import (
    AsyncApi,
    AsyncConsumer,
    AsyncProducer,
    BadRequest,
    Delivery,
    Message,
    Reject,
    Retry,
    RetryPolicy,
)
from hourwheel.testing import Queue

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue(now=NOON) as queue:
        yield queue


@pytest.fixture(params=["thread", "loop"])
def advance(request: pytest.FixtureRequest, queue: Queue) -> Callable[[timedelta], int]:
    """Advances a queue on the thread of the test, or in an event loop that the test runs."""
    if request.param == "thread":
        return queue.advance
    return lambda delta: asyncio.run(queue.advance_async(delta))


def test_code_that_makes_its_own_clients_works_on_the_queue_by_its_url(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_connection", refused)
    seen: list[str | bytes] = []

    async def main() -> None:
        async with AsyncProducer(queue.url, subject="orders") as producer:
            await producer.send("one")
            await asyncio.gather(*(producer.send(body) for body in ("two", "three")))
        async with AsyncApi(queue.url) as api:
            await api.put_group("orders", "billing")
            assert (await api.lag("orders", "billing")).waiting == 3
            with pytest.raises(BadRequest):
                await api.put_group("orders", "not a name")
        consumer = AsyncConsumer(queue.url, "orders", "billing", concurrency=8)

        @consumer.handler
        async def bill(message: Delivery) -> None:
            await asyncio.sleep(0)
            seen.append(message.body)

        await consumer.run()  # ends when nothing is left

    asyncio.run(main())
    assert seen == ["one", "two", "three"]
    assert queue.api.lag("orders", "billing").in_flight == 0


def test_a_loop_ends_when_nothing_is_left_and_settles_what_it_handed_out(queue: Queue) -> None:
    async def bodies() -> list[str | bytes]:
        async with queue.async_consumer("orders", "billing") as messages:
            return [message.body async for message in messages]

    queue.producer("orders").send_batch(["one", "two"])
    assert asyncio.run(bodies()) == ["one", "two"]
    assert asyncio.run(bodies()) == []
    assert queue.api.lag("orders", "billing").in_flight == 0


def test_what_handlers_send_on_the_way_falls_due_on_the_way(queue: Queue, advance: Callable[[timedelta], int]) -> None:
    producer, days = queue.async_producer("chain"), list[float]()

    @queue.async_consumer("chain", "steps").handler
    async def step(message: Delivery) -> None:
        days.append((queue.now - NOON) / timedelta(days=1))
        if len(days) < 4:
            await producer.send("next", delay="30d")

    queue.producer("chain").send("first")
    assert advance(timedelta(days=365)) == 4
    assert days == [0, 30, 60, 90]


def test_a_failing_message_is_retried_at_its_time_and_given_up(
    queue: Queue, advance: Callable[[timedelta], int]
) -> None:
    attempts: list[tuple[int, float]] = []
    queue.api.put_group("orders", "billing", max_attempts=3, retry=RetryPolicy(delays_seconds=(10, 60)))

    @queue.async_consumer("orders", "billing").handler
    async def fail(message: Delivery) -> None:
        attempts.append((message.attempt, (queue.now - NOON).total_seconds()))
        raise RuntimeError("not today")

    queue.producer("orders").send("paid")
    assert advance(timedelta(minutes=5)) == 3
    assert attempts == [(1, 0), (2, 10), (3, 70)]
    assert [letter.reason for letter in queue.dead("orders", "billing")] == ["attempts"]
    assert [str(error) for error in queue.errors] == ["not today"] * 3


def test_retry_reject_and_misfits_decide_as_they_do_on_a_server(
    queue: Queue, advance: Callable[[timedelta], int]
) -> None:
    @queue.async_consumer("orders", "billing").handler
    async def bill(order: dict[str, int], message: Delivery) -> None:
        if order["number"] == 1:
            raise Reject("the order is empty")
        if message.attempt == 1:
            raise Retry("the bank is closed", delay="1h")

    queue.producer("orders").send_batch([{"number": 1}, {"number": 2}, "paid"])
    assert advance(timedelta(minutes=59)) == 3
    assert advance(timedelta(minutes=1)) == 1
    details = [letter.detail for letter in queue.dead("orders", "billing")]
    assert details == [
        "the order is empty",
        "the body does not fit dict[str, int]: the body is not JSON in UTF-8 (byte 0)",
    ]


def test_an_assertion_of_a_handler_fails_the_test(queue: Queue) -> None:
    @queue.async_consumer("orders", "billing").handler
    async def check(message: Delivery) -> None:
        assert message.body == "paid"

    queue.producer("orders").send_batch(["late", "paid"])
    with pytest.raises(AssertionError):
        queue.run()
    queue.producer("orders").send("late")
    with pytest.raises(AssertionError):
        asyncio.run(queue.run_async())


def test_handlers_of_both_kinds_run_in_the_order_in_which_their_consumers_were_made(queue: Queue) -> None:
    seen: list[str] = []

    @queue.async_consumer("orders", "first").handler
    async def first(message: Delivery) -> None:
        await asyncio.sleep(0)
        seen.append("first")

    queue.consumer("orders", "second").handler(lambda message: seen.append("second"))

    @queue.async_consumer("orders", "third").batch_handler
    async def third(messages: list[Delivery]) -> None:
        seen.append("third")

    queue.producer("orders").send("paid")
    assert queue.run() == 3
    queue.producer("orders").send("paid")
    assert asyncio.run(queue.run_async()) == 3
    assert seen == ["first", "second", "third"] * 2


def test_two_runs_on_the_thread_of_the_test_share_one_event_loop(queue: Queue) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    @queue.async_consumer("orders", "billing").handler
    async def bill(message: Delivery) -> None:
        loops.append(asyncio.get_running_loop())

    queue.producer("orders").send_batch(["one", Message("two", delay=60)])
    assert (queue.run(), queue.advance(minutes=1)) == (1, 1)
    assert loops[0] is loops[1]
    assert not loops[0].is_closed()
    queue.close()
    assert loops[0].is_closed()


def test_a_run_within_an_event_loop_says_what_to_await(queue: Queue) -> None:
    @queue.async_consumer("orders", "billing").handler
    async def bill(message: Delivery) -> None: ...

    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"await queue\.run_async\(\)"):
            queue.run()
        assert await queue.run_async() == 1

    queue.producer("orders").send("paid")
    asyncio.run(main())


def test_handlers_that_do_not_come_to_an_end_stop(queue: Queue) -> None:
    producer = queue.async_producer("orders")

    @queue.async_consumer("orders", "billing").handler
    async def again(message: Delivery) -> None:
        await producer.send("again")

    queue.producer("orders").send("paid")
    with pytest.raises(RuntimeError, match="do not come to an end"):
        queue.run(at_most=20)


def test_a_service_that_runs_its_consumer_in_a_task_gets_later_messages_too(queue: Queue) -> None:
    seen: list[str | bytes] = []

    async def main() -> None:
        consumer = queue.async_consumer("orders", "billing")

        @consumer.handler
        async def bill(message: Delivery) -> None:
            seen.append(message.body)

        async with asyncio.TaskGroup() as tasks, queue.async_producer("orders") as producer:
            tasks.create_task(consumer.run())
            await asyncio.sleep(0)
            await producer.send("paid")
            assert await queue.run_async() == 1
            consumer.stop()
            await producer.send("later")
            assert await queue.run_async() == 0

    asyncio.run(main())
    assert seen == ["paid"]


def test_a_cancelled_handler_releases_its_message(queue: Queue) -> None:
    attempts: list[int] = []
    began = asyncio.Event()

    async def main() -> None:
        consumer = queue.async_consumer("orders", "billing")

        @consumer.handler
        async def bill(message: Delivery) -> None:
            attempts.append(message.attempt)
            began.set()
            if len(attempts) == 1:
                await asyncio.Event().wait()

        task = asyncio.create_task(consumer.run())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await queue.run_async() == 1

    queue.producer("orders").send("paid")
    asyncio.run(main())
    assert attempts == [1, 1]
