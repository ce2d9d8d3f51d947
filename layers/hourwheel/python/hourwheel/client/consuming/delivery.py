"""Defines the messages that a consumer hands out, and the leases of their pulls."""

import functools
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import TypeAlias

import msgspec

from hourwheel.client.due import Delay, checked_retry_delay
from hourwheel.client.records.compact import UNDECODABLE, CompactPull
from hourwheel.client.records.messages import Pull, Received
from hourwheel.model.fields import DETAILS_BYTES
from hourwheel.model.fields import Delay as WireDelay
from hourwheel.model.pulls import Rejection, RetryLater, Settlement

MOST_DETAIL_CHARACTERS = 1_000  # the server refuses longer ones

_UNAVAILABLE_SECONDS = (0.5, 5.0)
"""The first and the longest pause, each twice the one before, while a cell is out of reach. Servers pause for 5 s."""


class DeliveryOutcome(Enum):
    ACK = "ack"
    RETRY = "retry"
    RELEASE = "release"
    DEAD = "dead"


Decide: TypeAlias = Callable[["Delivery", DeliveryOutcome, WireDelay | None], None]


class Delivery(msgspec.Struct, eq=False, gc=False):
    """A message that a ``Consumer`` hands out. The first call of ``ack``, ``retry`` or ``dead`` decides about it, and
    later calls have no effect. Without a call, the end of the handler or of the loop decides.

    Example:
        >>> with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
        ...     for message in messages:
        ...         print(message.body, message.key, message.offset, message.attempt)
        ...         break
        paid customer-42 0 1
    """

    _lease: "Lease"
    _index: int

    @property
    def _record(self) -> Received:
        return self._lease.records()[self._index]

    @property
    def ordered_key(self) -> str | None:
        """The key whose messages are handled one after the other; None in a group that is not ordered. All messages of
        a pull that cannot be decoded share one key, its receipt, because their keys are not known."""
        if not self._lease.ordered:
            return None
        try:
            return self._record.key
        except UNDECODABLE:
            return self._lease.receipt

    @property
    def id(self) -> str:
        """The id that the sender gave, or else the server."""
        return self._record.id

    @property
    def body(self) -> str | bytes:
        """The body as it was sent, text or bytes."""
        return self._record.body

    @property
    def key(self) -> str | None:
        """The key of the message; None if it has none. Messages with one key are in one queue, in order."""
        return self._record.key

    @property
    def tags(self) -> list[str]:
        """The tags, up to 10."""
        return self._record.tags

    @property
    def headers(self) -> dict[str, str]:
        """The headers, up to 32."""
        return self._record.headers

    @property
    def queue(self) -> int:
        """The queue in which the message was first stored."""
        return self._record.queue

    @property
    def offset(self) -> int:
        """The offset of the message in that queue."""
        return self._record.offset

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1. A message that was released has the same attempt when it comes again."""
        return self._record.attempt

    @property
    def produced_at(self) -> datetime:
        """The time at which the server accepted the message, in UTC."""
        return self._record.produced_at

    @property
    def due_at(self) -> datetime | None:
        """The time at which a delayed message was due, in UTC; None for other messages."""
        return self._record.due_at

    @property
    def lost(self) -> bool:
        """Whether the lease has ended. Then another consumer gets the message, and the result of this one does not
        count. A handler that takes long may check this, and stop."""
        return self._lease.lost

    @property
    def given_back(self) -> bool:
        """Whether ``retry`` or ``dead`` was called."""
        return self._index in self._lease.given_back

    def ack(self) -> None:
        """Acknowledges the message: the group does not get it again.

        Raises nothing.

        Example:
            >>> with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
            ...     next(iter(messages)).ack()
        """
        self._lease.decide(self, DeliveryOutcome.ACK, None)

    @property
    def detail(self) -> str | None:
        """The text that a consumer gave when the last attempt failed; None if it gave none, and at the first
        attempt."""
        return self._record.detail

    def retry(self, *, delay: Delay | None = None, detail: str | None = None) -> None:
        """Gives the message back, so that the group gets it again with the next attempt. It comes after ``delay``
        (seconds, text such as "10m", or a ``timedelta``; 0: at once), or without one after the delay of the group's
        policy. The delay begins when the server learns of the retry. ``detail`` says why, in up to 1,000 characters,
        and is part of the dead letter if this was the last attempt.

        Raises:
            ValueError: ``delay`` is no valid delay; nothing is decided.

        Example:
            >>> with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
            ...     next(iter(messages)).retry(delay="10m", detail="the bank is closed")
        """
        checked = None if delay is None else checked_retry_delay(delay)
        self._give_back(DeliveryOutcome.RETRY, checked, detail)

    def dead(self, *, detail: str | None = None) -> None:
        """Gives the message up: it becomes a dead letter of the group. ``detail`` says why, in up to 1,000 characters,
        and is part of the dead letter.

        Raises nothing.

        Example:
            >>> with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
            ...     next(iter(messages)).dead(detail="the order is empty")
        """
        self._give_back(DeliveryOutcome.DEAD, None, detail)

    def _give_back(self, outcome: DeliveryOutcome, delay: WireDelay | None, detail: str | None) -> None:
        explain(self, detail)
        self._lease.given_back.add(self._index)
        self._lease.decide(self, outcome, delay)

    def __repr__(self) -> str:
        return f"<Delivery {self.id} queue={self.queue} offset={self.offset} attempt={self.attempt}>"


class Lease:
    """Tracks the lease of one pull."""

    def __init__(self, pull: Pull | CompactPull, renew_at: float, decide: Decide) -> None:
        self._records = pull.messages if isinstance(pull, Pull) else None
        self._encoded = pull if isinstance(pull, CompactPull) else None
        self.receipt = pull.receipt
        self.decide = decide
        self.ordered = pull.ordered
        self.suspect = pull.suspect
        self.messages = len(pull.messages) if isinstance(pull, Pull) else pull.count
        self.unsettled = self.messages
        self.undecided = set(range(self.messages))
        self.unsent: dict[DeliveryOutcome, list[int]] = {outcome: [] for outcome in DeliveryOutcome}  # not sent yet
        self.delays: dict[int, WireDelay] = {}
        self.details: dict[int, str] = {}
        self.detail_bytes = 0  # of the outcomes that were not sent yet
        self.given_back: set[int] = set()  # the messages that a handler retried or gave up itself
        self.unsent_since: float | None = None
        self.urgent = False  # whether a retry is among ``unsent``
        self.freed_at: float | None = None  # when the first of the keys of which ``unsent`` has the last message ended
        self.asked: Settlement | None = None  # sent, and not carried out yet
        self.answering = False  # whether a request with ``asked`` is under way
        self.partly_settled = False
        self.renew_at = renew_at
        self.lost = False
        self.unavailable_seconds = 0.0  # the last pause, while the cell of the messages is out of reach
        self.resume_at: float | None = None  # no settlement is sent before; None if the last one was answered otherwise

    def records(self) -> list[Received]:
        """Returns the messages, which the first call decodes."""
        if self._records is None:
            assert self._encoded is not None
            self._records, self._encoded = self._encoded.received(), None
        return self._records

    @functools.cached_property
    def keys(self) -> list[str | None]:
        """The key of each message of an ordered group; the receipt where the messages cannot be decoded."""
        try:
            return [record.key for record in self.records()]
        except UNDECODABLE:
            return [self.receipt] * self.messages

    @property
    def sendable(self) -> bool:
        return not self.answering and (self.asked is not None or self.unsent_since is not None)

    def may_go_on(self, settlement: Settlement) -> bool:
        """Returns whether a stale answer may be about these messages alone, which an earlier settlement released."""
        return self.ordered and self.partly_settled and bool(self.undecided) and settlement.extend_seconds is None

    @property
    def held_up(self) -> bool:
        """Whether the cell of the messages was out of reach at the last settlement."""
        return self.resume_at is not None

    def postpone(self, now: float) -> float:
        """Lets a pause begin, because the cell of the messages is out of reach. Returns its end."""
        first, longest = _UNAVAILABLE_SECONDS
        self.unavailable_seconds = min(longest, 2 * self.unavailable_seconds) or first
        self.resume_at = now + self.unavailable_seconds
        return self.resume_at

    def settlement(self) -> Settlement:
        """Returns the settlement to send now: the last one, unchanged, if it was not answered; else one with all unsent
        outcomes."""
        if self.asked is None:
            # A settlement without ``ack`` acknowledges every message of the pull that it does not name.
            named = self.undecided or self.partly_settled
            self.asked = Settlement(
                receipt=self.receipt,
                ack=sorted(self.unsent[DeliveryOutcome.ACK]) if named else None,
                retry=[self._retry(index) for index in sorted(self.unsent[DeliveryOutcome.RETRY])] or None,
                release=sorted(self.unsent[DeliveryOutcome.RELEASE]) or None,
                dead=[self._dead(index) for index in sorted(self.unsent[DeliveryOutcome.DEAD])] or None,
            )
            self.unsent = {outcome: [] for outcome in DeliveryOutcome}
            self.unsent_since = None
            self.urgent = False
            self.freed_at = None
            self.detail_bytes = 0
        self.answering = True
        return self.asked

    def _retry(self, index: int) -> int | RetryLater:
        delay, detail = self.delays.get(index), self.details.get(index)
        return index if delay is None and detail is None else RetryLater(index=index, delay=delay, detail=detail)

    def _dead(self, index: int) -> int | Rejection:
        detail = self.details.get(index)
        return index if detail is None else Rejection(index=index, detail=detail)


def explain(delivery: Delivery, detail: str | None) -> None:
    """Records why a message is about to be retried or given up, unless that was decided before. Drops a detail beyond
    the 32 KB that the server keeps of a settlement: for a failed batch of a thousand messages the details would make a
    request of megabytes."""
    if not detail or delivery.given_back:
        return
    lease, text = delivery._lease, detail[:MOST_DETAIL_CHARACTERS].encode(errors="replace")
    if lease.detail_bytes + len(text) <= DETAILS_BYTES:
        lease.detail_bytes += len(text)
        lease.details[delivery._index] = text.decode()
