"""Messages of an ``AsyncConsumer`` are remembered in the transaction of the handler, by asyncpg and by aiosqlite."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from hourwheel.client import DeadSelection, Delivery, Reject
from hourwheel.client.aio.idempotence import awaited_once
from hourwheel.idempotency import AsyncSqlAlchemyStore, SqlAlchemyStore
from hourwheel.idempotency.sqlalchemy import create_table, table
from hourwheel.testing import Queue
from tests.apps.idempotency.conftest import LEASE_SECONDS, one_delivery

BILLS = Table("bills", MetaData(), Column("id", Integer, primary_key=True), Column("number", Integer))


Handler: TypeAlias = Callable[..., Awaitable[object]]
Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


class Order(msgspec.Struct):
    number: int


class MovedClock:
    ms = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None: ...


class Shop:
    """A queue, a database, the service's store, and an event loop for both, as a service has one."""

    def __init__(self, queue: Queue, engine: Engine, sessions: async_sessionmaker[AsyncSession], run: Run) -> None:
        self.queue = queue
        self.engine = engine
        self.sessions = sessions
        self.store = AsyncSqlAlchemyStore(sessions)
        self.run = run

    def handle(self, function: Handler) -> None:
        self.queue.async_consumer("orders", "billing").handler(idempotent=self.store)(function)

    def advance(self, **duration: float) -> int:
        return int(self.run(self.queue.advance_async(**duration)))

    def killed_before_it_acknowledged(self, function: Handler) -> None:
        """Calls the handler as a consumer does that is killed once the handler has returned and the store is done."""

        async def handled() -> None:
            await awaited_once(function, self.store, "orders", "billing")(one_delivery(self.queue))

        self.run(handled())

    def bills(self) -> list[int]:
        with self.engine.connect() as connection:
            return list(connection.scalars(select(BILLS.c.number).order_by(BILLS.c.id)))

    def remembered(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.scalar(select(func.count()).select_from(table(MetaData()))) or 0)


