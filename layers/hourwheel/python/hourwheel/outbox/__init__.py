"""Sends messages in the transaction of the caller's own data: a row of the outbox, which a relay sends once the
transaction is committed.

``send`` and ``send_async`` write the row. ``Relay`` sends what was committed, from a thread of the program or from
``hourwheel outbox relay``. ``create_table``, and ``table`` for Alembic, make the tables.
"""

from hourwheel.outbox.errors import OutboxError, OutboxMissing, OutboxUnreachable, ServerUnreachable
from hourwheel.outbox.operating import (
    OutboxStatus,
    RefusedRow,
    ShardStatus,
    create_table,
    drop,
    refused,
    retry,
    status,
)
from hourwheel.outbox.relay import Relay
from hourwheel.outbox.sending import send, send_async
from hourwheel.outbox.tables import table
from hourwheel.outbox.wakeups import wake

__all__ = [
    "OutboxError",
    "OutboxMissing",
    "OutboxStatus",
    "OutboxUnreachable",
    "RefusedRow",
    "Relay",
    "ServerUnreachable",
    "ShardStatus",
    "create_table",
    "drop",
    "refused",
    "retry",
    "send",
    "send_async",
    "status",
    "table",
    "wake",
]
