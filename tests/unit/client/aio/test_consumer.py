"""Handlers and loops in tasks acknowledge the messages that they finish, and release those of cancelled tasks."""

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest

from hourwheel.client import AsyncConsumer, AsyncProducer, Delivery, Unauthorized
from hourwheel.client.consuming import pull_session
from tests.unit.client.aio.conftest import LONG_SECONDS, Run, until
from tests.unit.client.fake import FakeServer
from tests.unit.client.ids import StillIds
from tests.unit.client.test_consumer import fill, group


def consumer(server: FakeServer, **options: Any) -> AsyncConsumer:
    options = {"drain_seconds": 0.1, "settle_linger_seconds": 0.02, "wait_seconds": 0.2, **options}
    return AsyncConsumer(server.url, "orders", "billing", ids=StillIds(), **options)


async def handled(takes: AsyncConsumer, handle: Callable[..., Awaitable[object]], done: Callable[[], object]) -> None:
    """Runs the consumer until something holds, and stops it."""
    takes.handler(handle)
    running = asyncio.ensure_future(takes.run())
    await until(lambda: done() or running.done())
    takes.stop()
    await running


def acked(server: FakeServer) -> list[str]:
    return sorted(group(server).acked)


def test_an_annotation_says_how_the_body_is_decoded(server: FakeServer, run: Run[Any]) -> None:
    class Order(msgspec.Struct):
        number: int

    fill(server, '{"number": 7}', '{"number": "seven"}')
    seen: list[int] = []

    async def handle(order: Order) -> None:
        seen.append(order.number)

    run(handled(consumer(server), handle, lambda: len(group(server).acked) == 1 and group(server).dead))
    assert seen == [7]


def test_the_messages_of_a_cancelled_run_are_released_with_the_same_attempt(server: FakeServer, run: Run[Any]) -> None:
    fill(server, "done", "handled", "waiting")
    seen: list[tuple[Any, int]] = []

    async def handle(message: Delivery) -> None:
        seen.append((message.body, message.attempt))
        if message.body != "done":
            await asyncio.sleep(LONG_SECONDS)

    async def main() -> None:
        takes = consumer(server)
        takes.handler(handle)
        running = asyncio.ensure_future(takes.run())
        await until(lambda: len(seen) == 2)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(main())
    assert acked(server) == ["done"]
    assert {(each["body"], each["attempt"]) for each in group(server).retries} == {("handled", 1), ("waiting", 1)}


def test_a_cancelled_run_hands_out_nothing_more_though_a_handler_goes_on(server: FakeServer, run: Run[Any]) -> None:
    fill(server, "a", "b")
    seen: list[Any] = []

    async def main() -> None:
        takes = consumer(server)

        @takes.handler
        async def handle(message: Delivery) -> None:
            seen.append(message.body)
            if len(seen) > 1:
                takes.stop()
                return
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(LONG_SECONDS)

        running = asyncio.ensure_future(takes.run())
        await until(lambda: seen)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(main())
    assert seen == acked(server) == ["a"]


def test_a_handler_whose_own_task_was_cancelled_has_failed(server: FakeServer, run: Run[Any]) -> None:
    fill(server, "paid")

    async def handle(message: Delivery) -> None:
        if message.attempt == 1:
            other = asyncio.ensure_future(asyncio.sleep(LONG_SECONDS))
            other.cancel()
            await other

    run(handled(consumer(server), handle, lambda: len(group(server).acked) == 1))


def test_a_batch_handler_decides_about_some_and_acknowledges_the_others(server: FakeServer, run: Run[Any]) -> None:
    fill(server, *"abc")

    async def main() -> None:
        takes = consumer(server)

        @takes.batch_handler
        async def handle(messages: list[Delivery]) -> None:
            await asyncio.sleep(0)
            for message in messages:
                if message.body == "b":
                    message.dead()

        running = asyncio.ensure_future(takes.run())
        await until(lambda: len(group(server).acked) == 2 and group(server).dead)
        takes.stop()
        await running

    run(main())
    assert acked(server) == ["a", "c"]


def test_a_loop_acknowledges_when_it_asks_for_the_next_and_on_break(server: FakeServer, run: Run[Any]) -> None:
    fill(server, *"abc")

    async def main() -> None:
        async with consumer(server) as messages:
            async for message in messages:
                if message.body == "b":
                    break

    run(main())
    assert acked(server) == ["a", "b"]


