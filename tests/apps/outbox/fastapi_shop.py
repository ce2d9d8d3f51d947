"""Defines the example service of FastAPI: it stores orders with SQLAlchemy, and a relay in the process sends messages
about them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from hourwheel import outbox


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


outbox.table(Base.metadata)


def service(database: str, driver: str, hourwheel: str) -> FastAPI:
    engine = create_async_engine(database.replace("://", f"+{driver}://", 1))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        with outbox.Relay(database, url=hourwheel):
            yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{item}")
    async def buy(item: str, paid: bool = True) -> dict[str, int]:
        async with AsyncSession(engine) as session, session.begin():
            order = Order(item=item)
            session.add(order)
            await session.flush()
            await outbox.send_async(session, "orders", {"order": order.id, "item": item}, key=f"order-{order.id}")
            if not paid:
                raise HTTPException(402, "the card was declined")
            return {"order": order.id}

    return app
