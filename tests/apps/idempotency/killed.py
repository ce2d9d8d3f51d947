"""Runs a consumer as a process of its own: it bills orders once, and may be killed when its store is done, before the
message is acknowledged. Arguments: the URL of the server, that of the database, and ``killed`` or ``lives``."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, insert
from sqlalchemy.orm import Session, sessionmaker

from hourwheel.client import Consumer
from hourwheel.idempotency import SqlAlchemyStore

BILLS = Table("bills", MetaData(), Column("id", Integer, primary_key=True), Column("number", Integer))


class KillingStore(SqlAlchemyStore):
    @contextmanager
    def transaction(self, identity: str) -> Iterator[Session | None]:
        with super().transaction(identity) as session:
            yield session
        os.kill(os.getpid(), signal.SIGKILL)


def main(url: str, database: str, end: str) -> None:
    sessions = sessionmaker(create_engine(database))
    store = KillingStore(sessions) if end == "killed" else SqlAlchemyStore(sessions)
    consumer = Consumer(url, "orders", "billing", lease_seconds=1, wait_seconds=1)

    @consumer.handler(idempotent=store)
    def bill(order: dict[str, int], session: Session) -> None:
        session.execute(insert(BILLS).values(number=order["number"]))
        if order["number"] == 0:  # the last one
            consumer.stop()

    consumer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
