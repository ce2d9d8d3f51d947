"""Asynchronous stores that remember messages beside the handler: Redis, one's own, with marks that end."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any, TypeAlias, cast

import pytest
import redis
import redis.asyncio

from hourwheel.client import Delivery
from hourwheel.client.aio.idempotence import awaited_once
from hourwheel.client.consuming.idempotence import InProgress
from hourwheel.idempotency import AsyncRedisStore, RedisStore
from hourwheel.testing import Queue
from tests.apps.idempotency.conftest import LEASE_SECONDS, one_delivery
from tests.apps.idempotency.test_marks import OwnStore

MARK = timedelta(seconds=60)
Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


class AsyncOwnStore:
    """A store of one's own: two coroutine methods."""

    def __init__(self) -> None:
        self._blocking = OwnStore()

    async def begin(self, identity: str) -> bool:
        await asyncio.sleep(0)
        return self._blocking.begin(identity)

    async def end(self, identity: str, *, done: bool) -> None:
        await asyncio.sleep(0)
        self._blocking.end(identity, done=done)


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(params=["redis", "own"])
def store(request: pytest.FixtureRequest, run: Run) -> Iterator[Any]:
    if request.param == "own":
        yield AsyncOwnStore()
    else:
        client = redis.asyncio.Redis(unix_socket_path=request.getfixturevalue("redis_socket"))
        yield AsyncRedisStore(client, lease=MARK)
        run(client.aclose())


def set_handler(queue: Queue, store: Any, function: Callable[..., Awaitable[object]]) -> None:
    queue.async_consumer("orders", "billing").handler(idempotent=store)(function)


def noting(seen: list[object]) -> Callable[[Delivery], Awaitable[object]]:
    async def note(message: Delivery) -> None:
        seen.append(message.body)

    return note


def test_a_consumer_that_dies_after_the_message_was_remembered_has_its_effect_once(
    store: Any, queue: Queue, run: Run
) -> None:
    async def killed_before_it_acknowledged() -> None:
        await awaited_once(noting(seen), store, "orders", "billing")(one_delivery(queue))

    seen: list[object] = []
    queue.producer("orders").send("paid")
    queue.api.put_group("orders", "billing")
    run(killed_before_it_acknowledged())
    set_handler(queue, store, noting(seen))
    assert run(queue.advance_async(seconds=LEASE_SECONDS + 10)) == 1
    assert seen == ["paid"]


def test_a_consumer_that_dies_between_its_effect_and_the_store_leaves_a_mark_that_others_wait_for(
    store: Any, queue: Queue, run: Run
) -> None:
    """This is the case in which the effect happens twice: once the mark has ended."""
    seen: list[object] = []
    sent = queue.producer("orders").send("paid").result()
    assert run(store.begin(f"orders/billing/{sent.id}"))
    set_handler(queue, store, noting(seen))
    run(queue.run_async())
    assert (seen, queue.errors) == ([], [])
    lag = queue.api.lag("orders", "billing")
    assert (lag.backing_off, lag.dead) == (1, 0)
    run(store.end(f"orders/billing/{sent.id}", done=False))
    run(queue.advance_async(seconds=MARK.total_seconds() + 1))
    assert seen == ["paid"]


def test_a_handler_that_fails_or_gives_a_message_back_is_called_again(store: Any, queue: Queue, run: Run) -> None:
    attempts: list[int] = []

    async def bill(message: Delivery) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise RuntimeError("not today")
        if message.attempt == 2:
            message.retry(delay=10)

    set_handler(queue, store, bill)
    queue.producer("orders").send("paid")
    run(queue.advance_async(hours=1))
    assert attempts == [1, 2, 3]


def test_a_cancelled_handler_removes_its_mark(store: Any, queue: Queue, run: Run) -> None:
    began, seen = asyncio.Event(), list[object]()

    async def hang_once(message: Delivery) -> None:
        seen.append(message.body)
        if len(seen) == 1:
            began.set()
            await asyncio.Event().wait()

    async def main() -> None:
        consumer = queue.async_consumer("orders", "billing")
        consumer.handler(idempotent=store)(hang_once)
        task = asyncio.create_task(consumer.run())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await queue.run_async() == 1

    queue.producer("orders").send("paid")
    run(main())
    assert seen == ["paid", "paid"]


