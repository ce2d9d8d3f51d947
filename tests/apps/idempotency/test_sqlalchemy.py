"""Messages are remembered in the transaction of the handler: effects happen exactly once, whatever crashes."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, func, insert, select, text
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.schema import CreateTable

from hourwheel.client import DeadSelection, Delivery, Reject
from hourwheel.idempotency import SqlAlchemyStore
from hourwheel.idempotency.sqlalchemy import create_table, table
from hourwheel.testing import Queue
from tests.apps.idempotency.conftest import LEASE_SECONDS, killed_before_it_acknowledged, set_handler

BILLS = Table("bills", MetaData(), Column("id", Integer, primary_key=True), Column("number", Integer))


class Order(msgspec.Struct):
    number: int


class MovedClock:
    ms = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None: ...


@pytest.fixture(params=["postgresql", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    if request.param == "sqlite":
        made = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    else:
        made = create_engine(request.getfixturevalue("postgres").replace("postgresql://", "postgresql+psycopg://", 1))
    BILLS.create(made)
    create_table(made)
    create_table(made)  # a second time changes nothing
    yield made
    made.dispose()


@pytest.fixture
def store(engine: Engine) -> SqlAlchemyStore:
    return SqlAlchemyStore(sessionmaker(engine))


def bill(order: Order, session: Session) -> None:
    session.execute(insert(BILLS).values(number=order.number))


def bills(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(BILLS.c.number).order_by(BILLS.c.id)))


def remembered(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(table(MetaData()))) or 0)


def test_a_consumer_that_dies_before_it_acknowledges_has_its_effect_once(
    engine: Engine, store: SqlAlchemyStore, queue: Queue
) -> None:
    queue.producer("orders").send(Order(7))
    killed_before_it_acknowledged(queue, store, bill)
    assert bills(engine) == [7]
    set_handler(queue, store, bill)
    assert queue.advance(seconds=LEASE_SECONDS + 10) == 1  # the lease ends, and the message comes again
    assert bills(engine) == [7]
    assert queue.api.lag("orders", "billing").backing_off == 0


def test_a_handler_that_fails_leaves_no_trace_and_the_retry_has_the_effect(
    engine: Engine, store: SqlAlchemyStore, queue: Queue
) -> None:
    def fail_once(order: Order, message: Delivery, session: Session) -> None:
        bill(order, session)
        if message.attempt == 1:
            raise RuntimeError("not today")

    set_handler(queue, store, fail_once)
    queue.producer("orders").send(Order(7))
    queue.run()
    assert (bills(engine), remembered(engine)) == ([], 0)
    queue.advance(seconds=5)
    assert (bills(engine), remembered(engine)) == ([7], 1)


def test_a_message_that_is_sent_twice_under_one_id_has_its_effect_once(
    engine: Engine, store: SqlAlchemyStore, queue: Queue
) -> None:
    set_handler(queue, store, bill)
    for number in (7, 7, 8):
        queue.producer("orders").send(Order(number), message_id=f"order-{number}")
    assert queue.run() == 3
    assert bills(engine) == [7, 8]


def test_groups_and_subjects_remember_messages_for_themselves(
    engine: Engine, store: SqlAlchemyStore, queue: Queue
) -> None:
    for subject, group in (("orders", "billing"), ("orders", "audit"), ("returns", "billing")):
        queue.consumer(subject, group).handler(idempotent=store)(bill)
    for subject in ("orders", "returns"):
        queue.producer(subject).send(Order(7), message_id="order-7")
    queue.run()
    assert bills(engine) == [7, 7, 7]


def test_a_handler_that_gives_a_message_back_itself_rolls_back(
    engine: Engine, store: SqlAlchemyStore, queue: Queue
) -> None:
    def later(order: Order, message: Delivery, session: Session) -> None:
        bill(order, session)
        if message.attempt == 1:
            message.retry(delay=60)

    set_handler(queue, store, later)
    queue.producer("orders").send(Order(7))
    queue.run()
    assert bills(engine) == []
    queue.advance(minutes=1)
    assert bills(engine) == [7]


def test_a_redriven_dead_letter_is_handled_and_a_rejected_one_left_no_trace(
    engine: Engine, store: SqlAlchemyStore, queue: Queue
) -> None:
    closed = [True]

    def reject(order: Order, session: Session) -> None:
        bill(order, session)
        if closed[0]:
            raise Reject("the bank is closed")

    set_handler(queue, store, reject)
    queue.producer("orders").send(Order(7))
    queue.run()
    assert bills(engine) == []
    closed[0] = False
    (letter,) = queue.dead("orders", "billing")
    queue.api.redrive("orders", "billing", DeadSelection.named([letter.dead_id]))
    queue.run()
    assert bills(engine) == [7]


def test_expired_messages_are_removed_in_steps_and_then_handled_again(engine: Engine) -> None:
    clock = MovedClock()
    store = SqlAlchemyStore(sessionmaker(engine), keep=timedelta(days=1), clock=clock)
    clock.ms += 3_600_000
    with engine.begin() as connection:
        rows = [{"identity": f"orders/billing/{number}", "expires_ms": clock.ms - 1} for number in range(1_200)]
        connection.execute(insert(table(MetaData())), rows)
    left = []
    for number in range(4):
        with store.transaction(f"orders/billing/new-{number}") as session:
            assert session is not None
        left.append(remembered(engine) - number - 1)
    assert left == [700, 200, 0, 0]
    clock.ms += 86_400_001
    assert store.sweep() == 4
    with store.transaction("orders/billing/new-0") as session:
        assert session is not None


def test_a_missing_table_is_named_and_the_message_is_retried(engine: Engine, queue: Queue) -> None:
    table(MetaData()).drop(engine)
    set_handler(queue, SqlAlchemyStore(sessionmaker(engine)), bill)
    queue.producer("orders").send(Order(7))
    queue.run()
    (error,) = queue.errors
    assert isinstance(error, LookupError)
    assert "no table hourwheel_processed: make it by a migration" in str(error)
    create_table(engine)
    queue.advance(seconds=5)
    assert bills(engine) == [7]


def test_ids_that_differ_in_case_are_two_messages_on_mysql_too() -> None:
    made = str(CreateTable(table(MetaData())).compile(dialect=mysql.dialect()))
    assert "identity VARCHAR(302) COLLATE utf8mb4_bin NOT NULL" in made


@pytest.mark.parametrize("last", ["order-7 ", "order-7  "])
def test_ids_that_differ_in_blanks_at_their_ends_are_two_messages_on_mysql_too(last: str) -> None:
    """RTRIM of SQLite compares as MySQL does."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        columns = "identity VARCHAR(302) COLLATE RTRIM PRIMARY KEY, expires_ms BIGINT NOT NULL"
        connection.execute(text(f"CREATE TABLE hourwheel_processed ({columns})"))
    store = SqlAlchemyStore(sessionmaker(engine))
    new = []
    for name in ("order-7", last, "order-7   ", last):
        with store.transaction(f"orders/billing/{name}") as session:
            new.append(session is not None)
    engine.dispose()
    assert new == [True, True, True, False]
