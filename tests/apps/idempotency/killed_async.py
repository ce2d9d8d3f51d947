"""Does what ``killed.py`` does with an ``AsyncConsumer``, and takes the arguments of that program."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

from hourwheel.client import AsyncConsumer
from hourwheel.idempotency import AsyncSqlAlchemyStore
from tests.apps.idempotency.killed import BILLS


class KillingStore(AsyncSqlAlchemyStore):
    @asynccontextmanager
    async def transaction(self, identity: str) -> AsyncIterator[AsyncSession | None]:
        async with super().transaction(identity) as session:
            yield session
        os.kill(os.getpid(), signal.SIGKILL)


async def main(url: str, database: str, end: str) -> None:
    engine = create_async_engine(database)
    sessions = async_sessionmaker(engine)
    store = KillingStore(sessions) if end == "killed" else AsyncSqlAlchemyStore(sessions)
    consumer = AsyncConsumer(url, "orders", "billing", lease_seconds=1, wait_seconds=1)

    @consumer.handler(idempotent=store)
    async def bill(order: dict[str, int], session: AsyncSession) -> None:
        await session.execute(insert(BILLS).values(number=order["number"]))
        if order["number"] == 0:  # the last one
            consumer.stop()

    await consumer.run()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