@pytest.fixture(params=["asyncpg", "aiosqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, queue: Queue) -> Iterator[Shop]:
    if request.param == "aiosqlite":
        blocking = f"sqlite:///{tmp_path / 'shop.db'}"
        url = blocking.replace("sqlite", "sqlite+aiosqlite", 1)
    else:
        database = str(request.getfixturevalue("postgres"))
        blocking, url = (database.replace("postgresql", f"postgresql+{name}", 1) for name in ("psycopg", "asyncpg"))
    engine, asynchronous = create_engine(blocking), create_async_engine(url)
    BILLS.create(engine)
    create_table(engine)
    with asyncio.Runner() as runner:
        yield Shop(queue, engine, async_sessionmaker(asynchronous), runner.run)
        runner.run(asynchronous.dispose())
    engine.dispose()


async def bill(order: Order, session: AsyncSession) -> None:
    await session.execute(insert(BILLS).values(number=order.number))


def test_a_consumer_that_dies_before_it_acknowledges_has_its_effect_once(shop: Shop) -> None:
    shop.queue.producer("orders").send(Order(7))
    shop.killed_before_it_acknowledged(bill)
    assert shop.bills() == [7]
    shop.handle(bill)
    assert shop.advance(seconds=LEASE_SECONDS + 10) == 1  # the lease ends, and the message comes again
    assert shop.bills() == [7]
    assert shop.queue.api.lag("orders", "billing").backing_off == 0


def test_a_handler_that_fails_leaves_no_trace_and_the_retry_has_the_effect(shop: Shop) -> None:
    async def fail_once(order: Order, message: Delivery, session: AsyncSession) -> None:
        await bill(order, session)
        if message.attempt == 1:
            raise RuntimeError("not today")

    shop.handle(fail_once)
    shop.queue.producer("orders").send(Order(7))
    shop.advance()
    assert (shop.bills(), shop.remembered()) == ([], 0)
    shop.advance(seconds=5)
    assert (shop.bills(), shop.remembered()) == ([7], 1)


def test_a_handler_that_is_cancelled_leaves_no_trace_and_its_message_comes_again(shop: Shop) -> None:
    async def hang_once(order: Order, message: Delivery, session: AsyncSession) -> None:
        await bill(order, session)
        if not hung:
            hung.append(True)
            began.set()
            await asyncio.Event().wait()

    async def main() -> None:
        consumer = shop.queue.async_consumer("orders", "billing")
        consumer.handler(idempotent=shop.store)(hang_once)
        task = asyncio.create_task(consumer.run())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    hung: list[bool] = []
    began = asyncio.Event()
    shop.queue.producer("orders").send(Order(7))
    shop.run(main())
    assert (shop.bills(), shop.remembered()) == ([], 0)
    assert shop.advance() == 1
    assert (shop.bills(), shop.remembered()) == ([7], 1)


def test_a_message_that_is_sent_twice_under_one_id_has_its_effect_once(shop: Shop) -> None:
    shop.handle(bill)
    for number in (7, 7, 8):
        shop.queue.producer("orders").send(Order(number), message_id=f"order-{number}")
    assert shop.advance() == 3
    assert shop.bills() == [7, 8]


def test_of_two_deliveries_at_one_time_one_has_the_effect(shop: Shop) -> None:
    """The lease has ended while its consumer works: the second waits at the primary key, or is refused and retried."""

    async def main() -> list[object]:
        first, second = (awaited_once(bill, shop.store, "orders", "billing") for _ in range(2))
        return await asyncio.gather(first(deliveries[0]), second(deliveries[1]), return_exceptions=True)

    for _ in range(2):
        shop.queue.producer("orders").send(Order(7), message_id="order-7")
    shop.queue.api.put_group("orders", "billing")
    deliveries = [one_delivery(shop.queue), one_delivery(shop.queue)]
    shop.run(main())
    assert (shop.bills(), shop.remembered()) == ([7], 1)


def test_a_handler_that_gives_a_message_back_itself_rolls_back(shop: Shop) -> None:
    async def later(order: Order, message: Delivery, session: AsyncSession) -> None:
        await bill(order, session)
        if message.attempt == 1:
            message.retry(delay=60)

    shop.handle(later)
    shop.queue.producer("orders").send(Order(7))
    shop.advance()
    assert shop.bills() == []
    shop.advance(minutes=1)
    assert shop.bills() == [7]


def test_a_redriven_dead_letter_is_handled_and_a_rejected_one_left_no_trace(shop: Shop) -> None:
    closed = [True]

    async def reject(order: Order, session: AsyncSession) -> None:
        await bill(order, session)
        if closed[0]:
            raise Reject("the bank is closed")

    shop.handle(reject)
    shop.queue.producer("orders").send(Order(7))
    shop.advance()
    assert shop.bills() == []
    closed[0] = False
    (letter,) = shop.queue.dead("orders", "billing")
    shop.queue.api.redrive("orders", "billing", DeadSelection.named([letter.dead_id]))
    shop.advance()
    assert shop.bills() == [7]


def test_a_blocking_consumer_and_an_asynchronous_one_share_what_is_remembered(shop: Shop) -> None:
    def bill_at_once(order: Order, session: Session) -> None:
        session.execute(insert(BILLS).values(number=order.number))

    shop.queue.producer("orders").send(Order(7))
    shop.killed_before_it_acknowledged(bill)
    store = SqlAlchemyStore(sessionmaker(shop.engine))
    shop.queue.consumer("orders", "billing").handler(idempotent=store)(bill_at_once)
    assert shop.advance(seconds=LEASE_SECONDS + 10) == 1
    assert shop.bills() == [7]


def test_expired_messages_are_removed_in_steps_and_then_handled_again(shop: Shop) -> None:
    async def main() -> list[int]:
        left = []
        for number in range(4):
            async with store.transaction(f"orders/billing/new-{number}") as session:
                assert session is not None
            left.append(shop.remembered() - number - 1)
        clock.ms += 86_400_001
        assert await store.sweep() == 4
        async with store.transaction("orders/billing/new-0") as session:
            assert session is not None
        return left

    clock = MovedClock()
    store = AsyncSqlAlchemyStore(shop.sessions, keep=timedelta(days=1), clock=clock)
    clock.ms += 3_600_000
    with shop.engine.begin() as connection:
        rows = [{"identity": f"orders/billing/{number}", "expires_ms": clock.ms - 1} for number in range(1_200)]
        connection.execute(insert(table(MetaData())), rows)
    assert shop.run(main()) == [700, 200, 0, 0]


def test_a_missing_table_is_named_and_the_message_is_retried(shop: Shop) -> None:
    table(MetaData()).drop(shop.engine)
    shop.handle(bill)
    shop.queue.producer("orders").send(Order(7))
    shop.advance()
    (error,) = shop.queue.errors
    assert isinstance(error, LookupError)
    assert "no table hourwheel_processed: make it by a migration" in str(error)
    create_table(shop.engine)
    shop.advance(seconds=5)
    assert shop.bills() == [7]


def test_a_store_of_the_other_kind_is_refused_when_the_handler_is_set(shop: Shop) -> None:
    blocking = SqlAlchemyStore(sessionmaker(shop.engine))
    with pytest.raises(TypeError, match="SqlAlchemyStore would block the event loop: an AsyncConsumer takes"):
        shop.queue.async_consumer("orders", "billing").handler(idempotent=cast("Any", blocking))(bill)
    with pytest.raises(TypeError, match="AsyncSqlAlchemyStore is to be awaited: give it to an AsyncConsumer"):
        shop.queue.consumer("orders", "billing").handler(idempotent=cast("Any", shop.store))(print)
    with pytest.raises(TypeError, match="these sessions are asynchronous: use AsyncSqlAlchemyStore"):
        SqlAlchemyStore(cast("Any", shop.sessions))
    with pytest.raises(TypeError, match="these sessions are not asynchronous: use SqlAlchemyStore"):
        AsyncSqlAlchemyStore(cast("Any", sessionmaker(shop.engine)))
