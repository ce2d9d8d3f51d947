"""Holds the messages that a channel has handed out and that nobody has settled yet."""

from hourwheel.client.lease_tracker import Delivery, DeliveryOutcome
from hourwheel.client.subscription import Subscription
from hourwheel.model.fields import BATCH_MESSAGES


class Unsettled:
    """Limits what a channel hands out to ``prefetch_count`` unsettled messages; 0 is no limit.

    Any thread may settle.
    """

    restore_at_shutdown = False

    def __init__(self, channel: object, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count
        self._held: dict[int, tuple[Subscription, Delivery]] = {}

    def can_consume(self) -> bool:
        return not self.prefetch_count or len(self._held) < self.prefetch_count

    def can_consume_max_estimate(self) -> int:
        return self.room()

    def room(self) -> int:
        """Returns how many messages may be handed out now."""
        limit = self.prefetch_count or BATCH_MESSAGES
        return max(0, limit - len(self._held))

    def limit(self) -> int:
        return self.prefetch_count or BATCH_MESSAGES

    def hold(self, tag: int, subscription: Subscription, delivery: Delivery) -> None:
        self._held[tag] = (subscription, delivery)

    def ack(self, tag: int) -> None:
        self._settle(tag, DeliveryOutcome.ACK)

    def ack_up_to(self, tag: int) -> None:
        for each in sorted(held for held in list(self._held) if held <= tag):
            self.ack(each)

    def reject(self, tag: int, requeue: bool = False) -> None:
        """Makes the message a dead letter, or serves it again at once with a higher attempt."""
        self._settle(tag, DeliveryOutcome.RETRY if requeue else DeliveryOutcome.DEAD)

    def give_back(self) -> dict[Subscription, list[Delivery]]:
        """Returns what is held, by subscription, and holds nothing more."""
        held: dict[Subscription, list[Delivery]] = {}
        for tag in list(self._held):
            taken = self._held.pop(tag, None)
            if taken is not None:
                held.setdefault(taken[0], []).append(taken[1])
        return held

    def restore_unacked(self) -> list[object]:
        """Gives everything back: it is served again, also to this consumer."""
        for subscription, deliveries in self.give_back().items():
            for delivery in deliveries:
                subscription.settle(delivery, DeliveryOutcome.RELEASE)
        return []

    def _settle(self, tag: int, outcome: DeliveryOutcome) -> None:
        taken = self._held.pop(tag, None)
        if taken is not None:
            subscription, delivery = taken
            subscription.settle(delivery, outcome, 0 if outcome is DeliveryOutcome.RETRY else None)
