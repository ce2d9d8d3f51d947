"""Stores by which a consumer handles each message once: ``@consumer.handler(idempotent=store)``.

``SqlAlchemyStore`` remembers messages in the transaction of the handler, so that effects happen exactly once;
``hourwheel.django.idempotency.DjangoStore`` does the same with Django. ``RedisStore``, ``DynamoDbStore`` and
``PowertoolsStore`` remember them beside it. ``IdempotencyStore`` and ``TransactionStore`` say what a store of one's own
has to do. An ``AsyncConsumer`` takes ``AsyncSqlAlchemyStore``, ``AsyncRedisStore``, and stores of one's own as
``AsyncIdempotencyStore`` and ``AsyncTransactionStore`` say.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hourwheel.client.aio.idempotence import AsyncIdempotencyStore, AsyncTransactionStore
    from hourwheel.client.idempotence import IdempotencyStore, InProgress, TransactionStore
    from hourwheel.idempotency.powertools import DynamoDbStore, PowertoolsStore
    from hourwheel.idempotency.redis import AsyncRedisStore, RedisStore
    from hourwheel.idempotency.sqlalchemy import AsyncSqlAlchemyStore, SqlAlchemyStore

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
    "AsyncRedisStore": "hourwheel.idempotency.redis",
    "AsyncSqlAlchemyStore": "hourwheel.idempotency.sqlalchemy",
    "AsyncTransactionStore": "hourwheel.client.aio.idempotence",
    "DynamoDbStore": "hourwheel.idempotency.powertools",
    "PowertoolsStore": "hourwheel.idempotency.powertools",
    "RedisStore": "hourwheel.idempotency.redis",
    "SqlAlchemyStore": "hourwheel.idempotency.sqlalchemy",
}


def __getattr__(name: str) -> Any:
    # Each store needs a package that the others do not.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "hourwheel.client.idempotence")), name)
