"""Holds the messages that a channel has handed out and that are not settled yet."""

from typing import Any

from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome
from hourwheel.client.consuming.subscription import Subscription
from hourwheel.model.fields import BATCH_MESSAGES


class Unsettled:
    """Limits a channel to ``prefetch_count`` unsettled messages; 0 is no limit.

    Any thread may settle, so each message is removed in one step, and loops work on a copy.
    """

    restore_at_shutdown = False

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count
        self._held: dict[int, tuple[Subscription, Delivery]] = {}

    def can_consume(self) -> bool:
        return not self.prefetch_count or len(self._held) < self.prefetch_count

    def can_consume_max_estimate(self) -> int:
        return self.room()

    def room(self) -> int:
        """Returns the number of messages that may be handed out now."""
        limit = self.prefetch_count or BATCH_MESSAGES
        return max(0, limit - len(self._held))

    def limit(self) -> int:
        return self.prefetch_count or BATCH_MESSAGES

    def hold(self, tag: int, subscription: Subscription, delivery: Delivery) -> None:
        self._held[tag] = (subscription, delivery)

    def ack(self, tag: int) -> None:
        self._settle(tag, DeliveryOutcome.ACK)

    def ack_up_to(self, tag: int) -> None:
        for earlier_tag in sorted(held_tag for held_tag in list(self._held) if held_tag <= tag):
            self.ack(earlier_tag)

    def reject(self, tag: int, requeue: bool = False) -> None:
        """Makes the message a dead letter, or serves it again at once with a higher attempt."""
        self._settle(tag, DeliveryOutcome.RETRY if requeue else DeliveryOutcome.DEAD)

    def give_back(self) -> dict[Subscription, list[Delivery]]:
        """Removes and returns all messages, by subscription. The caller releases them."""
        deliveries: dict[Subscription, list[Delivery]] = {}
        for tag in list(self._held):
            held = self._held.pop(tag, None)
            if held is not None:
                deliveries.setdefault(held[0], []).append(held[1])
        return deliveries

    def restore_unacked(self) -> list[object]:
        """Releases all messages: the server hands them out again, also to this consumer."""
        for subscription, deliveries in self.give_back().items():
            for delivery in deliveries:
                subscription.settle(delivery, DeliveryOutcome.RELEASE)
        return []

    def _settle(self, tag: int, outcome: DeliveryOutcome) -> None:
        held = self._held.pop(tag, None)
        if held is not None:
            subscription, delivery = held
            # Without the delay of the group: AMQP hands a requeued message out at once.
            subscription.settle(delivery, outcome, 0 if outcome is DeliveryOutcome.RETRY else None)
            self.channel.nudge()  # the pullers of the other queues wait for the same room
