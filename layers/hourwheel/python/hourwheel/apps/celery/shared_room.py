"""Divides the room of a channel among its queues: together they hold no more messages than the channel may.

A pull may wait long for a message, and must not keep room from the other queues meanwhile. So only a pull that will
likely bring messages at once reserves room: that of a queue of which the last pull brought all that it asked for. Any
other pull begins without room too, and gives back what it brings beyond the room. Otherwise a queue that has shown no
messages would get no turn while busy ones leave no room.
"""

import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome
from hourwheel.client.consuming.subscription import Pace, Subscription
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.records.compact import CompactPull, CompactPulls
from hourwheel.client.records.messages import Pull, Pulled
from hourwheel.locks import gives_back
from hourwheel.model.pulls import Settlement

_EAGER_SECONDS = 0.1
"""How long a pull waits that reserves room. After a shorter one without messages a puller pauses."""


class SharedRoom:
    """Divides the room of one channel. Its lock is the innermost one: no other is taken under it."""

    def __init__(self, nudge: Callable[[], None]) -> None:
        self._lock = threading.RLock()
        self.nudge = nudge
        """Makes the pullers of all queues look again whether there is room."""
        self._queues: dict[str, list[SharingSubscription]] = {}
        self._turns = itertools.count(1)
        self.pace = Pace()
        """The messages of all queues that were settled lately."""

    @gives_back
    def join(self, subscription: "SharingSubscription") -> None:
        with self._lock:
            self._queues.setdefault(subscription.queue, []).append(subscription)

    @gives_back
    def leave(self, subscription: "SharingSubscription") -> None:
        with self._lock:
            left = [other for other in self._queues.get(subscription.queue, ()) if other is not subscription]
            self._queues[subscription.queue] = left
            if not left:
                del self._queues[subscription.queue]

    @property
    def divided(self) -> bool:
        return len(self._queues) > 1

    @gives_back
    def reserve(self, subscription: "SharingSubscription") -> int:
        """Returns how many messages the next pull of a subscription asks for; 0 if it has to wait for room. Reserves
        the room if the pull is eager."""
        with self._lock:
            asked = -(-subscription._room() // self._claimants(subscription.queue))
            if not self.divided:
                return asked
            if not subscription.eager:
                return max(1, asked)
            if asked > 0:
                subscription.reserved, subscription.turn = asked, next(self._turns)
            return asked

    @gives_back
    def settle_excess(self, subscription: "SharingSubscription", asked: int, brought: int) -> list[Delivery]:
        """Ends the reservation of a pull. Removes and returns those of its messages for which there is no room."""
        with self._lock:
            waiting = self.waiting_elsewhere(subscription.queue) + subscription.waiting
            excess = waiting - Subscription._most(subscription)
            returned = subscription._local.pop(min(excess, brought))
            subscription.eager = bool(returned) or 0 < asked <= brought
            subscription.reserved = 0
            return returned

    def waiting_elsewhere(self, queue: str) -> int:
        """Returns how many messages of other queues wait to be handed out. Each level of priority of a queue may have
        as many as there is room for: those of a higher level come first."""
        return sum(max(other.waiting for other in others) for others in self._others(queue))

    def reserved_elsewhere(self, subscription: "SharingSubscription") -> int:
        """Returns the room of the pulls of other queues that reserve some, and a message for each other queue that has
        messages and has waited for room longer."""
        return sum(
            max(other.reserved or int(other.waits_since(subscription.turn)) for other in others)
            for others in self._others(subscription.queue)
        )

    def _claimants(self, queue: str) -> int:
        """Returns how many queues have messages, with this one."""
        return 1 + sum(any(other.eager for other in others) for others in self._others(queue))

    def _others(self, queue: str) -> list[list["SharingSubscription"]]:
        return [subscriptions for name, subscriptions in self._queues.items() if name != queue]


class SharingSubscription(Subscription):
    """A subscription of a queue that shares the room of its channel with other queues."""

    def __init__(self, options: PrefetchOptions[Any], *, queue: str, shared: SharedRoom, **how: Any) -> None:
        super().__init__(options, **how)
        self.queue = queue
        self.turn = 0
        """When the last pull that reserved room began, as a number that grows."""
        self.reserved = 0
        """The room of the pull under way, if it reserves some."""
        self._shared = shared
        self._pace = shared.pace
        self._asked = 0
        self.eager = False
        """Whether the next pull will likely bring messages at once."""
        self._allowed = True
        """Whether no message in hand keeps the next pull back. Also for other threads, which must not read leases."""
        shared.join(self)

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def waits_since(self, turn: int) -> bool:
        """Returns whether this subscription waits for room, and had its last turn before this one."""
        return self.eager and self._allowed and not self._pulling and not self.waiting and self.turn < turn

    def halt(self) -> None:
        if self.own:  # a thread of the parent may have held the lock when this process was forked
            self._shared.leave(self)
            super().halt()
            self._shared.nudge()

    def _may_pull(self) -> bool:
        self._allowed = super()._may_pull()
        return self._allowed

    def _has_room(self) -> bool:
        self._asked = self._shared.reserve(self)
        return self._asked > 0

    def _most(self) -> int:
        elsewhere = self._shared.waiting_elsewhere(self.queue) + self._shared.reserved_elsewhere(self)
        return super()._most() - elsewhere

    def _next_size(self, now: float) -> int:
        return self._asked

    def _longest_wait(self) -> float:
        return min(_EAGER_SECONDS, super()._longest_wait()) if self.reserved else super()._longest_wait()

    @gives_back
    def _end_pull(self, settlements: Sequence[Settlement], pulled: Pulled | CompactPulls | None) -> None:
        super()._end_pull(settlements, pulled)
        brought = sum(map(_count, () if pulled is None else pulled.pulls))
        with self._lock:
            self._allowed = self._turn.may_pull()
            for delivery in reversed(self._shared.settle_excess(self, self._asked, brought)):
                delivery._lease.urgent = True  # other workers wait for it
                self._decide(delivery, DeliveryOutcome.RELEASE)
        if self._shared.divided:
            self._shared.nudge()


def _count(pull: Pull | CompactPull) -> int:
    return len(pull.messages) if isinstance(pull, Pull) else pull.count
