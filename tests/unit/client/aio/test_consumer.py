"""Handlers and loops in tasks acknowledge the messages that they finish, and release those of cancelled tasks."""

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest

from hourwheel.client import AsyncConsumer, AsyncProducer, Delivery, Reject, Retry, Unauthorized
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


def test_what_a_handler_returns_from_is_acknowledged(server: FakeServer, run: Run[Any]) -> None:
    fill(server, *"abc")
    seen: list[Any] = []

    async def handle(message: Delivery) -> None:
        await asyncio.sleep(0)
        seen.append(message.body)

    run(handled(consumer(server), handle, lambda: len(group(server).acked) == 3))
    assert seen == ["a", "b", "c"]


def test_an_exception_retries_and_reject_gives_up(
    server: FakeServer, run: Run[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hourwheel.consumer")
    fill(server, "fails", "rejected", "fine")
    attempts: list[tuple[Any, int]] = []

    async def handle(message: Delivery) -> None:
        attempts.append((message.body, message.attempt))
        if message.body == "rejected":
            raise Reject("never")
        if message.attempt == 1 and message.body == "fails":
            raise ValueError("once")

    run(handled(consumer(server), handle, lambda: len(group(server).acked) == 2))
    assert sorted(attempts) == [("fails", 1), ("fails", 2), ("fine", 1), ("rejected", 1)]
    assert [letter["body"] for letter in group(server).dead] == ["rejected"]
    failed = next(line for line in caplog.messages if line.startswith("handler failed"))
    assert "of subject orders, group billing, attempt 1:" in failed


def test_a_handler_may_say_when_to_try_again(server: FakeServer, run: Run[Any]) -> None:
    fill(server, "paid")

    async def handle(message: Delivery) -> None:
        raise Retry("the bank is closed", delay="10m")

    run(handled(consumer(server), handle, lambda: group(server).backing_off))
    assert [each.get("retry") for call in server.calls("settle") for each in call.body["settle"]] == [
        [{"index": 0, "delay": "10m", "detail": "the bank is closed"}]
    ]


def test_an_annotation_says_how_the_body_is_decoded(server: FakeServer, run: Run[Any]) -> None:
    class Order(msgspec.Struct):
        number: int

    fill(server, '{"number": 7}', '{"number": "seven"}')
    seen: list[int] = []

    async def handle(order: Order) -> None:
        seen.append(order.number)

    run(handled(consumer(server), handle, lambda: len(group(server).acked) == 1 and group(server).dead))
    assert seen == [7]


def test_tasks_handle_messages_beside_each_other(server: FakeServer, run: Run[Any]) -> None:
    fill(server, *(str(number) for number in range(20)))
    together = 0

    async def main() -> None:
        meeting = asyncio.Barrier(10)

        async def handle(message: Delivery) -> None:
            nonlocal together
            await meeting.wait()
            together += 1

        await handled(consumer(server, concurrency=10), handle, lambda: len(group(server).acked) == 20)

    run(main())
    assert together == 20


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


def test_a_stop_without_a_message_cuts_the_pull_that_waits_at_once(server: FakeServer, run: Run[Any]) -> None:
    async def handle(message: Delivery) -> None:
        pass

    idle = consumer(server, wait_seconds=20, drain_seconds=LONG_SECONDS, concurrency=3)
    run(handled(idle, handle, lambda: server.broker.waiting_pulls))
    assert server.broker.waiting_pulls == 1
    fill(server, "a")  # lets the pull at the server end


def test_a_slow_handler_keeps_its_lease(server: FakeServer, run: Run[Any]) -> None:
    fill(server, "slow")

    async def handle(message: Delivery) -> None:
        await until(lambda: any("extend_seconds" in str(each.body) for each in server.calls("settle")))
        assert not message.lost

    takes = consumer(server, lease_seconds=1)
    run(handled(takes, handle, lambda: len(group(server).acked) == 1))
    assert takes.lost_messages == 0


def test_a_result_whose_answer_was_lost_is_settled_once(server: FakeServer, run: Run[Any]) -> None:
    fill(server, "paid")
    server.fail("settle", lose=True)

    async def handle(message: Delivery) -> None:
        pass

    # The next pull waits when the message is settled, and takes no settlement along.
    takes = consumer(server, wait_seconds=5, max_messages=100)
    run(handled(takes, handle, lambda: len(server.calls("settle")) >= 2))
    assert acked(server) == ["paid"]


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


def test_an_unknown_receipt_spoils_nothing_but_itself(server: FakeServer, run: Run[Any]) -> None:
    fill(server, "a", "b")
    takes = consumer(server, max_messages=1, settle_linger_seconds=5)

    async def handle(message: Delivery) -> None:
        if message.body == "a":
            with server.broker.changed:
                group(server).leases.clear()

    run(handled(takes, handle, lambda: "b" in acked(server)))


def test_the_server_may_be_away_for_a_while(
    server: FakeServer, run: Run[Any], caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, "paid")
    server.fail("pull", status=503, times=3)

    async def handle(message: Delivery) -> None:
        pass

    run(handled(consumer(server), handle, lambda: len(group(server).acked) == 1))
    assert [text.partition(",")[0] for text in caplog.messages] == ["pull failed", "pulls are answered again"]


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


@pytest.mark.parametrize("delete", ["delete_subject", "delete_group"])
def test_a_consumer_goes_on_after_a_deletion(server: FakeServer, run: Run[Any], delete: str) -> None:
    fill(server, "before")
    takes = consumer(server, max_messages=100, settle_linger_seconds=0, wait_seconds=20)
    names = {"delete_subject": ["orders"], "delete_group": ["orders", "billing"]}[delete]

    async def handle(message: Delivery) -> None:
        if names:  # a new group begins with the first message
            await until(lambda: server.broker.waiting_pulls)
            with server.broker.changed:
                getattr(server.broker, delete)(*names)
            names.clear()

    async def main() -> None:
        takes.handler(handle)
        running = asyncio.ensure_future(takes.run())
        await until(lambda: running.done() or takes.lost_messages)
        fill(server, "after")
        await until(lambda: running.done() or "after" in group(server).acked)
        takes.stop()
        await running

    run(main())
    assert "after" in group(server).acked
