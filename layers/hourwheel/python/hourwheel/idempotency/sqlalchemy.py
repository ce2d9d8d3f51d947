"""Remembers handled messages in a table of the application's own database, in the transaction of the handler.

table       hourwheel_processed
identity    subject/group/id of the message, primary key
expires_ms  Unix milliseconds from which on the row may be removed, indexed
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from sqlalchemy import BigInteger, Column, Connection, Engine, MetaData, String, Table, delete, insert, inspect, select
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError, SQLAlchemyError
from sqlalchemy.orm import Session

from hourwheel.idempotency.retention import IDENTITY_CHARACTERS, KEEP, SWEEP_ROWS, Expiry
from hourwheel.ports import Clock

_log = logging.getLogger("hourwheel.consumer")

_NAME = "hourwheel_processed"


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
        Column("identity", String(IDENTITY_CHARACTERS), primary_key=True),
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
    """Handles each message once, in one transaction with what the handler writes.

    ``sessions`` makes sessions, such as a ``sessionmaker``. The handler gets the session as its parameter ``session``,
    and neither commits nor rolls back. The transaction is committed when the handler returns, before the message is
    acknowledged. Messages are remembered for ``keep``; each 10 s the store removes up to 500 that expired.

    Raises:
        ValueError: ``keep`` is not more than zero.

    Example:
        >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
        >>> @consumer.handler(idempotent=SqlAlchemyStore(sessionmaker(engine)))
        ... def bill(order: Order, session):
        ...     session.add(Bill(order=order.number))
    """

    def __init__(self, sessions: Callable[[], Session], *, keep: timedelta = KEEP, clock: Clock | None = None) -> None:
        self._sessions = sessions
        self._expiry = Expiry(keep, clock)

    @contextmanager
    def transaction(self, identity: str) -> Iterator[Session | None]:
        """Opens a session with a transaction that remembers the message; enters with None for a message that was
        handled before.

        Raises:
            LookupError: the database has no table ``hourwheel_processed``.

        Example:
            >>> with store.transaction("orders/billing/order-7") as session:
            ...     session is None
            False
        """
        with self._sessions() as session, session.begin():
            yield session if self._remembered(session, identity) else None
        if self._expiry.sweeps():
            self._sweep()

    def _remembered(self, session: Session, identity: str) -> bool:
        """Returns whether the row is new. Of two transactions that insert it, one waits until the other has ended."""
        row = {"identity": identity, "expires_ms": self._expiry.expires_ms()}
        try:
            session.execute(insert(_table).values(row))
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

    def sweep(self) -> int:
        """Removes up to 500 messages that expired, and returns their number.

        Raises:
            SQLAlchemyError: the database refuses it.

        Example:
            >>> store.sweep()
            0
        """
        with self._sessions() as session, session.begin():
            expired = select(_table.c.identity).where(_table.c.expires_ms < self._expiry.now_ms()).limit(SWEEP_ROWS)
            identities = list(session.scalars(expired))
            if identities:
                session.execute(delete(_table).where(_table.c.identity.in_(identities)))
        self._expiry.swept(len(identities))
        return len(identities)

    def _sweep(self) -> None:
        try:
            self.sweep()
        except SQLAlchemyError as error:  # the message is handled, and a later one sweeps
            _log.warning("expired messages were not removed from %s: %s", _NAME, error)
