"""Writes messages into the outbox, in the transaction of the caller."""

import itertools
from typing import Any
from zlib import crc32

import msgspec

from hourwheel.apps.outbox.encoding import encode
from hourwheel.apps.outbox.sessions import bound
from hourwheel.client.due import Delay, Moment, due_at
from hourwheel.client.records.messages import Message
from hourwheel.errors import Rejected
from hourwheel.model.due import check_limit
from hourwheel.model.fields import MESSAGE_BYTES, Precision, check_name
from hourwheel.model.messages import NewMessage, message_bytes
from hourwheel.ports.machine import Clock
from hourwheel.system import SystemClock
from hourwheel.times import parse_rfc3339

SHARDS = 8
"""The number of shards of an outbox. One relay at a time sends the rows of a shard, so this many requests are under way
at most. Rows keep the shard that they got when they were written: this number is part of the format."""

_TURN = (
    100  # rows without a key that one shard gets before the next: batches are large, and a backlog is in every shard
)

_numbers = itertools.count()
_clock = SystemClock()


def send(
    session: Any,
    subject: str,
    body: str | bytes | Any,
    *,
    key: str | None = None,
    tags: list[str] | None = None,
    headers: dict[str, str] | None = None,
    message_id: str | None = None,
    delay: Delay | None = None,
    deliver_at: Moment | None = None,
    queue: int | None = None,
    precision: Precision | None = None,
    clock: Clock = _clock,
) -> None:
    """Sends a message when the transaction of ``session`` is committed, and never if it is rolled back.

    Writes a row into the outbox of the session's database; a relay sends the row after the commit. ``session`` is a
    ``Session`` or ``Connection`` of SQLAlchemy, ``django.db.connection``, or a connection of sqlite3, psycopg,
    psycopg2, pymysql or MySQLdb. The other arguments are those of ``Producer.send``; a ``delay`` begins with this call.

    Raises:
        ValueError: the message is over a limit, or one of its fields is not valid. Nothing was written.
        OutboxError: the database is none of PostgreSQL, SQLite and MySQL.
        OutboxMissing: the database has no outbox, or one of another version.
        TypeError: the body is of another type, or contains a value that JSON has no form for, or ``session`` is none
            of these; for an asynchronous one use ``send_async``.

    Example:
        >>> connection = sqlite3.connect("shop.db")
        >>> create_table(connection)
        >>> with connection:
        ...     send(connection, "orders", "paid", key="customer-42", delay="90d")
    """
    now_ms = clock.now_ms()
    message = Message(body, key, tags, headers, message_id, delay, deliver_at, queue, precision)
    checked = _checked(message, subject, now_ms)
    encoded = encode(checked)
    bound_session = bound(session)
    insert = bound_session.dialect.insert
    bound_session.execute(insert, shard_of(subject, key), subject, encoded, len(encoded), now_ms)
    bound_session.after_commit()


async def send_async(session: Any, subject: str, body: str | bytes | Any, **fields: Any) -> None:
    """Sends a message as ``send`` does, in the transaction of an ``AsyncSession`` or ``AsyncConnection`` of SQLAlchemy.

    Raises:
        ValueError, OutboxError, OutboxMissing, TypeError: as ``send``.

    Example:
        >>> async with AsyncSession(engine) as session, session.begin():
        ...     await send_async(session, "orders", "paid", key="customer-42")
    """
    if not hasattr(session, "run_sync"):
        raise TypeError(
            "send_async takes an AsyncSession or AsyncConnection of SQLAlchemy: use send for other sessions"
        )
    await session.run_sync(lambda plain: send(plain, subject, body, **fields))


def shard_of(subject: str, key: str | None) -> int:
    """Returns the shard of a message: rows of one key share a shard, rows without a key take turns."""
    if key is None:
        return next(_numbers) // _TURN % SHARDS
    return crc32(f"{subject}\0{key}".encode()) % SHARDS


def _checked(message: Message, subject: str, now_ms: int) -> NewMessage:
    """Returns the message as the server reads it, with a fixed time of delivery in place of a delay. Raises
    ``ValueError`` for a message that the server would refuse: after the commit, the caller could not roll back."""
    try:
        check_name(subject, "subject")
        if message.delay is not None:
            fixed = due_at(message.delay, None, now_ms)
            message = msgspec.structs.replace(message, delay=None, deliver_at=fixed)
        elif message.deliver_at is not None:
            check_limit(parse_rfc3339(str(message.deliver_at), "deliver_at"), now_ms, "deliver_at")
        checked = _converted(message)
        size = message_bytes(checked)
    except (Rejected, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from None
    if size > MESSAGE_BYTES:
        raise ValueError(f"a message holds at most {MESSAGE_BYTES} bytes, this one has {size}: send a reference to it")
    return checked


def _converted(message: Message) -> NewMessage:
    """Converts the message to the type that the server reads. Raises ``ValueError`` for a field that the server would
    refuse."""
    fields = {name: getattr(message, name) for name in message.__struct_fields__ if getattr(message, name) is not None}
    if isinstance(message.body, bytes):
        fields["body_base64"] = fields.pop("body")
    tags = fields.get("tags")
    if tags is not None and not isinstance(tags, str):
        fields["tags"] = list(tags)
        if len(set(fields["tags"])) != len(fields["tags"]):
            raise ValueError("the tags of a message must differ: leave out the repeated one")
    return msgspec.convert(fields, NewMessage, builtin_types=(bytes,))
