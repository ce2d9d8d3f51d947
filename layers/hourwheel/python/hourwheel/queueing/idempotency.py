"""Idempotency keys: the record of a batch under its sender's key.

    table      keys
    partition  {subject}, or * for batches that span subjects
    sort       the idempotency key
    value      Remembered, msgpack array

A producer writes its reservations under the key before it puts a row. A request with the same key finds them, repeats
the puts, and gives the same answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Conflict, Unavailable
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.model import IDEMPOTENCY_MS
from hourwheel.ports import Key, Table

_TRIES = 5


class Spot(NamedTuple):
    """A reserved row of a log, and the sequence of its first message."""

    log: str
    row: int
    number: int


class Remembered(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """What an idempotency key stands for. ``places`` are [log, row, number] for each part in order; ``queues`` is each
    subject's number of queues then, and ``cut`` length and number of the buckets, so that the split can be made again;
    ``generations`` tells which subject of that name it was."""

    digest: bytes
    prefix: str
    queues: dict[str, int]
    at_ms: int
    token: bytes
    places: tuple[Spot, ...]
    generations: dict[str, int]
    cut: tuple[int, int]

    @property
    def ends_ms(self) -> int:
        """From this time on the key is free."""
        return self.at_ms + IDEMPOTENCY_MS


@dataclass(frozen=True)
class IdempotencyKey:
    """The sender's key, and a digest of the content it goes with."""

    key: str
    digest: bytes

    def record(self, context: Context, keyspace: str) -> CasRecord[Remembered]:
        return CasRecord(context.store, context.ids, Key(Table.KEYS, keyspace, self.key), Remembered)

    def refuse_if_used(self, context: Context, keyspace: str) -> None:
        """For a batch of which a subject does not exist: raises ``Conflict`` when the key came with a batch before, so
        that a repeat does not make the deleted subject again."""
        first = self.record(context, keyspace).load()
        if first is not None and first.value.ends_ms > context.clock.now_ms():
            raise self._conflict(first.value)

    def check_repeat(self, first: Remembered, generations: Mapping[str, int]) -> None:
        """Raises ``Conflict`` when the batch is not the one that came with its key before."""
        if first.digest != self.digest or first.generations != generations:
            raise self._conflict(first)

    def _conflict(self, first: Remembered) -> Conflict:
        """The batch has other content than the first one, or else one of its subjects was deleted."""
        if first.digest != self.digest:
            slug = "idempotency-key-reused"
            detail = "this idempotency key came with other content before: use a new key for a new batch"
        else:
            slug = "subject-deleted"
            detail = (
                "a subject of this batch was deleted since it was first sent: send what is still wanted with a new key"
            )
        return Conflict(slug, detail, field="idempotency_key")


def remember(record: CasRecord[Remembered], offer: Remembered) -> Versioned[Remembered]:
    """Stores the offer under its key, and returns the record that holds: the offer, or an earlier one that has not run
    out."""
    expect: bytes | None = None
    for _ in range(_TRIES):
        outcome = record.swap(expect, offer, token=offer.token, expires_ms=offer.ends_ms)
        held = outcome.current
        if outcome.stored and held is not None:
            return held
        if held is not None and held.value.ends_ms > offer.at_ms:
            return held
        expect = None if held is None else held.token
    raise Unavailable("many requests with this idempotency key at once: send it again")


def remember_spots(
    record: CasRecord[Remembered], held: Versioned[Remembered], spots: tuple[Spot, ...]
) -> Versioned[Remembered]:
    """Replaces the reservations, unless another request with the key has done so; returns the record that holds."""
    value = msgspec.structs.replace(held.value, places=spots)
    outcome = record.swap(held.token, value, expires_ms=value.ends_ms)
    if outcome.current is None:
        raise Unavailable("the idempotency key ran out meanwhile: send the batch again with a new one")
    return outcome.current
