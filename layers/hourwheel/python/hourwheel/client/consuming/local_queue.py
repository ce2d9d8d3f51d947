"""Holds the messages that a consumer has pulled and not handed out.

This module has no threads and no clock: the pull session calls it under a lock.
"""

from collections import deque
from contextlib import suppress

from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome


class LocalQueue:
    """Hands out ``deliveries`` in order. In an ordered group it hands out a message only if no other one of its key is
    in hand."""

    def __init__(self) -> None:
        self.deliveries: deque[Delivery] = deque()
        self._in_hand: dict[str, Delivery] = {}  # by the keys of ordered groups

    def take(self) -> Delivery | None:
        """Removes and returns the first message that may be handled now, or None: its lease is not lost, and in an
        ordered group no other message of its key is in hand. Drops messages whose lease is lost."""
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

    def pop(self, most: int) -> list[Delivery]:
        """Removes and returns up to ``most`` messages, the last first. Others may take messages meanwhile, without the
        lock."""
        popped: list[Delivery] = []
        with suppress(IndexError):
            while len(popped) < most:
                popped.append(self.deliveries.pop())
        return popped

    def free(self, delivery: Delivery, outcome: DeliveryOutcome) -> list[Delivery]:
        """Lets the next message of the key be handed out. If the message failed, removes the later messages of its key
        and pull and returns them, to be released: the server serves the failed message before them."""
        if self._in_hand.get(delivery.ordered_key or "") is delivery:
            del self._in_hand[delivery.ordered_key or ""]
        if outcome is DeliveryOutcome.ACK:
            return []
        behind = [waiting for waiting in self.deliveries if _same_key(waiting, delivery)]
        for waiting in behind:
            self.deliveries.remove(waiting)
        return behind


def _same_key(first: Delivery, second: Delivery) -> bool:
    """Returns whether two messages have one key and belong to one pull of an ordered group."""
    return first._lease is second._lease and first.ordered_key == second.ordered_key
