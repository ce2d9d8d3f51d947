"""Looks at an outbox, and decides about rows that the server refused."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hourwheel.client.records.messages import Message
from hourwheel.outbox.encoding import decode
from hourwheel.outbox.sessions import BoundSession, bound
from hourwheel.outbox.shards import REFUSED, WAITING
from hourwheel.outbox.wakeups import wake


class ShardStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A shard whose rows are under way: the relay that sends them, how many they are, and when its lease ends (Unix
    milliseconds).

    Example:
        >>> [(shard.relay, shard.rows) for shard in status(session).shards]
        [('shop-1', 500)]
    """

    shard: int
    relay: str
    rows: int
    lease_until_ms: int


class OutboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an outbox: rows that wait, with the time at which the oldest was written (Unix milliseconds; None
    without rows), rows that were refused, rows that were sent and are kept, and the shards that are under way.

    Example:
        >>> found = status(session)
        >>> found.waiting, found.refused
        (12, 0)
    """

    waiting: int
    refused: int
    kept: int
    oldest_ms: int | None
    shards: list[ShardStatus]


class RefusedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that the server refused at ``refused_ms`` (Unix milliseconds), and why. ``body`` is the beginning of its
    text.

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
    """Makes the tables of the outbox, where they are missing, in the transaction of ``session`` (as for ``send``).

    Raises:
        TypeError: ``session`` is of no known kind.

    Example:
        >>> connection = sqlite3.connect("shop.db")
        >>> create_table(connection)
    """
    into = bound(session)
    for statement in into.dialect.tables:
        into.execute(statement)


def status(session: Any) -> OutboxStatus:
    """Returns what is in the outbox.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> status(connection).waiting
        0
    """
    run = bound(session)
    states = "SELECT state, COUNT(*), MIN(created_ms) FROM hourwheel_outbox GROUP BY state"
    counts = {state: (count, oldest) for state, count, oldest in run.execute(states)}
    waiting, oldest_ms = counts.get(WAITING, (0, None))
    named = "SELECT shard, relay, batch, lease_until_ms FROM hourwheel_outbox_shard WHERE batch IS NOT NULL"
    shards = [
        ShardStatus(shard=shard, relay=relay, rows=len(msgspec.msgpack.decode(bytes(batch))), lease_until_ms=lease)
        for shard, relay, batch, lease in run.execute(f"{named} ORDER BY shard")
    ]
    return OutboxStatus(
        waiting=waiting,
        refused=counts.get(REFUSED, (0, None))[0],
        kept=sum(count for state, (count, _) in counts.items() if state not in {WAITING, REFUSED}),
        oldest_ms=oldest_ms,
        shards=shards,
    )


def refused(session: Any, *, limit: int = 100) -> list[RefusedRow]:
    """Returns the rows that the server refused, the oldest first.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> refused(connection)
        []
    """
    sql = "SELECT id, subject, message, settled_ms, reason FROM hourwheel_outbox WHERE state = ? ORDER BY id LIMIT ?"
    return [_shown(*row) for row in bound(session).execute(sql, REFUSED, limit)]


def retry(session: Any, ids: Sequence[int] | None = None) -> int:
    """Sends refused rows again: those with these ids, or all. Returns their number.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> retry(connection)
        0
    """
    run = bound(session)
    count = _count(run, ids)
    run.execute(f"UPDATE hourwheel_outbox SET state = ?, reason = NULL WHERE {_which(ids)}", WAITING)
    wake()
    return count


def drop(session: Any, ids: Sequence[int] | None = None) -> int:
    """Deletes refused rows: those with these ids, or all. Returns their number.

    Raises:
        OutboxMissing: the database has no outbox, or one of another version.

    Example:
        >>> drop(connection)
        0
    """
    run = bound(session)
    count = _count(run, ids)
    run.execute(f"DELETE FROM hourwheel_outbox WHERE {_which(ids)}")
    return count


def _count(run: BoundSession, ids: Sequence[int] | None) -> int:
    return int(run.execute(f"SELECT COUNT(*) FROM hourwheel_outbox WHERE {_which(ids)}")[0][0])


def _which(ids: Sequence[int] | None) -> str:
    chosen = "" if ids is None else f" AND id IN ({', '.join(map(str, map(int, ids))) or 'NULL'})"
    return f"state = {REFUSED}{chosen}"


def _shown(number: int, subject: str, encoded: Any, refused_ms: int, reason: str) -> RefusedRow:
    message = decode(bytes(encoded)) or Message("")
    body = message.body if isinstance(message.body, str) else repr(message.body[:100])
    return RefusedRow(
        id=number, subject=subject, key=message.key, refused_ms=refused_ms or 0, reason=reason or "", body=body[:100]
    )
