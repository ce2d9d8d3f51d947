"""Holds the messages that a consumer has pulled and not handed out.

This module has no threads and no clock: the prefetcher calls it under a lock.
"""

from collections import deque

from hourwheel.client.lease_tracker import Delivery, DeliveryOutcome, same_key


class LocalQueue:
    """``deliveries`` wait in order. Of the messages of one key of an ordered group, one is in hand at a time."""

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()
        self._in_hand: dict[str, Delivery] = {}  # by the keys of ordered groups

    def take(self) -> Delivery | None:
        """Removes the first message whose lease is not lost, and whose key nobody handles if its group is ordered."""
        passed: list[Delivery] = []
        taken: Delivery | None = None
        while taken is None and self.deliveries:
            delivery = self.deliveries.popleft()
            key = delivery.ordered_key
            if delivery.lost:
                continue
            if key in self._in_hand:
                passed.append(delivery)
                continue
            taken = delivery
            if key is not None:
                self._in_hand[key] = delivery
        self.deliveries.extendleft(reversed(passed))
        return taken

    def free(self, delivery: Delivery, outcome: DeliveryOutcome) -> list[Delivery]:
        """Lets the next message of the key come. After a failure that is not one of the same pull, as the server serves
        the failed message first: removes those, and returns them to be released."""
        if self._in_hand.get(delivery.ordered_key or "") is delivery:
            del self._in_hand[delivery.ordered_key or ""]
        if outcome is DeliveryOutcome.ACK:
            return []
        behind = [other for other in self.deliveries if same_key(other, delivery)]
        for other in behind:
            self.deliveries.remove(other)
        return behind
