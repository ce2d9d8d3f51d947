"""Tracks the leases of a consumer, the outcomes of their messages, and the settlements that are due.

This module has no threads and no clock: the pull session calls it under a lock and passes the time in.
"""

import itertools
import logging
import operator
from collections import Counter
from collections.abc import Iterable, Sequence

from hourwheel.client.consuming.delivery import Decide, Delivery, DeliveryOutcome, Lease
from hourwheel.client.records.compact import CompactPull
from hourwheel.client.records.messages import Pull
from hourwheel.model.fields import Delay
from hourwheel.model.pulls import Settled, Settlement

_log = logging.getLogger("hourwheel.consumer")

MOST_RECEIPTS = 1_000  # the limit of one request

_RETRY_LINGER_SECONDS = 0.05  # short, because the delay of a retry begins when the server learns of it
_IDLE_LINGER_SECONDS = 0.01
"""How long a result lingers while a handler is idle, after the last message in hand of a key of an ordered group. The
group hands out the next one, which may keep the handler busy, once it is settled. Settlements that come while a request
is under way share the next one."""

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

    def decide(self, delivery: Delivery, outcome: DeliveryOutcome, now: float, delay: Delay | None = None) -> bool:
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
        begins, retries = lease.unsent_since is None, outcome is DeliveryOutcome.RETRY
        if begins:
            lease.unsent_since = now
        sooner = begins or (retries and not lease.urgent)
        lease.urgent |= retries
        if lease.ordered:
            sooner |= self._frees_key(lease, index, now)
        return sooner or self._holds_back(lease)

    def _frees_key(self, lease: Lease, index: int, now: float) -> bool:
        """Notes when the first key of the lease has become free. Returns True if a handler waits for its messages."""
        if not self._is_last_of_key(lease.keys[index]) or lease.freed_at is not None:
            return False
        lease.freed_at = now
        return self._idle_handlers > 0

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
        decided = self._decided()
        resumes = _resumes(decided, now)
        sent = (lease for lease in decided if resumes or not lease.held_up)
        return [lease.settlement() for lease in itertools.islice(sent, MOST_RECEIPTS)]

    def due(self, now: float, *, ending: bool = False) -> list[Settlement]:
        """Returns the settlements to send now: outcomes whose linger is over, with ``ending`` all outcomes; if there
        are none, extensions of leases whose messages are not all decided. All those whose cell is out of reach share a
        request."""
        sent = self._to_send(now, last=float("inf") if ending else now)
        if sent:
            return [lease.settlement() for lease in sent[:MOST_RECEIPTS]]
        return [
            Settlement(receipt=lease.receipt, extend_seconds=self._lease_seconds)
            for lease in self._to_extend(now)[:MOST_RECEIPTS]
        ]

    def _decided(self) -> list[Lease]:
        """Returns the leases of which every message is decided, and is to be settled."""
        return [lease for lease in self._leases.values() if not lease.undecided and lease.sendable]

    def _to_send(self, now: float, *, last: float) -> list[Lease]:
        """Returns the leases whose outcomes are to be sent now: those whose linger is over at ``last``."""
        sendable = [lease for lease in self._leases.values() if lease.sendable]
        resumes = _resumes(sendable, now)
        sent = [lease for lease in sendable if (resumes if lease.held_up else self._send_at(lease) <= last)]
        if not sent:
            return []
        # Decided pulls are settled sooner: each costs the server one write, whenever it comes.
        return sent + [lease for lease in self._decided() if not (lease.held_up or lease in sent)]

    def _to_extend(self, now: float) -> list[Lease]:
        """Returns the leases that are to be extended now."""
        undecided = [lease for lease in self._leases.values() if lease.undecided and not lease.answering]
        ageing = [lease for lease in undecided if lease.renew_at <= now]
        if _resumes(ageing, now):
            ageing += [lease for lease in undecided if lease.held_up and lease.renew_at > now]
        return ageing

    def next_due(self) -> float | None:
        """Returns the earliest time at which ``due`` may return settlements, or None."""
        leases = [lease for lease in self._leases.values() if not lease.answering]
        times = [self._send_at(lease) for lease in leases if lease.sendable]
        times += [lease.renew_at for lease in leases if lease.undecided]
        return min(times, default=None)

    def answered(self, settlements: Sequence[Settlement], results: Sequence[Settled], now: float) -> None:
        """Records the results of settlements, in order."""
        for settlement, result in zip(settlements, results, strict=True):
            lease = self._leases.get(settlement.receipt)
            if lease is not None and result.status == "unavailable":
                self._postpone(lease, settlement, now)
            elif lease is not None:
                self._resume(lease)
                self._settled(lease, settlement, result.status, now)

    def _settled(self, lease: Lease, settlement: Settlement, status: str, now: float) -> None:
        """Records what became of the lease of a settlement that was carried out or refused."""
        if status == "extended":
            lease.renew_at = now + self._lease_seconds / 2
            return
        if status == "stale" and lease.may_go_on(settlement):
            status, lease.renew_at = "open", now  # the extension tells whether the lease is over
        if status == "open":  # settled in part: the receipt is valid for the rest
            lists = (settlement.ack, settlement.retry, settlement.release, settlement.dead)
            lease.unsettled -= sum(len(indexes or ()) for indexes in lists)
            lease.asked, lease.answering, lease.partly_settled = None, False, True
            return
        if status == "stale":
            lease.lost = True
            self.lost_messages += lease.unsettled
        del self._leases[settlement.receipt]
        for index in lease.undecided if lease.ordered else ():  # of a lost lease
            self._is_last_of_key(lease.keys[index])

    def unanswered(self, settlements: Sequence[Settlement]) -> None:
        """Records that settlements got no answer: they are sent again, unchanged."""
        for settlement in settlements:
            if (lease := self._leases.get(settlement.receipt)) is not None:
                lease.answering = False

    def _postpone(self, lease: Lease, settlement: Settlement, now: float) -> None:
        """Records that the cell of the messages is out of reach: the settlement is sent again, unchanged."""
        if not any(held.held_up for held in self._leases.values()):
            _log.warning("messages of a cell that is out of reach cannot be settled: this is tried again")
        resume_at = lease.postpone(now)
        if settlement.extend_seconds is None:
            lease.answering = False
        lease.renew_at = max(lease.renew_at, resume_at)

    def _resume(self, lease: Lease) -> None:
        paused, lease.resume_at, lease.unavailable_seconds = lease.resume_at is not None, None, 0.0
        if paused and not any(held.held_up for held in self._leases.values()):
            _log.warning("the settlements of all messages are answered again")

    @property
    def lingering(self) -> bool:
        """Whether any outcome waits to be sent, other than those whose cell is out of reach."""
        return any(lease.sendable and not lease.held_up for lease in self._leases.values())

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
