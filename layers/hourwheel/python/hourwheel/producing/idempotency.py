"""Stores the reservations of a batch under the idempotency key of its sender.

    table      keys
    partition  {subject}, or * for batches that span subjects
    sort       the idempotency key
    value      Remembered, msgpack array

A producer writes its reservations under the key before it puts a row. A request with the same key finds them, repeats
the puts, and gives the same answer.

A sender may number its batches: under one key, each new batch has a higher sequence. The record is then that of the
last batch, and stays. A batch with the sequence of the record is a repetition, one with a higher sequence replaces the
record, and one with a lower sequence is refused (docs/decisions/0033).

A repetition that reserves rows fills them, and so moves the ends of its queues: counts that are differences of offsets
are then too high until a group has passed the gap. ``is_looked_up`` says when the record is read first. On DynamoDB a
sender without the header ``x-hourwheel-repeat``, whose repetition reaches a process that has not seen the key, still
moves them, and so does a writer that dies behind its reservation. Rejected: a read before each reservation, half a unit
to help one batch in many thousands; a transaction of key and counter, at twice the price.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Conflict, Unavailable
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.log import Reservation
from hourwheel.model.fields import IDEMPOTENCY_MS, SEQUENCE_MS
from hourwheel.ports.storage import Key, Table, transactional
from hourwheel.producing.later_routes import LaterRoute

_TRIES = 5  # a try is lost only to another request with this key


class Remembered(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The record of a batch. ``reservations`` are [log, row_no, first_seq] for each part, in order. ``queues`` is the
    number of queues that each subject had, ``cut`` the length in minutes and the shards of the buckets: from both a
    repeat divides the batch into equal parts. ``rerouted`` are the parts that were divided again, in order: a reader
    had filled their rows, and the subject had got more queues. ``generations`` are those of the subjects, which change
    when a subject is deleted and created again. ``sequence`` is that of a sender that numbers its batches."""

    digest: bytes
    prefix: str
    queues: dict[str, int]
    at_ms: int
    token: bytes
    reservations: tuple[Reservation, ...]
    generations: dict[str, int]
    cut: tuple[int, int]
    rerouted: tuple[LaterRoute, ...] = ()
    sequence: int | None = None

    @property
    def ends_ms(self) -> int:
        """The time from which on the key is free (Unix milliseconds)."""
        return self.at_ms + (IDEMPOTENCY_MS if self.sequence is None else SEQUENCE_MS)

    def answers(self, sequence: int | None, at_ms: int) -> bool:
        """Returns whether the record counts for a batch with this sequence at this time: it has not expired, and is not
        that of an earlier batch of the sender."""
        later = sequence is not None and self.sequence is not None and sequence > self.sequence
        return self.ends_ms > at_ms and not later


@dataclass(frozen=True)
class IdempotencyKey:
    """The sender's key, a digest of the content it goes with, and the number that the sender gave the batch.
    ``repeated``: the sender says that it has sent the batch before."""

    key: str
    digest: bytes
    sequence: int | None = None
    repeated: bool = False

    def record(self, context: Context, keyspace: str) -> CasRecord[Remembered]:
        return CasRecord(context.store, context.ids, Key(Table.KEYS, keyspace, self.key), Remembered)

    def refuse_if_used(self, context: Context, keyspace: str) -> None:
        """Raises ``Conflict`` when a batch came with this key before. Called when a subject of the batch does not
        exist, so that a repeated batch does not create a deleted subject again."""
        first = self.first(context, keyspace)
        if first is not None:
            raise self._conflict(first)

    def first(self, context: Context, keyspace: str) -> Remembered | None:
        """Returns the record of the batch that came with this key before, or of a later batch of the sender; None if
        the key is free for the batch."""
        first = self.record(context, keyspace).load()
        if first is None or not first.value.answers(self.sequence, context.clock.now_ms()):
            return None
        return first.value

    def is_looked_up(self, context: Context, keyspace: str) -> bool:
        """Returns whether the record is read before rows are reserved, so that a repetition reserves none: where a read
        costs no request, and for a key that is likely taken. Notes that the key is used now."""
        if transactional(context.store):
            return True
        seen = context.seen_keys.add(keyspace, self.key)
        # The key of a sender that numbers its batches is nearly always taken.
        return seen or self.repeated or self.sequence is not None

    def check_repeat(self, first: Remembered, generations: Mapping[str, int]) -> None:
        """Raises ``Conflict`` when the batch is not the one that came with its key before."""
        if first.sequence != self.sequence or first.generations != generations or first.digest != self.digest:
            raise self._conflict(first)

    def _conflict(self, first: Remembered) -> Conflict:
        """Returns the error for a batch that differs from the first one: in its sequence, in its content, or otherwise
        because a subject was deleted."""
        if self.sequence is not None and first.sequence is not None and self.sequence < first.sequence:
            slug = "sequence-passed"
            detail = f"a batch with the sequence {first.sequence} came before: give each new batch a higher number"
            return Conflict(slug, detail, field="sequence")
        if first.sequence != self.sequence or first.digest != self.digest:
            slug = "idempotency-key-reused"
            detail = "this idempotency key came with other content before: use a new key for a new batch"
        else:
            slug = "subject-deleted"
            detail = (
                "a subject of this batch was deleted since the batch was first sent: send it with a new key if it is"
                " still needed"
            )
        return Conflict(slug, detail, field="idempotency_key")


def remember(
    record: CasRecord[Remembered], offer: Remembered, current: Versioned[Remembered] | None
) -> Versioned[Remembered]:
    """Stores the offer under its key in place of the record ``current`` (None: none is known), and returns the record
    that counts: the offer, or an earlier one that has not expired. An offer with a sequence replaces the record of a
    lower one. Raises ``Unavailable`` when other requests with the key keep winning the race."""
    before = None if current is None else current.replaced()
    for _ in range(_TRIES):
        outcome = record.swap(before, offer, token=offer.token, expires_ms=offer.ends_ms)
        current = outcome.current
        if outcome.stored and current is not None:
            return current
        # Another request with this key was first: its reservations count.
        if current is not None and current.value.answers(offer.sequence, offer.at_ms):
            return current
        # The record is that of an earlier batch, or has expired: the next try replaces it.
        before = None if current is None else current.replaced()
    raise Unavailable("many requests use this idempotency key at once: send the batch again")


def remember_reservations(
    record: CasRecord[Remembered],
    current: Versioned[Remembered],
    reservations: Sequence[Reservation],
    rerouted: Sequence[LaterRoute],
) -> Versioned[Remembered]:
    """Replaces the reservations, unless another request with the key has done so. Returns the record that counts;
    raises ``Unavailable`` when the key has expired, and when another request has divided the parts in another way."""
    divided = (*current.value.rerouted, *rerouted)
    value = msgspec.structs.replace(current.value, reservations=tuple(reservations), rerouted=divided)
    outcome = record.swap(current, value, expires_ms=value.ends_ms)
    if outcome.current is None or outcome.current.value.token != value.token:
        raise Unavailable("the idempotency key expired meanwhile: send the batch again with a new one")
    if outcome.current.value.rerouted != divided:
        raise Unavailable("another request with this idempotency key is under way: send the batch again")
    return outcome.current
