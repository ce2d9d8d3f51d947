"""Makes the tables of an outbox, counts its rows, and retries or drops the rows that the server refused."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hourwheel.apps.outbox.encoding import decode
from hourwheel.apps.outbox.sessions import BoundSession, bound
from hourwheel.apps.outbox.shards import REFUSED, WAITING
from hourwheel.apps.outbox.wakeups import wake
from hourwheel.client.records.messages import Message


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a shard that has a batch under way: the relay that sent the batch last, and its number of rows. The
    lease of the relay ends at ``lease_until_ms`` (Unix milliseconds; None: the relay gave the batch back).

    Example:
        >>> [(shard.relay, shard.rows) for shard in status(session).shards]
        [('shop-1', 500)]
    """

    shard: int
    relay: str
    rows: int
    lease_until_ms: int | None


class OutboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Counts the rows of an outbox: ``waiting`` ones, also those of a batch under way, ``refused`` ones, and ``kept``
    ones, which were sent. ``oldest_ms`` is when the oldest waiting row was written (Unix milliseconds; None without
    one). ``shards`` lists the shards that have a batch under way.

    Example:
        >>> counts = status(session)
        >>> counts.waiting, counts.refused
        (12, 0)
    """

    waiting: int
    refused: int
    kept: int
    oldest_ms: int | None
    shards: list[ShardStatus]


class RefusedRow(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a row that the server refused at ``refused_ms`` (Unix milliseconds). ``reason`` is the answer of the
    server, ``body`` the first 100 characters of the message.

    Example:
        >>> [(row.id, row.reason) for row in refused(session)]
        [(17, 'the message is too large')]
    """

    id: int
    subject: str
    key: str | None
    refused_ms: int
    reason: str
    body: str


def create_table(session: Any) -> None:
    """Makes those tables of the outbox that are missing, in the transaction of ``session``, which is of a kind that
    ``send`` takes. MySQL commits the transaction by itself.

    Raises:
        OutboxError: the database is none of PostgreSQL, SQLite and MySQL.
        TypeError: ``session`` is of no known kind.

    Example:
        >>> connection = sqlite3.connect("shop.db")
        >>> create_table(connection)
    """
    bound_session = bound(session)
    for statement in bound_session.dialect.tables:
        bound_session.execute(statement)


def status(session: Any) -> OutboxStatus:
    """Counts the rows of the outbox, and lists the shards that have a batch under way.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> status(connection).waiting
        0
    """
    bound_session = bound(session)
    states = "SELECT state, COUNT(*), MIN(created_ms) FROM hourwheel_outbox GROUP BY state"
    counts = {state: (count, oldest) for state, count, oldest in bound_session.execute(states)}
    waiting, oldest_ms = counts.get(WAITING, (0, None))
    under_way = "SELECT shard, relay, batch, lease_until_ms FROM hourwheel_outbox_shard WHERE batch IS NOT NULL"
    shards = [
        ShardStatus(
            shard=shard, relay=relay, rows=len(msgspec.msgpack.decode(bytes(batch))), lease_until_ms=lease or None
        )
        for shard, relay, batch, lease in bound_session.execute(f"{under_way} ORDER BY shard")
    ]
    return OutboxStatus(
        waiting=waiting,
        refused=counts.get(REFUSED, (0, None))[0],
        kept=sum(count for state, (count, _) in counts.items() if state not in {WAITING, REFUSED}),
        oldest_ms=oldest_ms,
        shards=shards,
    )


def refused(session: Any, *, limit: int = 100, after: int | None = None) -> list[RefusedRow]:
    """Returns up to ``limit`` rows that the server refused, the oldest first: those with ids above ``after``, which is
    the last id of the list before.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> refused(connection)
        []
    """
    columns = "id, subject, message, settled_ms, reason"
    sql = f"SELECT {columns} FROM hourwheel_outbox WHERE state = ? AND id > ? ORDER BY id LIMIT ?"
    return [_refused_row(*row) for row in bound(session).execute(sql, REFUSED, -1 if after is None else after, limit)]


def retry(session: Any, ids: Sequence[int] | None = None) -> int:
    """Has a relay send refused rows again, once the transaction of ``session`` is committed: the rows with these ids,
    or all. Returns their number.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> retry(connection)
        0
    """
    bound_session = bound(session)
    count = _count_refused(bound_session, ids)
    bound_session.execute(f"UPDATE hourwheel_outbox SET state = ?, reason = NULL WHERE {_are_refused(ids)}", WAITING)
    wake()
    return count


def drop(session: Any, ids: Sequence[int] | None = None) -> int:
    """Deletes refused rows in the transaction of ``session``: the rows with these ids, or all. Returns their number.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> drop(connection)
        0
    """
    bound_session = bound(session)
    count = _count_refused(bound_session, ids)
    bound_session.execute(f"DELETE FROM hourwheel_outbox WHERE {_are_refused(ids)}")
    return count


def _count_refused(bound_session: BoundSession, ids: Sequence[int] | None) -> int:
    return int(bound_session.execute(f"SELECT COUNT(*) FROM hourwheel_outbox WHERE {_are_refused(ids)}")[0][0])


def _are_refused(ids: Sequence[int] | None) -> str:
    # SQL has no empty list: NULL equals no id.
    with_ids = "" if ids is None else f" AND id IN ({', '.join(map(str, map(int, ids))) or 'NULL'})"
    return f"state = {REFUSED}{with_ids}"


def _refused_row(row_id: int, subject: str, encoded: Any, refused_ms: int, reason: str) -> RefusedRow:
    message = decode(bytes(encoded)) or Message("")  # an operator sees and drops a damaged row too
    body = message.body if isinstance(message.body, str) else repr(message.body[:100])
    return RefusedRow(
        id=row_id, subject=subject, key=message.key, refused_ms=refused_ms or 0, reason=reason or "", body=body[:100]
    )
