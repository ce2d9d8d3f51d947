"""Tracks the leases of a consumer, the outcomes of their messages, and the settlements that are due.

This module has no threads and no clock: the prefetcher calls it under a lock and passes the time in.
"""

import functools
import itertools
import logging
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import TypeAlias

import msgspec

from hourwheel.client.due import Delay, checked_retry_delay
from hourwheel.client.records.compact import UNDECODABLE, CompactPull
from hourwheel.client.records.messages import Pull, Received
from hourwheel.model.fields import DETAILS_BYTES
from hourwheel.model.fields import Delay as WireDelay
from hourwheel.model.pulls import Rejection, RetryLater, Settled, Settlement

_log = logging.getLogger("hourwheel.consumer")

MOST_RECEIPTS = 1_000  # the limit of one request
MOST_DETAIL_CHARACTERS = 1_000  # the server refuses longer ones

_RETRY_LINGER_SECONDS = 0.05  # short, because the delay of a retry begins when the server learns of it
_IDLE_LINGER_SECONDS = 0.01
"""While a handler is idle, after the last message in hand of a key of an ordered group: the group hands out the next
one, which may keep the handler busy, once it is settled. Settlements that come while a request is under way share the
next one."""

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
        """Gives the message back, so that the group gets it again with the next attempt: after ``delay`` (seconds, text
        such as "10m", or a ``timedelta``; 0: at once), or without one after the delay of the group's policy. The delay
        begins when the server learns of the retry. ``detail`` says why, in up to 1,000 characters, and is part of the
        dead letter if this was the last attempt.

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


_lease_of = operator.attrgetter("_lease")
_index_of = operator.attrgetter("_index")


class LeaseTracker:
    """Tracks all leases of a consumer."""

    def __init__(self, *, lease_seconds: int, linger_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._linger_seconds = linger_seconds
        self._leases: dict[str, Lease] = {}
        self.lost_messages = 0
        self.is_group_full = False
        """Whether the group has as many messages in flight as it may: it hands out the next ones for settled ones."""
        self._idle_handlers = 0
        self._undecided = Counter[str | None]()  # the number of undecided messages of each key of an ordered group

    def open(self, pull: Pull | CompactPull, now: float, decide: Decide) -> list[Delivery]:
        # Extended at half of its time: the other half is for further tries.
        lease = Lease(pull, now + self._lease_seconds / 2, decide)
        self._leases[pull.receipt] = lease
        if lease.ordered:
            self._undecided.update(lease.keys)
        return [Delivery(lease, index) for index in range(lease.messages)]

    def decide(self, delivery: Delivery, outcome: DeliveryOutcome, now: float, delay: WireDelay | None = None) -> bool:
        """Records the outcome of a message, with the ``delay`` of a retry. A message that was decided before, or whose
        lease is lost, keeps its outcome.

        Returns True if the settler has to look again at what is due.
        """
        lease, index = delivery._lease, delivery._index
        if lease.lost or index not in lease.undecided:
            return False
        lease.undecided.discard(index)
        lease.unsent[outcome].append(index)
        if delay is not None:
            lease.delays[index] = delay
        sooner = lease.unsent_since is None or (outcome is DeliveryOutcome.RETRY and not lease.urgent)
        lease.unsent_since = now if lease.unsent_since is None else lease.unsent_since
        lease.urgent = lease.urgent or outcome is DeliveryOutcome.RETRY
        if lease.ordered and self._is_last_of_key(lease.keys[index]) and lease.freed_at is None:
            lease.freed_at = now
            sooner = sooner or self._idle_handlers > 0
        return sooner or self._holds_back(lease)

    def idle(self, handlers: int) -> bool:
        """Records how many handlers wait for a message. Returns True if the settler has to look at what is due."""
        before, self._idle_handlers = self._idle_handlers, handlers
        return handlers > before == 0 and any(
            lease.freed_at is not None and lease.sendable for lease in self._leases.values()
        )

    def acknowledged(self, deliveries: Sequence[Delivery], since: float) -> None:
        """Records the acknowledgements of many messages, the first of which came at ``since`` or later."""
        for lease, group in itertools.groupby(deliveries, _lease_of):
            if lease.lost:
                continue
            acked = lease.undecided.intersection(map(_index_of, group))
            if acked:
                lease.undecided -= acked
                lease.unsent[DeliveryOutcome.ACK].extend(acked)  # ``settlement`` sorts them
                if lease.unsent_since is None:
                    lease.unsent_since = since

    def complete(self, now: float) -> list[Settlement]:
        """Returns the settlements of pulls whose messages are all decided, for the next pull to take along."""
        decided = [lease for lease in self._leases.values() if not lease.undecided and lease.sendable]
        resumes = _resumes(decided, now)
        sent = (lease for lease in decided if resumes or lease.resume_at is None)
        return [lease.settlement() for lease in itertools.islice(sent, MOST_RECEIPTS)]

    def due(self, now: float, *, ending: bool = False) -> list[Settlement]:
        """Returns the settlements to send now: outcomes whose linger is over, with ``ending`` all outcomes; if there
        are none, extensions of leases whose messages are not all decided. All those whose cell is out of reach share a
        request."""
        leases = self._leases.values()
        sendable = [lease for lease in leases if lease.sendable]
        resumes = _resumes(sendable, now)
        sent = [
            lease
            for lease in sendable
            if (resumes if lease.resume_at is not None else ending or self._send_at(lease) <= now)
        ]
        if sent:
            # Decided pulls are settled sooner: each costs the server one write, whenever it comes.
            decided = [lease for lease in sendable if not lease.undecided and lease.resume_at is None]
            sent += [lease for lease in decided if lease not in sent]
            return [lease.settlement() for lease in sent[:MOST_RECEIPTS]]
        undecided = [lease for lease in leases if lease.undecided and not lease.answering]
        ageing = [lease for lease in undecided if lease.renew_at <= now]
        if _resumes(ageing, now):
            ageing += [lease for lease in undecided if lease.resume_at is not None and lease.renew_at > now]
        return [
            Settlement(receipt=lease.receipt, extend_seconds=self._lease_seconds) for lease in ageing[:MOST_RECEIPTS]
        ]

    def next_due(self) -> float | None:
        """Returns the earliest time at which ``due`` may return settlements, or None."""
        leases = [lease for lease in self._leases.values() if not lease.answering]
        times = [self._send_at(lease) for lease in leases if lease.sendable]
        times += [lease.renew_at for lease in leases if lease.undecided]
        return min(times, default=None)

    def answered(self, settlements: Sequence[Settlement], results: Sequence[Settled], now: float) -> None:
        """Records the results of settlements, in order."""
        for settlement, result in zip(settlements, results, strict=True):
            if (lease := self._leases.get(settlement.receipt)) is None:
                continue
            status = result.status
            if status == "unavailable":
                self._postpone(lease, settlement, now)
                continue
            self._resume(lease)
            if status == "extended":
                lease.renew_at = now + self._lease_seconds / 2
                continue
            if status == "stale" and lease.may_go_on(settlement):
                status, lease.renew_at = "open", now  # the extension tells whether the lease is over
            if status == "stale":
                lease.lost = True
                self.lost_messages += lease.unsettled
            if status == "open":  # settled in part: the receipt is valid for the rest
                lists = (settlement.ack, settlement.retry, settlement.release, settlement.dead)
                lease.unsettled -= sum(len(indexes or ()) for indexes in lists)
                lease.asked, lease.answering, lease.partly_settled = None, False, True
            else:
                del self._leases[settlement.receipt]
                if lease.ordered:
                    for index in lease.undecided:  # of a lost lease
                        self._is_last_of_key(lease.keys[index])

    def unanswered(self, settlements: Sequence[Settlement]) -> None:
        """Records that settlements got no answer: they are sent again, unchanged."""
        for settlement in settlements:
            if (lease := self._leases.get(settlement.receipt)) is not None:
                lease.answering = False

    def _postpone(self, lease: Lease, settlement: Settlement, now: float) -> None:
        """Records that the cell of the messages is out of reach: the settlement is sent again, unchanged."""
        if not any(each.resume_at is not None for each in self._leases.values()):
            _log.warning("messages of a cell that is out of reach cannot be settled: this is tried again")
        resume_at = lease.postpone(now)
        if settlement.extend_seconds is None:
            lease.answering = False
        lease.renew_at = max(lease.renew_at, resume_at)

    def _resume(self, lease: Lease) -> None:
        paused, lease.resume_at, lease.unavailable_seconds = lease.resume_at is not None, None, 0.0
        if paused and not any(each.resume_at is not None for each in self._leases.values()):
            _log.warning("the settlements of all messages are answered again")

    @property
    def lingering(self) -> bool:
        """Whether any outcome waits to be sent, other than those whose cell is out of reach."""
        return any(lease.sendable and lease.resume_at is None for lease in self._leases.values())

    @property
    def in_hand(self) -> bool:
        """Whether any message is not decided."""
        return any(lease.undecided for lease in self._leases.values())

    @property
    def holds_suspect(self) -> bool:
        """Whether a suspect is not decided."""
        return any(lease.suspect and lease.undecided for lease in self._leases.values())

    @property
    def unconfirmed(self) -> int:
        """The number of leases with outcomes that the server has not confirmed."""
        return sum(lease.answering or lease.sendable for lease in self._leases.values())

    def _is_last_of_key(self, key: str | None) -> bool:
        """Takes a message out of the undecided ones. Returns whether no other one of its key is left in hand: then the
        group hands out the next one of the key once this one is settled. Messages without a key hold back none."""
        self._undecided[key] -= 1
        if self._undecided[key]:
            return False
        del self._undecided[key]
        return key is not None

    def _holds_back(self, lease: Lease) -> bool:
        """Returns whether nothing is left to handle and an ordered group waits: it hands out no further message of the
        lease's keys before their settlement comes. The pull under way may wait for that very settlement."""
        return lease.ordered and not lease.undecided and not self.in_hand

    def _send_at(self, lease: Lease) -> float:
        if lease.resume_at is not None:
            return lease.resume_at
        if lease.asked is not None or lease.unsent_since is None:
            return 0.0  # a settlement without an answer is sent again at once
        if self.is_group_full or self._holds_back(lease):
            return lease.unsent_since
        linger_seconds = self._linger_seconds
        if lease.urgent:
            linger_seconds = min(linger_seconds, _RETRY_LINGER_SECONDS)
        send_at = lease.unsent_since + linger_seconds
        if lease.freed_at is not None and self._idle_handlers:
            send_at = min(send_at, lease.freed_at + _IDLE_LINGER_SECONDS)
        return send_at


def _resumes(leases: Iterable[Lease], now: float) -> bool:
    """Returns whether the pause of one of these leases is over, whose cell is out of reach."""
    return any(lease.resume_at is not None and lease.resume_at <= now for lease in leases)
