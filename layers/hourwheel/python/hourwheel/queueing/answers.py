"""Answers claims: reads their messages, and signs the receipt by which the consumer settles them."""

from dataclasses import dataclass

import msgspec

from hourwheel.answer_size import TEXT_BYTES, answerable
from hourwheel.context import Context
from hourwheel.errors import Corrupt
from hourwheel.faults import unreadable
from hourwheel.handover.copies import taken_from
from hourwheel.logs.cas import Versioned
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.pulls import Pulled
from hourwheel.model.subjects import Subject
from hourwheel.queueing.pull_log import Claim, PullLog
from hourwheel.queueing.receipts import Receipt, sign_receipt
from hourwheel.queueing.records import UNREADABLE, PullRow
from hourwheel.times import rfc3339


@dataclass
class Answers:
    """Answers the claims of a group."""

    context: Context
    secret: bytes
    subject: Subject
    group: Group

    def pulled(self, log: PullLog, claim: Claim) -> Pulled | None:
        """Returns the claim as an answer; None when none of its messages can be read, or the claim was taken over."""
        if self.group.ordered:
            # A settlement reads the row: its receipt stays short, however many keys the row names.
            return self._signed(log, claim.row_no, _shortened(claim), [*claim.messages])
        counts, messages = read_claim(self.context, log, claim)
        pull_row: Versioned[PullRow] | None = claim.pull_row
        if counts != claim.pull_row.value.counts:
            pull_row = exclude_unreadable(self.context, log, claim, counts)
        return None if pull_row is None or not messages else self._signed(log, claim.row_no, pull_row, messages)

    def _signed(self, log: PullLog, row_no: int, pull_row: Versioned[PullRow], messages: list[Message]) -> Pulled:
        receipt = Receipt(
            self.subject.name,
            self.subject.generation,
            self.group.name,
            self.group.generation,
            log.queue,
            row_no,
            pull_row.token,
            pull_row.value,
            "" if log.mapping.first else log.source.name,
        )
        return Pulled(
            sign_receipt(self.secret, receipt),
            "retry" if log.queue is None else log.queue,
            rfc3339(pull_row.value.lease_until_ms),
            messages,
            ordered=self.group.ordered,
        )


def read_claim(context: Context, log: PullLog, claim: Claim) -> tuple[tuple[int, ...], list[Message]]:
    """Returns the number of messages from each row of a claim, and the messages. A row that cannot be read is
    reported and counts 0."""
    value = claim.pull_row.value
    counts, delivered = list(value.counts), list[Message]()
    for step, ((row_no, row), count) in enumerate(zip(claim.rows, value.counts, strict=True)):
        if not count:
            continue
        try:
            taken = taken_from(row, value.indexes(step), context.blobs_of(log.source.name), log.queue)
        except Corrupt as error:
            unreadable(context, log.source.name, row_no, count, error)
            counts[step] = 0
            continue
        delivered += taken if row.raw_bytes <= TEXT_BYTES else [answerable(message) for message in taken]
    return tuple(counts), delivered


def exclude_unreadable(
    context: Context, log: PullLog, claim: Claim, counts: tuple[int, ...]
) -> Versioned[PullRow] | None:
    """Removes unreadable messages from the claim, so that its indexes match the answer's; returns the changed pull
    row, or None when the claim was taken over meanwhile. The messages stay in their log: a seek delivers them once
    the row is repaired."""
    value = msgspec.structs.replace(claim.pull_row.value, counts=counts)
    if not any(counts):
        value = value.closed(UNREADABLE, context.clock.now_ms())
    # The log of the claim may be bound to the store of a transaction, which has ended.
    record = log.on(context).record(claim.row_no)
    outcome = record.swap(claim.pull_row.token, value, expires_ms=value.garbage_ms)
    return outcome.current if outcome.stored else None


def _shortened(claim: Claim) -> Versioned[PullRow]:
    """Returns what the receipt of an ordered pull contains of its row."""
    row = claim.pull_row.value
    short = PullRow(
        consumer="",
        first=row.first,
        counts=(len(claim.messages),),
        end=row.end,
        end_seq=row.end_seq,
        claim=row.claim,
        claimed_ms=row.claimed_ms,
        lease_until_ms=row.lease_until_ms,
    )
    return Versioned(short, claim.pull_row.token)
