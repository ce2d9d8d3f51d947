"""Provides stores by which a consumer handles each message once: ``@consumer.handler(idempotent=store)``.

``SqlAlchemyStore`` remembers a message in the transaction of its handler, so that effects happen exactly once;
``hourwheel.apps.django.idempotency.DjangoStore`` does so for Django's ORM. ``RedisStore``, ``DynamoDbStore`` and
``PowertoolsStore`` remember a message outside of that transaction. ``IdempotencyStore`` and ``TransactionStore``
declare the methods of a store of one's own. An ``AsyncConsumer`` takes ``AsyncSqlAlchemyStore``, ``AsyncRedisStore``,
and stores with the methods of ``AsyncIdempotencyStore`` or ``AsyncTransactionStore``.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hourwheel.apps.idempotency.powertools import DynamoDbStore, PowertoolsStore
    from hourwheel.apps.idempotency.redis import AsyncRedisStore, RedisStore
    from hourwheel.apps.idempotency.sqlalchemy import AsyncSqlAlchemyStore, SqlAlchemyStore
    from hourwheel.client.aio.idempotence import AsyncIdempotencyStore, AsyncTransactionStore
    from hourwheel.client.consuming.idempotence import IdempotencyStore, InProgress, TransactionStore

__all__ = [
    "AsyncIdempotencyStore",
    "AsyncRedisStore",
    "AsyncSqlAlchemyStore",
    "AsyncTransactionStore",
    "DynamoDbStore",
    "IdempotencyStore",
    "InProgress",
    "PowertoolsStore",
    "RedisStore",
    "SqlAlchemyStore",
    "TransactionStore",
]

_MODULES = {
    "AsyncIdempotencyStore": "hourwheel.client.aio.idempotence",
    "AsyncRedisStore": "hourwheel.apps.idempotency.redis",
    "AsyncSqlAlchemyStore": "hourwheel.apps.idempotency.sqlalchemy",
    "AsyncTransactionStore": "hourwheel.client.aio.idempotence",
    "DynamoDbStore": "hourwheel.apps.idempotency.powertools",
    "PowertoolsStore": "hourwheel.apps.idempotency.powertools",
    "RedisStore": "hourwheel.apps.idempotency.redis",
    "SqlAlchemyStore": "hourwheel.apps.idempotency.sqlalchemy",
}


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: each store needs a package that the others do not.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "hourwheel.client.consuming.idempotence")), name)