def test_a_message_that_is_sent_twice_under_one_id_has_its_effect_once(store: Any, queue: Queue, run: Run) -> None:
    seen: list[object] = []
    set_handler(queue, store, noting(seen))
    for _ in range(2):
        queue.producer("orders").send("paid", message_id="order-7")
    assert run(queue.run_async()) == 2
    assert seen == ["paid"]


def test_a_handler_with_a_session_and_a_thing_that_is_no_store_are_refused(store: Any, queue: Queue) -> None:
    async def bill(order: dict[str, int], session: object) -> None: ...

    with pytest.raises(TypeError, match=r"the handler takes a session, and \w+ has none"):
        set_handler(queue, store, bill)
    with pytest.raises(TypeError, match="an idempotency store has the method transaction, or the methods begin and"):
        set_handler(queue, {}, noting([]))


def test_a_store_of_the_other_kind_is_refused_when_the_handler_is_set(
    store: Any, queue: Queue, redis_socket: str
) -> None:
    with pytest.raises(TypeError, match="OwnStore would block the event loop: an AsyncConsumer takes AsyncSqlAlchemy"):
        set_handler(queue, OwnStore(), noting([]))
    with pytest.raises(TypeError, match=rf"{type(store).__name__} is to be awaited: give it to an AsyncConsumer"):
        queue.consumer("orders", "billing").handler(idempotent=store)(print)
    with pytest.raises(TypeError, match="this client is asynchronous: use AsyncRedisStore"):
        RedisStore(redis.asyncio.Redis(unix_socket_path=redis_socket))
    with (
        redis.Redis(unix_socket_path=redis_socket) as client,
        pytest.raises(TypeError, match="this client is not asynchronous: use RedisStore"),
    ):
        AsyncRedisStore(cast("Any", client))


def test_a_consumer_whose_mark_ended_does_not_end_the_mark_of_another(
    redis_socket: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=redis_socket, decode_responses=True) as client:
            slow, other = AsyncRedisStore(client, lease=MARK), AsyncRedisStore(client, lease=MARK)
            assert await slow.begin("a/b/1")
            await client.delete("hourwheel:processed:a/b/1")  # as after a minute
            assert await other.begin("a/b/1")
            await slow.end("a/b/1", done=True)
            assert "took longer than its mark" in caplog.text
            with pytest.raises(InProgress) as refused:
                await slow.begin("a/b/1")
            assert 59 <= float(refused.value.delay) <= 60
            await slow.end("a/b/1", done=False)
            await other.end("a/b/1", done=True)
            assert not await slow.begin("a/b/1")

    asyncio.run(main())


@pytest.mark.parametrize("done", [True, False])
def test_a_slow_task_whose_mark_ended_does_not_end_the_mark_of_another_task_of_its_store(
    redis_socket: str, done: bool
) -> None:
    async def main() -> None:
        async with redis.asyncio.Redis(unix_socket_path=redis_socket) as client:
            store, overtaken = AsyncRedisStore(client, lease=MARK), asyncio.Event()

            async def slow() -> None:
                assert await store.begin("a/b/1")
                await client.delete("hourwheel:processed:a/b/1")  # as after a minute
                overtaken.set()
                await asyncio.sleep(0)
                while await client.get("hourwheel:processed:a/b/1") is None:
                    await asyncio.sleep(0)
                await store.end("a/b/1", done=done)

            task = asyncio.create_task(slow())
            await overtaken.wait()
            assert await store.begin("a/b/1")
            await task
            with pytest.raises(InProgress):
                await AsyncRedisStore(client, lease=MARK).begin("a/b/1")
            await store.end("a/b/1", done=True)
            assert not await store.begin("a/b/1")

    asyncio.run(main())
