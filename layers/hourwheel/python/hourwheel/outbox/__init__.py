"""Sends messages in the transaction of the caller's own data: the transaction writes a row into the outbox, and a relay
sends the row once the transaction is committed.

``send`` and ``send_async`` write the row. ``Relay`` sends committed rows, from a thread of the program or from
``hourwheel outbox relay``. ``create_table`` makes the tables, ``table`` declares them for Alembic.
"""

from hourwheel.apps.outbox.errors import OutboxError, OutboxMissing, OutboxUnreachable, ServerUnreachable
from hourwheel.apps.outbox.operating import (
    OutboxStatus,
    RefusedRow,
    ShardStatus,
    create_table,
    drop,
    refused,
    retry,
    status,
)
from hourwheel.apps.outbox.relay import Relay
from hourwheel.apps.outbox.sending import send, send_async
from hourwheel.apps.outbox.tables import table
from hourwheel.apps.outbox.wakeups import wake

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
