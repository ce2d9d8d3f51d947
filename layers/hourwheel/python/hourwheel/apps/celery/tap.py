"""Consumes one queue by a subscription for each of its sources, and decodes the messages."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from hourwheel.apps.celery.state import Source
from hourwheel.apps.celery.wire import KombuMessage, NotKombu, decode
from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome, explain
from hourwheel.client.consuming.subscription import Subscription
from hourwheel.client.errors import ServerFault, ServerUnavailable
from hourwheel.ports.machine import Clock
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.celery")


class Tapped(NamedTuple):
    """Holds a decoded message that was pulled and is not handed out yet."""

    subscription: Subscription
    delivery: Delivery
    message: KombuMessage


class Tap:
    """Consumes a queue for one consumer of Kombu. The highest level of priority comes first."""

    def __init__(
        self,
        queue: str,
        callback: Callable[[Any], object] | None,
        subscriptions: list[tuple[Source, Subscription]],
        clock: Clock,
        *,
        no_ack: bool,
    ) -> None:
        self.queue = queue
        self.callback = callback
        self.no_ack = no_ack
        self.subscriptions = subscriptions
        self._clock = clock

    def start(self) -> None:
        """Starts the threads that pull. With levels of priority, first pulls once from each level, the highest first:
        the answers of the threads come in any order. Where such a pull fails, the thread repeats it."""
        for _, subscription in self.subscriptions if len(self.subscriptions) > 1 else ():
            with suppress(ServerUnavailable, ServerFault):
                subscription.pull_ahead()
        for _, subscription in self.subscriptions:
            subscription.start()

    def take(self) -> Tapped | None:
        """Returns a message that was pulled, or None. Raises the error with which the server refused the pulls."""
        for source, subscription in self.subscriptions:
            while (delivery := subscription.take()) is not None:
                if (tapped := self._tapped(source, subscription, delivery)) is not None:
                    return tapped
        return None

    def fetch(self) -> Tapped | None:
        """Pulls a message, and returns it or None. Raises ``AnswerError``."""
        for source, subscription in self.subscriptions:
            while (delivery := subscription.fetch()) is not None:
                if (tapped := self._tapped(source, subscription, delivery)) is not None:
                    return tapped
        return None

    def nudge(self) -> None:
        for _, subscription in self.subscriptions:
            subscription.nudge()

    @property
    def busy(self) -> bool:
        return any(subscription.busy for _, subscription in self.subscriptions)

    def _tapped(self, source: Source, subscription: Subscription, delivery: Delivery) -> Tapped | None:
        """Returns the message decoded, or settles it where the queue does not take it."""
        try:
            message = decode(delivery.body, redelivered=delivery.attempt > 1)
        except NotKombu as error:
            _log.error(
                "message %s of queue %s was not sent by Kombu and is now a dead letter: %s",
                shown(delivery.id),
                shown(self.queue),
                shown(str(error)),
            )
            explain(delivery, f"not sent by Kombu: {error}")
            subscription.settle(delivery, DeliveryOutcome.DEAD)
            return None
        key = message["properties"]["delivery_info"].get("routing_key") or ""
        # Acknowledged, not released: it would come back, and no consumer of this queue takes it.
        if not source.takes(key) or self._expired(message, delivery):
            subscription.settle(delivery, DeliveryOutcome.ACK)
            return None
        return Tapped(subscription, delivery, message)

    def _expired(self, message: KombuMessage, delivery: Delivery) -> bool:
        """Returns whether the ``expiration`` that the sender set is over. It begins when the message reaches the queue:
        a delay does not count."""
        lifetime_ms = message["properties"].get("expiration")
        if lifetime_ms is None:
            return False
        since = delivery.due_at or delivery.produced_at
        # In integers: a lifetime may be longer than a float can hold.
        return self._clock.now_ms() - int(since.timestamp() * 1_000) > int(lifetime_ms)
