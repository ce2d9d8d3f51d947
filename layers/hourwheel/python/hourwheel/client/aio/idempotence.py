"""Awaits a handler once for each message: an asynchronous store remembers the messages that were handled."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias, cast

from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.consuming.idempotence import (
    GivenBack,
    NamedHandler,
    beside,
    handled_before,
    is_awaited,
    prepared_handler,
)
from hourwheel.client.transport.steps import awaited


class AsyncTransactionStore(Protocol):
    """Remembers messages in the transaction in which their handlers work: effects happen exactly once.

    Example:
        >>> class Store:
        ...     @asynccontextmanager
        ...     async def transaction(self, identity):
        ...         async with sessions.begin() as session:
        ...             yield session if await remember(session, identity) else None
    """

    def transaction(self, identity: str) -> AbstractAsyncContextManager[Any]:
        """Opens a transaction that remembers the message. Enters with the session of the transaction, or with None
        where the message was handled before. Commits at the end of the block, rolls back where it raises.

        Raises:
            Exception: the error of the block, or of the database; the message is retried.

        Example:
            >>> async with store.transaction("orders/billing/order-7") as session:
            ...     if session is not None:
            ...         session.add(Bill(order=7))
        """
        ...


class AsyncIdempotencyStore(Protocol):
    """Remembers messages beside the work of their handlers.

    Example:
        >>> class Store:
        ...     async def begin(self, identity):
        ...         return await cache.add(identity, "under way", seconds=60)
        ...     async def end(self, identity, *, done):
        ...         await cache.set(identity, "done") if done else await cache.delete(identity)
    """

    async def begin(self, identity: str) -> bool:
        """Marks a message as being handled, for a limited time, and returns True. Returns False where it was handled
        before.

        Raises:
            InProgress: the message is marked already; it is retried when the mark ends.

        Example:
            >>> await store.begin("orders/billing/order-7")
            True
        """
        ...

    async def end(self, identity: str, *, done: bool) -> None:
        """Remembers that a message was handled, or with ``done=False`` forgets its mark: it is handled again.

        Raises:
            Exception: the store does not answer; the mark ends by itself.

        Example:
            >>> await store.end("orders/billing/order-7", done=True)
        """
        ...


AnyAsyncStore: TypeAlias = AsyncIdempotencyStore | AsyncTransactionStore


def awaited_once(
    function: Callable[..., Awaitable[object]], store: AnyAsyncStore, subject: str, group: str
) -> Callable[[Delivery], Awaitable[object]]:
    """Returns a function that awaits the handler unless the store remembers its message. Raises ``TypeError`` as
    ``prepared_handler`` does, and for a store that would block the event loop."""
    handler = prepared_handler(function, store, subject, group)
    if not is_awaited(store):
        raise TypeError(
            f"{type(store).__name__} would block the event loop: an AsyncConsumer takes AsyncSqlAlchemyStore, "
            "AsyncRedisStore, or a store whose methods are coroutines"
        )
    if hasattr(store, "transaction"):
        return _in_transaction(handler, cast("AsyncTransactionStore", store))
    return lambda message: awaited(beside(handler, store, message))


def _in_transaction(handler: NamedHandler, store: AsyncTransactionStore) -> Callable[[Delivery], Awaitable[object]]:
    async def handle(message: Delivery) -> None:
        positional = handler.arguments.of(message)  # a body that does not fit costs no transaction
        try:
            async with store.transaction(handler.identity(message)) as session:
                if session is None:
                    handled_before(message)
                    return
                await handler.function(*positional, **handler.of(session))
                if message.given_back:
                    raise GivenBack
        except GivenBack:
            pass

    return handle
