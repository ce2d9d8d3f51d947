"""``outbox.send`` refuses what the server would refuse, while the transaction can still be rolled back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hourwheel import outbox
from hourwheel.apps.outbox.databases import database_of
from hourwheel.apps.outbox.dialects import MYSQL, POSTGRESQL, dialect_of
from hourwheel.apps.outbox.encoding import decode
from hourwheel.apps.outbox.errors import OutboxError, OutboxMissing
from hourwheel.client import Message
from hourwheel.times import rfc3339
from tests.unit.apps.outbox.world import Application


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Application]:
    with closing(Application(tmp_path)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"body": "x" * (1 << 20) + "x"}, "at most 1048576 bytes"),
        ({"body": b"x" * (1 << 20), "key": "k"}, "at most 1048576 bytes"),
        ({"subject": "no/name"}, "subject must match"),
        ({"subject": ".."}, "subject must match"),
        ({"key": ""}, "key"),
        ({"key": "k" * 257}, "key"),
        ({"tags": ["a", "a"]}, "tags of a message must differ"),
        ({"tags": ["a"] * 11}, "tags|no two"),
        ({"headers": {"h": "x" * 4_097}}, "headers"),
        ({"message_id": "i" * 101}, "id"),
        ({"queue": 64}, "queue"),
        ({"delay": "733d"}, "732 days"),
        ({"delay": "soon"}, "seconds"),
        ({"deliver_at": "2090-01-01T00:00:00Z"}, "732 days"),
        ({"delay": 1, "deliver_at": "2027-01-01T00:00:00Z"}, "not both"),
    ],
)
def test_what_the_server_would_refuse_is_refused_before_the_commit(
    application: Application, fields: dict[str, Any], reason: str
) -> None:
    how = {"subject": "orders", "body": "paid", **fields}
    with pytest.raises(ValueError, match=reason):
        outbox.send(application.connection, how.pop("subject"), how.pop("body"), clock=application.clock, **how)
    application.connection.commit()
    assert application.rows(0) == []


def test_the_row_holds_the_message_as_the_producer_sends_it(application: Application) -> None:
    fields: dict[str, Any] = {"key": "k", "tags": ["eu"], "headers": {"h": "1"}, "queue": 3}
    application.send("text", message_id="order-7", **fields)
    with application.connection:
        outbox.send(application.connection, "orders", b"\x00\xff")
    rows = application.connection.execute("SELECT message FROM hourwheel_outbox ORDER BY id")
    messages = [decode(message) for (message,) in rows]
    assert messages == [Message("text", id="order-7", **fields), Message(b"\x00\xff")]


def test_a_delay_begins_when_the_message_is_sent_not_when_it_is_relayed(application: Application) -> None:
    application.send("later", delay=timedelta(days=1))
    application.clock.pass_time(3_600)
    (message,) = application.connection.execute("SELECT message FROM hourwheel_outbox").fetchone()
    later = decode(message)
    assert later is not None
    application.drain()
    assert application.bodies() == []
    assert later.deliver_at == rfc3339(application.clock.now_ms() - 3_600_000 + 86_400_000)


def test_a_message_that_may_come_a_minute_late_is_relayed_as_such(application: Application) -> None:
    application.send("remind", delay=timedelta(days=1), precision="minute")
    (stored,) = application.connection.execute("SELECT message FROM hourwheel_outbox").fetchone()
    message = decode(stored)
    assert message is not None
    assert message.precision == "minute"


def test_a_database_without_an_outbox_says_what_to_run() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(OutboxMissing, match=r"no outbox: run `hourwheel outbox create"),
    ):
        outbox.send(connection, "orders", "paid")


def test_an_outbox_of_another_version_says_what_to_run() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE hourwheel_outbox (id INTEGER PRIMARY KEY, subject TEXT)")
        with pytest.raises(OutboxMissing, match="of another version"):
            outbox.send(connection, "orders", "paid")
        with pytest.raises(OutboxMissing, match="of another version"):
            outbox.status(connection)


def test_a_relay_says_at_its_start_what_its_database_lacks(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as shop:
        shop.execute("CREATE TABLE shop (id INTEGER)")
    with pytest.raises(OutboxMissing, match="no outbox: run"):
        outbox.Relay(f"sqlite:///{tmp_path}/empty.db").start()
    with pytest.raises(outbox.OutboxUnreachable, match=r"there is no file /.*/nothing\.db: name the database"):
        outbox.Relay(f"sqlite:///{tmp_path}/nothing.db").start()


@pytest.mark.parametrize("database", ["oracle://x", "sqlite:", "shop.db", 7])
def test_a_database_that_nobody_knows_is_refused(database: Any) -> None:
    with pytest.raises(OutboxError, match="sqlite:///FILE, postgresql://"):
        outbox.Relay(database)


@pytest.mark.parametrize(
    "database",
    [
        "oracle://scott:tiger@db/shop",
        "oracle://scott:eye/of/the/tiger@db/shop",
        "oracle://scott:tiger#1@db/shop",
        "oracle://db/shop?user=scott@db&password=tiger",
        "host=db user=scott password=tiger",
    ],
)
def test_a_password_is_not_in_the_error(database: str) -> None:
    with pytest.raises(OutboxError) as refused:
        outbox.Relay(database)
    assert "tiger" not in str(refused.value)


def test_a_url_names_the_file_that_its_escapes_stand_for(tmp_path: Path) -> None:
    path = tmp_path / "100% shop#1.db"
    with sqlite3.connect(path) as connection:
        outbox.create_table(connection)
    connection.close()
    database_of(f"sqlite:///{tmp_path}/100%25%20shop%231.db").check()
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("session", [object(), "sqlite:///shop.db", None])
def test_an_object_that_is_no_session_is_refused(session: Any) -> None:
    with pytest.raises(TypeError, match="the session must be"):
        outbox.send(session, "orders", "paid")


async def _send_async(session: Any) -> None:
    await outbox.send_async(session, "orders", "paid")


def test_send_async_refuses_other_sessions() -> None:
    with closing(sqlite3.connect(":memory:")) as session, pytest.raises(TypeError, match="use send for other sessions"):
        _send_async(session).send(None)


def test_the_statements_of_mysql_lock_rows_that_nobody_holds_and_make_all_columns() -> None:
    """No server of MySQL is at hand: its statements are those of PostgreSQL but for these."""
    assert dialect_of("pymysql") is MYSQL
    assert MYSQL.lock == POSTGRESQL.lock == " FOR UPDATE OF s SKIP LOCKED"
    rows, shards = MYSQL.tables
    assert "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY" in rows
    assert "INDEX hourwheel_outbox_waiting (state, shard, id)" in rows
    assert "message LONGBLOB NOT NULL" in rows
    assert "batch LONGBLOB NULL" in shards
    assert MYSQL.insert_shard.startswith("INSERT IGNORE")
    assert "RETURNING" not in MYSQL.insert
