"""Answers claims: reads their messages, and signs the receipt by which the consumer settles them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.handover.copies import taken_from
from hourwheel.logs.cas import Versioned
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.pulls import CompactPull, MessageBlock, Pull
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.claiming.claims import Claim
from hourwheel.pull_log.message_blocks import block_from, block_of
from hourwheel.pull_log.pull_log import PullLog, holds_claim
from hourwheel.pull_log.receipts import Receipt, sign_receipt
from hourwheel.pull_log.records import SETTLED, UNREADABLE, PullRow
from hourwheel.times import rfc3339
from hourwheel.wire.answer_size import TEXT_BYTES, answerable

T = TypeVar("T")


@dataclass
class Answers:
    """Answers the claims of a group."""

    context: Context
    secret: bytes
    subject: Subject
    group: Group

    def pulled(self, log: PullLog, claim: Claim) -> Pull | None:
        """Returns the claim as an answer; None when none of its messages can be read, or the claim was taken over."""
        if claim.taken:
            # The claim has read its messages for their keys: none of them can turn out to be unreadable here.
            messages = [message for part in claim.taken for message in part.messages(log.queue)]
            return Pull.by_key(*self._signed(log, claim, _shortened(claim)), messages, suspect=claim.suspect)
        counts, messages = read_claim(self.context, log, claim)
        pull_row = self._readable(log, claim, counts)
        if pull_row is None:
            return None
        if claim.suspect:
            messages = _unmarked(messages)
        return Pull(*self._signed(log, claim, pull_row), messages, suspect=claim.suspect)

    def blocks(self, log: PullLog, claim: Claim) -> CompactPull | None:
        """Returns the claim as an answer in blocks, and None where ``pulled`` does."""
        if claim.taken:
            blocks = [part.block(log.queue) for part in claim.taken]
            return CompactPull.by_key(*self._signed(log, claim, _shortened(claim)), blocks, suspect=claim.suspect)
        if claim.suspect:
            pull = self.pulled(log, claim)
            return None if pull is None else _in_one_block(pull)
        counts, blocks = read_blocks(self.context, log, claim)
        pull_row = self._readable(log, claim, counts)
        if pull_row is None:
            return None
        return CompactPull(*self._signed(log, claim, pull_row), blocks, suspect=claim.suspect)

    def _readable(self, log: PullLog, claim: Claim, counts: tuple[int, ...]) -> Versioned[PullRow] | None:
        """Returns the pull row without the messages that could not be read; None if none is left, or the claim was
        taken over."""
        pull_row: Versioned[PullRow] | None = claim.pull_row
        if counts != claim.pull_row.value.counts:
            pull_row = exclude_unreadable(self.context, log, claim, counts)
        return pull_row if _has_any(claim, counts) else None

    def _signed(
        self, log: PullLog, claim: Claim, pull_row: Versioned[PullRow]
    ) -> tuple[str, int | Literal["retry"], str]:
        """Returns the receipt of a claim, its queue, and when its lease ends. The receipt of a pull by key is short,
        however many keys the row names: a settlement reads the row."""
        receipt = Receipt(
            self.subject.name,
            self.subject.generation,
            self.group.name,
            self.group.generation,
            log.queue,
            claim.row_no,
            pull_row.token,
            pull_row.value,
            # The name of a queue's first log follows from the queue, and most queues have no other.
            "" if log.mapping.first else log.source.name,
        )
        return (
            sign_receipt(self.secret, receipt),
            "retry" if log.queue is None else log.queue,
            rfc3339(pull_row.value.lease_until_ms),
        )


def _in_one_block(pull: Pull) -> CompactPull:
    blocks = [block_of(pull.messages)]
    return CompactPull(pull.receipt, pull.queue, pull.lease_until, blocks, pull.ordered, pull.suspect)


def _unmarked(messages: Sequence[Message]) -> list[Message]:
    """Returns messages without the mark of a suspect, which stored copies have: the pull has it for its consumer."""
    return [msgspec.structs.replace(message, suspect=False) for message in messages]


def read_claim(context: Context, log: PullLog, claim: Claim) -> tuple[tuple[int, ...], list[Message]]:
    """Returns the number of messages from each row of a claim, and the messages. A row that cannot be read is
    reported and counts 0."""

    def read(row: Row, indexes: Sequence[int], blobs: Blobs, queue: int | None) -> list[Message]:
        taken = taken_from(row, indexes, blobs, queue)
        # Only a larger row can have a body that does not fit into an answer as text.
        return taken if row.raw_bytes <= TEXT_BYTES else [answerable(message) for message in taken]

    return _read_rows(context, log, claim, read)


def read_blocks(context: Context, log: PullLog, claim: Claim) -> tuple[tuple[int, ...], list[MessageBlock]]:
    """Reads the messages of a claim as ``read_claim`` does, in blocks."""

    def read(row: Row, indexes: Sequence[int], blobs: Blobs, queue: int | None) -> list[MessageBlock]:
        return [block_from(log.source.name, row, indexes, blobs, queue, context.partial_rows)]

    return _read_rows(context, log, claim, read)


def _read_rows(
    context: Context, log: PullLog, claim: Claim, read: Callable[[Row, Sequence[int], Blobs, int | None], list[T]]
) -> tuple[tuple[int, ...], list[T]]:
    value, first = claim.pull_row.value, claim.first_count
    counts, read_so_far, blobs = list(value.counts), list[T](), context.blobs_of(log.source.name)
    for step, ((row_no, row), count) in enumerate(zip(claim.rows, _counts_of(claim, value.counts), strict=True), first):
        if not count:
            continue
        try:
            read_so_far += read(row, value.indexes(step), blobs, log.queue)
        except Corrupt as error:
            unreadable(context, log.source.name, row_no, count, error)
            counts[step] = 0
    return tuple(counts), read_so_far


def _counts_of(claim: Claim, counts: Sequence[int]) -> Sequence[int]:
    """Returns those of the counts of a pull row that are the claim's."""
    return counts[claim.first_count : claim.first_count + len(claim.rows)]


