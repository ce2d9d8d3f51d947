"""Runs statements in the transaction of the caller: in a session of SQLAlchemy, of Django or of the DB-API."""

import sys
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, NamedTuple

from hourwheel.apps.outbox.dialects import Dialect, dialect_of, driver_of, native
from hourwheel.apps.outbox.errors import missing
from hourwheel.apps.outbox.wakeups import wake

_KINDS = (
    "a Session or Connection of SQLAlchemy, a connection of Django (django.db.connection), or one of sqlite3, psycopg,"
    " psycopg2, pymysql or MySQLdb"
)
_WAKES = "hourwheel_outbox_wakes"  # marks in ``Session.info`` that the session wakes relays at its commits


class BoundSession(NamedTuple):
    """Runs statements in the session of a caller. ``after_commit`` has the relays of this process woken at the commit;
    at once where the session does not tell of its commits."""

    dialect: Dialect
    run: Callable[[str, Sequence[Any]], list[Any]]
    after_commit: Callable[[], None]

    def execute(self, sql: str, *parameters: Any) -> list[Any]:
        """Runs a statement and returns its rows. Raises ``OutboxMissing`` where the tables are missing or are those of
        another version, and the database's own errors."""
        try:
            return self.run(sql, parameters)
        except Exception as error:
            advice = missing(error)
            if advice is None:
                raise
            raise advice from error


def bound(session: Any) -> BoundSession:
    """Returns a ``BoundSession`` for a session of any kind. Raises ``TypeError`` for an object that is no session and
    for an asynchronous one, and ``OutboxError`` for a database that the outbox does not know."""
    # A program that has a session of SQLAlchemy has imported it; others need not have it installed.
    if "sqlalchemy" in sys.modules:
        bound_session = _of_sqlalchemy(session)
        if bound_session is not None:
            return bound_session
    # A connection of Django, recognised without importing Django.
    if hasattr(session, "vendor") and hasattr(session, "on_commit"):
        return BoundSession(
            dialect_of(session.vendor),
            lambda sql, parameters: _on_cursor(session.cursor(), sql.replace("?", "%s"), parameters),
            lambda: session.on_commit(wake),
        )
    driver = driver_of(session)
    if driver is None or not hasattr(session, "cursor"):
        raise TypeError(f"the session must be {_KINDS}, got {type(session).__module__}.{type(session).__qualname__}")
    # An asynchronous cursor returns coroutines: nobody would await them, and the message would be lost silently.
    if iscoroutinefunction(getattr(session, "commit", None)):
        raise TypeError(
            f"this connection of {driver} is asynchronous: use `await outbox.send_async(session, …)` with an"
            " AsyncSession of SQLAlchemy"
        )
    return BoundSession(
        dialect_of(driver),
        lambda sql, parameters: _on_cursor(session.cursor(), native(sql, driver), parameters),
        wake,
    )


def _on_cursor(cursor: Any, sql: str, parameters: Sequence[Any]) -> list[Any]:
    try:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        cursor.close()


def _of_sqlalchemy(session: Any) -> BoundSession | None:
    from sqlalchemy import event
    from sqlalchemy.engine import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(session, AsyncSession | AsyncConnection | async_scoped_session):
        raise TypeError("this session is asynchronous: use `await outbox.send_async(session, …)`")
    if isinstance(session, scoped_session):
        session = session()
    if isinstance(session, Connection):

        def at_commit() -> None:
            if not event.contains(session, "commit", _wake_at_commit):
                event.listen(session, "commit", _wake_at_commit)

        return _on_connection(session, at_commit)
    if not isinstance(session, Session):
        return None

    def after_commit() -> None:
        # One listener for each session, however many messages it sends and however often it commits.
        if _WAKES not in session.info:
            session.info[_WAKES] = True
            event.listen(session, "after_commit", lambda _: wake())

    return _on_connection(session.connection(), after_commit)


def _wake_at_commit(_: Any) -> None:
    """Wakes the relays just before a connection commits. A relay that is woken too early looks again 10 ms later."""
    wake()


def _on_connection(connection: Any, after_commit: Callable[[], None]) -> BoundSession:
    from sqlalchemy import text

    def run(sql: str, parameters: Sequence[Any]) -> list[Any]:
        first, *rest = sql.split("?")
        named = first + "".join(f":p{i}{part}" for i, part in enumerate(rest))
        result = connection.execute(text(named), {f"p{i}": value for i, value in enumerate(parameters)})
        return [tuple(row) for row in result] if result.returns_rows else []

    return BoundSession(dialect_of(connection.dialect.name), run, after_commit)
