"""Remembers handled messages in a table of the application's own database, in the transaction of the handler.

table       hourwheel_processed
identity    subject/group/id of the message, or its SHA-256 if it ends with a blank, primary key
expires_ms  Unix milliseconds from which on the row may be removed, indexed
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, delete, insert, inspect, select
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from hourwheel.apps.idempotency.retention import IDENTITY_CHARACTERS, KEEP, SWEEP_ROWS, Expiry, stored_identity
from hourwheel.ports.machine import Clock
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")

_NAME = "hourwheel_processed"

# MySQL takes "order-A" and "order-a" for one by default: the second message would count as handled.
_identity = String(IDENTITY_CHARACTERS).with_variant(
    String(IDENTITY_CHARACTERS, collation="utf8mb4_bin"), "mysql", "mariadb"
)


def table(metadata: MetaData) -> Table:
    """Adds the table to a ``MetaData``, and returns it: Alembic's ``--autogenerate`` then writes the migration, and
    ``metadata.create_all`` makes the table.

    Raises:
        InvalidRequestError: the metadata has a table ``hourwheel_processed`` already.

    Example:
        >>> table(MetaData()).name
        'hourwheel_processed'
    """
    return Table(
        _NAME,
        metadata,
        Column("identity", _identity, primary_key=True),
        Column("expires_ms", BigInteger, nullable=False, index=True),
    )


_table = table(MetaData())


def create_table(bind: Engine | Connection) -> None:
    """Makes the table where it is missing.

    Raises:
        SQLAlchemyError: the database refuses it.

    Example:
        >>> create_table(engine)
    """
    _table.create(bind, checkfirst=True)


class SqlAlchemyStore:
    """Handles each message once, in one transaction with the handler's changes.

    ``sessions`` makes sessions, such as a ``sessionmaker``. The handler gets the session as its parameter ``session``,
    and neither commits nor rolls back. The transaction is committed when the handler returns, before the message is
    acknowledged. Messages are remembered for ``keep``; every 10 s the store removes up to 500 expired ones.

    Raises:
        ValueError: ``keep`` is not more than zero.
        TypeError: ``sessions`` is an ``async_sessionmaker``.

    Example:
        >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
        >>> @consumer.handler(idempotent=SqlAlchemyStore(sessionmaker(engine)))
        ... def bill(order: Order, session):
        ...     session.add(Bill(order=order.number))
    """

    def __init__(self, sessions: Callable[[], Session], *, keep: timedelta = KEEP, clock: Clock | None = None) -> None:
        if isinstance(sessions, async_sessionmaker):
            raise TypeError("these sessions are asynchronous: use AsyncSqlAlchemyStore, and an AsyncConsumer")
        self._sessions = sessions
        self._expiry = Expiry(keep, clock)

    @contextmanager
    def transaction(self, identity: str) -> Iterator[Session | None]:
        """Opens a session with a transaction that remembers the message, and yields it. Yields None for a message that
        was handled before.

        Raises:
            LookupError: the database has no table ``hourwheel_processed``.

        Example:
            >>> with store.transaction("orders/billing/order-7") as session:
            ...     session is None
            False
        """
        with self._sessions() as session, session.begin():
            yield session if _remembered(session, identity, self._expiry.expires_ms()) else None
        if self._expiry.sweeps():
            self._sweep()

    def sweep(self) -> int:
        """Removes up to 500 expired messages, and returns their number.

        Raises:
            SQLAlchemyError: the database refuses it.

        Example:
            >>> store.sweep()
            0
        """
        with self._sessions() as session, session.begin():
            removed = _remove_expired(session, self._expiry.now_ms())
        self._expiry.swept(removed)
        return removed

    def _sweep(self) -> None:
        try:
            self.sweep()
        except SQLAlchemyError as error:
            _not_swept(error)


class AsyncSqlAlchemyStore:
    """Handles each message of an ``AsyncConsumer`` once, in one transaction with the handler's changes.

    ``sessions`` makes sessions, such as an ``async_sessionmaker``. The handler gets the ``AsyncSession`` as its
    parameter ``session``. The store works as ``SqlAlchemyStore`` does, and may share its table.

    Raises:
        ValueError: ``keep`` is not more than zero.
        TypeError: ``sessions`` is a ``sessionmaker``.

    Example:
        >>> consumer = AsyncConsumer("http://127.0.0.1:7420", "orders", "billing")
        >>> @consumer.handler(idempotent=AsyncSqlAlchemyStore(async_sessionmaker(engine)))
        ... async def bill(order: Order, session):
        ...     session.add(Bill(order=order.number))
    """

    def __init__(
        self, sessions: Callable[[], AsyncSession], *, keep: timedelta = KEEP, clock: Clock | None = None
    ) -> None:
        if isinstance(sessions, sessionmaker):
            raise TypeError("these sessions are not asynchronous: use SqlAlchemyStore, or an async_sessionmaker")
        self._sessions = sessions
        self._expiry = Expiry(keep, clock)

    @asynccontextmanager
    async def transaction(self, identity: str) -> AsyncIterator[AsyncSession | None]:
        """Opens a session with a transaction that remembers the message, and yields it. Yields None for a message that
        was handled before.

        Raises:
            LookupError: the database has no table ``hourwheel_processed``.

        Example:
            >>> async def main():
            ...     async with store.transaction("orders/billing/order-7") as session:
            ...         return session is None
            >>> asyncio.run(main())
            False
        """
        async with self._sessions() as session, session.begin():
            is_new = await session.run_sync(_remembered, identity, self._expiry.expires_ms())
            yield session if is_new else None
        if self._expiry.sweeps():
            await self._sweep()

    async def sweep(self) -> int:
        """Removes up to 500 expired messages, and returns their number.

        Raises:
            SQLAlchemyError: the database refuses it.

        Example:
            >>> asyncio.run(store.sweep())
            0
        """
        async with self._sessions() as session, session.begin():
            removed = await session.run_sync(_remove_expired, self._expiry.now_ms())
        self._expiry.swept(removed)
        return removed

    async def _sweep(self) -> None:
        try:
            await self.sweep()
        except SQLAlchemyError as error:
            _not_swept(error)


def _remembered(session: Session, identity: str, expires_ms: int) -> bool:
    """Inserts the row of the message, and returns False if another transaction has inserted it before. Of two that do
    so at once, one waits until the other has ended."""
    try:
        session.execute(insert(_table).values(identity=stored_identity(identity), expires_ms=expires_ms))
    except IntegrityError:  # the primary key is the only constraint
        session.rollback()
        return False
    except (OperationalError, ProgrammingError) as error:
        bind = session.get_bind()
        session.rollback()
        if not inspect(bind).has_table(_NAME):
            advice = "make it by a migration (hourwheel.idempotency.sqlalchemy.table) or by create_table(engine)"
            raise LookupError(f"the database has no table {_NAME}: {advice}") from error
        raise
    return True


def _remove_expired(session: Session, now_ms: int) -> int:
    # PostgreSQL has no DELETE with a LIMIT.
    expired = select(_table.c.identity).where(_table.c.expires_ms < now_ms).limit(SWEEP_ROWS)
    identities = list(session.scalars(expired))
    if identities:
        session.execute(delete(_table).where(_table.c.identity.in_(identities)))
    return len(identities)


def _not_swept(error: SQLAlchemyError) -> None:
    """Logs the error of a sweep: the message is handled, and a later one sweeps."""
    _log.warning("expired messages were not removed from %s: %s", _NAME, shown(str(error)))