@pytest.mark.parametrize(("error", "attempt"), [(ValueError("mine"), 2), (asyncio.CancelledError(), 1)])
def test_an_error_that_leaves_the_loop_retries_the_message_and_a_cancel_releases_it(
    server: FakeServer, run: Run[Any], error: BaseException, attempt: int
) -> None:
    fill(server, "paid")
    group(server).retry = {"delays_seconds": [0]}

    async def main() -> None:
        async with consumer(server) as messages:
            async for _ in messages:
                raise error

    with pytest.raises(type(error)):
        run(main())
    assert group(server).acked == []
    assert [each["attempt"] for each in group(server).retries] == [attempt]


def test_stop_ends_the_loop_and_releases_what_was_not_handed_out(server: FakeServer, run: Run[Any]) -> None:
    fill(server, *"abc")

    async def main() -> list[Any]:
        seen = []
        async with consumer(server, drain_seconds=0) as messages:
            async for message in messages:
                seen.append(message.body)
                messages.stop()
        return seen

    assert run(main()) == ["a"]
    assert acked(server) == ["a"]
    assert {each["attempt"] for each in group(server).retries} == {1}


def test_a_run_ends_though_the_server_does_not_answer_its_last_settlement(
    server: FakeServer, run: Run[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pull_session, "LAST_SETTLEMENTS_SECONDS", 0.05)
    fill(server, "a")
    go = threading.Event()
    server.fail("settle", before=lambda: go.wait(LONG_SECONDS))

    async def main() -> None:
        takes = consumer(server, settle_linger_seconds=0.0, lease_seconds=2)
        async with takes as messages:
            async for _ in messages:
                break
        go.set()

    run(main())
    assert caplog.messages == ["stopped with 1 pulls not settled: their messages are delivered again"]


def test_a_refusal_that_stays_ends_the_run_and_the_loop(run: Run[Any]) -> None:
    async def handle(message: Delivery) -> None:
        pass

    async def loop(takes: AsyncConsumer) -> None:
        async with takes:
            async for _ in takes:
                pass

    with FakeServer(token="sesame").running() as server:
        with pytest.raises(Unauthorized):
            run(handled(consumer(server), handle, lambda: False))
        with pytest.raises(Unauthorized):
            run(loop(consumer(server)))


def test_misuse_is_told(server: FakeServer, run: Run[Any]) -> None:
    async def main() -> None:
        takes = consumer(server)
        with pytest.raises(RuntimeError, match="decorate a coroutine function"):
            await takes.run()
        with pytest.raises(RuntimeError, match="inside an async with block"):
            takes.__aiter__()
        async with takes:
            pass
        with pytest.raises(RuntimeError, match="good for one run"):
            await takes.__aenter__()

    run(main())


def test_a_handler_that_cannot_be_awaited_is_refused(server: FakeServer, run: Run[Any]) -> None:
    def bill(message: Delivery) -> None: ...

    async def bill_each(messages: list[Delivery]) -> AsyncIterator[None]:
        yield

    async def main() -> None:
        takes = consumer(server)
        for decorate in (takes.handler, takes.batch_handler):
            for refused in (bill, bill_each):
                with pytest.raises(TypeError, match="is no coroutine function"):
                    decorate(cast(Any, refused))

    run(main())


def test_a_coroutine_function_is_known_behind_partials_methods_and_wrappers(server: FakeServer, run: Run[Any]) -> None:
    class Billing:
        async def bill(self, message: Delivery) -> None: ...

        async def __call__(self, message: Delivery) -> None: ...

    @functools.wraps(Billing.bill)
    def logged(message: Delivery) -> Awaitable[None]:
        return Billing().bill(message)

    async def main() -> None:
        takes = consumer(server)
        for accepted in (Billing().bill, Billing(), functools.partial(Billing().bill), logged):
            takes.handler(accepted)
            takes.batch_handler(accepted)

    run(main())


def test_nothing_is_lost_or_doubled_among_many(server: FakeServer, run: Run[Any]) -> None:
    seen: list[Any] = []

    async def handle(message: Delivery) -> None:
        seen.append(message.body)
        await asyncio.sleep(0)

    async def main() -> None:
        async with AsyncProducer(server.url, subject="orders") as sends:
            await asyncio.gather(*(sends.send(str(number)) for number in range(500)))
        consumers = [consumer(server, concurrency=3, max_messages=20) for _ in range(3)]
        done = lambda: len(group(server).acked) >= 500  # noqa: E731 - the same for each consumer
        await asyncio.gather(*(handled(takes, handle, done) for takes in consumers))

    run(main())
    assert sorted(seen) == sorted(str(number) for number in range(500))
