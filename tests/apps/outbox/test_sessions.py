"""A message is sent if the transaction of the caller is committed, whatever the caller's database library is."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from hourwheel import outbox
from hourwheel.apps.outbox.databases import database_of
from hourwheel.apps.outbox.wakeups import Wakeup
from tests.integration.process import Server, bodies, pull


class RolledBack(Exception):
    pass


def engine_url(database: str, driver: str | None = None) -> str:
    chosen = {None: "psycopg", "sqlite": "pysqlite"}
    if database.startswith("sqlite"):
        return database if driver is None else database.replace("sqlite", "sqlite+aiosqlite", 1)
    return database.replace("postgresql", f"postgresql+{driver or chosen[None]}", 1)


@contextmanager
def an_engine(database: str) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(engine_url(database))
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def orm_session(database: str) -> Iterator[Any]:
    with an_engine(database) as engine, Session(engine) as session, session.begin():
        yield session


@contextmanager
def scoped(database: str) -> Iterator[Any]:
    with an_engine(database) as engine:
        registry = scoped_session(sessionmaker(engine))
        try:
            with registry.begin():
                yield registry
        finally:
            registry.remove()


@contextmanager
def core_connection(database: str) -> Iterator[Any]:
    with an_engine(database) as engine, engine.begin() as connection:
        yield connection


@contextmanager
def plain_connection(database: str) -> Iterator[Any]:
    if database.startswith("sqlite"):
        connection: Any = sqlite3.connect(database.removeprefix("sqlite:///"))
    else:
        connection = psycopg.connect(database)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


SESSIONS = [orm_session, scoped, core_connection, plain_connection]


def sent(database: str, server: Server) -> list[str]:
    relay = outbox.Relay(database, url=f"http://127.0.0.1:{server.port}")
    relay.run_once()
    relay.stop()
    return bodies(pull(server))


@pytest.mark.parametrize("session_of", SESSIONS)
def test_what_is_committed_is_sent_and_what_is_rolled_back_is_not(
    database: str, server: Server, session_of: Callable[[str], Any]
) -> None:
    with session_of(database) as session:
        outbox.send(session, "orders", "paid", key="customer-42", tags=["eu"], headers={"trace": "1"})
    with suppress(RolledBack), session_of(database) as session:
        outbox.send(session, "orders", "never", key="customer-42")
        raise RolledBack
    with session_of(database) as session:
        outbox.send(session, "orders", b"\x00\xff", key="customer-42")
    relay = outbox.Relay(database, url=f"http://127.0.0.1:{server.port}")
    assert relay.run_once() == 2
    relay.stop()
    first, second = (message for each in pull(server) for message in each["messages"])
    assert (first["body"], first["key"], first["tags"], first["headers"]) == (
        "paid",
        "customer-42",
        ["eu"],
        {"trace": "1"},
    )
    assert second["body_base64"] == "AP8="


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_asynchronous_session_sends_in_its_transaction(database: str, server: Server, driver: str) -> None:
    async def transactions() -> None:
        engine = create_async_engine(engine_url(database, driver))
        async with AsyncSession(engine) as session, session.begin():
            await outbox.send_async(session, "orders", "paid", key="customer-42")
            with pytest.raises(TypeError, match="send_async"):
                outbox.send(session, "orders", "paid")
        with suppress(RolledBack):
            async with AsyncSession(engine) as session, session.begin():
                await outbox.send_async(session, "orders", "never")
                raise RolledBack
        async with engine.begin() as connection:
            await outbox.send_async(connection, "orders", "again", key="customer-42")
        await engine.dispose()

    asyncio.run(transactions())
    assert sent(database, server) == ["paid", "again"]


def test_a_missing_table_is_told_by_each_library(tmp_path: Any, postgres: str) -> None:
    for database in (f"sqlite:///{tmp_path}/empty.db", postgres):
        for session_of in SESSIONS:
            with pytest.raises(outbox.OutboxMissing, match="hourwheel outbox create"), session_of(database) as session:
                outbox.send(session, "orders", "paid")
    with psycopg.connect(postgres) as connection:
        connection.execute("CREATE TABLE hourwheel_outbox (id BIGINT)")
    with pytest.raises(outbox.OutboxMissing, match="another version"), orm_session(postgres) as session:
        outbox.send(session, "orders", "paid")


@pytest.mark.parametrize("session_of", [orm_session, scoped, core_connection])
def test_a_commit_wakes_the_relays_of_the_process(database: str, session_of: Callable[[str], Any]) -> None:
    wakeup = Wakeup()
    with session_of(database) as session:
        outbox.send(session, "orders", "paid")
        before = wakeup.count
    assert wakeup.count > before


def test_postgresql_announces_rows_when_their_transaction_commits(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        outbox.create_table(connection)
    listener = database_of(postgres).open()
    assert listener.listen()
    with psycopg.connect(postgres) as connection:
        outbox.send(connection, "orders", "paid")
        assert not listener.announced(0)
    assert listener.announced(60)
    listener.close()


def test_the_tables_of_the_metadata_are_those_of_create_table(database: str) -> None:
    def columns(engine: sqlalchemy.Engine) -> Any:
        inspector = sqlalchemy.inspect(engine)
        return {
            name: [(each["name"], str(each["type"]), each["nullable"]) for each in inspector.get_columns(name)]
            + [(each["name"], each["column_names"]) for each in inspector.get_indexes(name)]
            for name in ("hourwheel_outbox", "hourwheel_outbox_shard")
        }

    with an_engine(database) as engine:
        created = columns(engine)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("DROP TABLE hourwheel_outbox"))
            connection.execute(sqlalchemy.text("DROP TABLE hourwheel_outbox_shard"))
        metadata = sqlalchemy.MetaData()
        assert outbox.table(metadata).name == "hourwheel_outbox"
        metadata.create_all(engine)
        assert columns(engine) == created
        with engine.begin() as connection:
            outbox.send(connection, "orders", "paid")
