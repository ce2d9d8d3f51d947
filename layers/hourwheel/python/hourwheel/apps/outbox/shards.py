"""Carries out the steps of a relay on the tables of an outbox. Each step is one transaction.

    hourwheel_outbox        id, state, shard, subject, message, size_bytes, created_ms, settled_ms, reason
    hourwheel_outbox_shard  shard, sender, sequence, batch, token, relay, lease_until_ms

``state`` of a row is 0 (waiting), 1 (refused, see ``reason``) or 2 (sent, and kept for a while); ``encoding.py`` says
how ``message`` is encoded. A shard names the batch under way: the ids of its rows (``batch``, a list as msgpack), and
the ``sender`` and ``sequence`` under which they are sent. ``token`` is that of the worker that holds the lease. A
worker changes a shard, and the rows that it has sent, only while the shard has its token: a worker whose lease was
taken over changes nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from hourwheel.apps.outbox.databases import RelayConnection
from hourwheel.apps.outbox.encoding import decode
from hourwheel.apps.outbox.sending import SHARDS
from hourwheel.client.records.messages import Message
from hourwheel.ports.machine import Ids

WAITING, REFUSED, SENT = 0, 1, 2

_SKEW_MS = 600_000  # a lease that ends this much later than a new one comes from a clock that was ahead: it is ignored

_ids_encoder = msgspec.msgpack.Encoder()
_ids_decoder = msgspec.msgpack.Decoder(list[int])


class OutboxRow(NamedTuple):
    """Holds a row of the outbox. ``message`` is None where its bytes are damaged."""

    id: int
    subject: str
    message: Message | None


@dataclass(frozen=True, kw_only=True)
class RecordedBatch:
    """Holds the rows that a shard names. They are sent under this sender and sequence, and under no others until the
    server has stored or refused them. ``tried`` says that a worker may have sent them before."""

    shard: int
    sender: str
    sequence: int
    rows: Sequence[OutboxRow]
    tried: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchOutcome:
    """Lists the rows of a batch that were sent, and those that were refused, with the reason. The other rows wait
    again. ``undecided`` says that the server refused the number of the batch, so the shard needs a new sender."""

    sent: Sequence[int] = ()
    refused: Sequence[tuple[int, str]] = ()
    undecided: bool = False


@dataclass(kw_only=True)
class RelaySelection:
    """Bounds a batch: at most ``rows`` rows, and no further row after ``size_bytes``. Rows of ``resting`` subjects are
    left out: the server takes none of them for now."""

    rows: int = 500
    size_bytes: int = 1 << 20
    resting: set[str] = field(default_factory=set)


class LeaseLost(Exception):
    """Says that the lease of the worker ended and another worker took the shard over."""


@dataclass(frozen=True, kw_only=True)
class Shards:
    """Leases the shards of an outbox for one worker, and records their batches. ``token`` is the worker's own,
    ``relay`` the name that ``status`` shows. Rows that were sent are kept for ``keep_ms``."""

    connection: RelayConnection
    ids: Ids
    token: str
    relay: str
    lease_ms: int
    keep_ms: int = 0

    def create(self) -> None:
        """Adds the shards that the table does not have."""
        for shard in range(SHARDS):
            self.connection.execute(self.connection.dialect.insert_shard, shard)

    def is_waiting(self, now_ms: int, resting: set[str]) -> bool:
        """Returns whether ``claim`` may find a shard. Takes no lock: relays ask while no rows come."""
        sql, parameters = self._claimable("SELECT 1", now_ms, resting)
        return bool(self.connection.execute(f"{sql} LIMIT 1", *parameters))

    def claim(self, now_ms: int, selection: RelaySelection) -> RecordedBatch | None:
        """Leases the shard that has rows and whose last lease ended first. Returns the batch that the shard already
        names, or records a new one. Returns None if no shard has rows for this worker."""
        run = self.connection
        sql, parameters = self._claimable("SELECT s.shard, s.sender, s.sequence, s.batch", now_ms, selection.resting)
        with run.transaction():
            leased = run.execute(f"{sql} ORDER BY s.lease_until_ms LIMIT 1{run.dialect.lock}", *parameters)
            if not leased:
                return None
            shard, sender, sequence, recorded = leased[0]
            if recorded is not None:
                rows = self._rows(_ids_decoder.decode(bytes(recorded)))
                batch = RecordedBatch(shard=shard, sender=sender, sequence=sequence, rows=rows, tried=True)
            else:
                batch = self._next(shard, sender or self._new_sender(now_ms), sequence, selection)
            self._store(batch, now_ms, claimed=False)
            return batch

    def finish(
        self, batch: RecordedBatch, outcome: BatchOutcome, now_ms: int, following: RelaySelection | None
    ) -> RecordedBatch | None:
        """Removes the rows that were sent, or keeps them for ``keep_ms``, and sets the refused rows aside. Records the
        next batch in the shard and returns it; without one, or without ``following``, ends the lease and returns None.
        Raises ``LeaseLost``, and changes nothing, if another worker holds the shard."""
        run = self.connection
        sender = self._new_sender(now_ms) if outcome.undecided else batch.sender
        with run.transaction():
            self._settle(outcome, now_ms)
            next_batch = RecordedBatch(shard=batch.shard, sender=sender, sequence=batch.sequence, rows=())
            if following is not None:
                next_batch = self._next(batch.shard, sender, batch.sequence, following)
            self._store(next_batch, now_ms, claimed=True)
        return next_batch if next_batch.rows else None

    def renew(self, shard: int, now_ms: int) -> None:
        """Extends the lease. Raises ``LeaseLost`` if another worker holds the shard."""
        sql = "UPDATE hourwheel_outbox_shard SET lease_until_ms = ? WHERE shard = ? AND token = ?"
        if self.connection.change(sql, now_ms + self.lease_ms, shard, self.token) == 0:
            raise LeaseLost

    def release(self, shard: int) -> None:
        """Ends the lease. The batch that the shard names stays: the next worker sends it under the same number."""
        sql = "UPDATE hourwheel_outbox_shard SET lease_until_ms = 0, token = '' WHERE shard = ? AND token = ?"
        self.connection.change(sql, shard, self.token)

    def remove_sent(self, now_ms: int) -> None:
        """Removes the rows that were sent ``keep_ms`` ago or earlier."""
        sql = "DELETE FROM hourwheel_outbox WHERE state = ? AND settled_ms <= ?"
        self.connection.execute(sql, SENT, now_ms - self.keep_ms)

    def _claimable(self, columns: str, now_ms: int, resting: set[str]) -> tuple[str, list[Any]]:
        """Returns a select of the shards that this worker may lease, and its parameters. It selects those whose lease
        ended, those whose lease comes from a clock that was ahead, and the worker's own, after a lost connection."""
        not_resting, names = _not_resting(resting, "o.")
        sql = (
            f"{columns} FROM hourwheel_outbox_shard s"
            " WHERE (s.lease_until_ms <= ? OR s.lease_until_ms > ? OR s.token = ?) AND (s.batch IS NOT NULL OR EXISTS"
            f" (SELECT 1 FROM hourwheel_outbox o WHERE o.state = 0 AND o.shard = s.shard{not_resting}))"
        )
        return sql, [now_ms, now_ms + self.lease_ms + _SKEW_MS, self.token, *names]

    def _new_sender(self, now_ms: int) -> str:
        return f"outbox-{self.ids.unique(now_ms)}"

    def _next(self, shard: int, sender: str, sequence: int, selection: RelaySelection) -> RecordedBatch:
        """Returns the first rows of the shard, up to the bounds of the selection, under the next number."""
        not_resting, names = _not_resting(selection.resting, "")
        # The row that passes ``size_bytes`` belongs to the batch: otherwise a row larger than that would never be sent.
        sql = (
            "SELECT id, subject, message FROM (SELECT id, subject, message, size_bytes,"
            " SUM(size_bytes) OVER (ORDER BY id) AS total FROM (SELECT id, subject, message, size_bytes"
            f" FROM hourwheel_outbox WHERE state = 0 AND shard = ?{not_resting} ORDER BY id LIMIT ?) AS head) AS summed"
            " WHERE total - size_bytes < ? ORDER BY id"
        )
        rows = self.connection.execute(sql, shard, *names, selection.rows, selection.size_bytes)
        return RecordedBatch(shard=shard, sender=sender, sequence=sequence + bool(rows), rows=[*map(_decoded, rows)])

    def _rows(self, ids: Sequence[int]) -> list[OutboxRow]:
        sql = f"SELECT id, subject, message FROM hourwheel_outbox WHERE id IN ({_listed(ids)}) ORDER BY id"
        return [*map(_decoded, self.connection.execute(sql))]

    def _settle(self, outcome: BatchOutcome, now_ms: int) -> None:
        run = self.connection
        if outcome.sent and self.keep_ms:
            sql = f"UPDATE hourwheel_outbox SET state = ?, settled_ms = ? WHERE id IN ({_listed(outcome.sent)})"
            run.execute(sql, SENT, now_ms)
        elif outcome.sent:
            run.execute(f"DELETE FROM hourwheel_outbox WHERE id IN ({_listed(outcome.sent)})")
        for row, reason in outcome.refused:
            sql = "UPDATE hourwheel_outbox SET state = ?, settled_ms = ?, reason = ? WHERE id = ?"
            run.execute(sql, REFUSED, now_ms, reason, row)

    def _store(self, batch: RecordedBatch, now_ms: int, *, claimed: bool) -> None:
        """Records the batch in its shard and extends the lease; ends the lease where the batch has no rows. Raises
        ``LeaseLost`` if the worker has ``claimed`` the shard before and does not hold it any more."""
        recorded = _ids_encoder.encode([row.id for row in batch.rows]) if batch.rows else None
        token, lease_ms = (self.token, self.lease_ms) if batch.rows else ("", 0)
        sql = (
            "UPDATE hourwheel_outbox_shard SET sender = ?, sequence = ?, batch = ?, token = ?, relay = ?,"
            " lease_until_ms = ? WHERE shard = ?"
        )
        values = (batch.sender, batch.sequence, recorded, token, self.relay, now_ms + lease_ms, batch.shard)
        changed = self.connection.change(f"{sql} AND token = ?", *values, self.token) if claimed else 1
        if not claimed:
            self.connection.change(sql, *values)
        if changed == 0:
            raise LeaseLost


def _decoded(row: Sequence[Any]) -> OutboxRow:
    row_id, subject, encoded = row
    return OutboxRow(row_id, subject, decode(bytes(encoded)))


def _listed(ids: Iterable[int]) -> str:
    """Returns ids as SQL: there may be more of them than a statement may have parameters."""
    return ", ".join(map(str, map(int, ids))) or "NULL"


def _not_resting(resting: set[str], table: str) -> tuple[str, list[str]]:
    names = sorted(resting)
    return (f" AND {table}subject NOT IN ({', '.join('?' * len(names))})" if names else ""), names