def _has_any(claim: Claim, counts: Sequence[int]) -> bool:
    return any(_counts_of(claim, counts))


def exclude_unreadable(
    context: Context, log: PullLog, claim: Claim, counts: tuple[int, ...]
) -> Versioned[PullRow] | None:
    """Removes unreadable messages from the claim, so that its indexes match the answer's; returns the changed pull
    row, or None when the claim was taken over meanwhile. The messages stay in their log: a seek delivers them once
    the row is repaired."""
    # The log of the claim may be bound to the store of a transaction, which has ended.
    record, current = log.on(context).record(claim.row_no), claim.pull_row
    while True:
        value = current.value.final().with_counts(counts)
        # A process that looks for ended leases releases the messages that are kept, or finishes their release.
        if not (_has_any(claim, counts) or value.kept or value.transfers):
            value = value.closed(SETTLED if value.base else UNREADABLE, context.clock.now_ms())
        outcome = record.swap(current, value, expires_ms=value.garbage_ms)
        if outcome.stored:
            return outcome.current
        # Another consumer may have ended the growth of the row, which leaves the claim as it is.
        if outcome.current is None or not holds_claim(outcome.current.value, claim.pull_row.value.claim):
            return None
        current = outcome.current


def _shortened(claim: Claim) -> Versioned[PullRow]:
    """Returns the short form of the pull row that the receipt of a pull by key contains."""
    row = claim.pull_row.value
    short = PullRow(
        consumer="",
        first=row.first,
        counts=(sum(len(part.indexes) for part in claim.taken),),
        end=row.end,
        end_seq=row.end_seq,
        claim=row.claim,
        claimed_ms=row.claimed_ms,
        lease_until_ms=row.lease_until_ms,
    )
    return Versioned(short, claim.pull_row.token)
