"""Hands the messages of a queue to a worker of Dramatiq."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from dramatiq.broker import Consumer, MessageProxy
from dramatiq.errors import DecodeError
from dramatiq.message import Message
from msgspec import Struct

from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome, explain
from hourwheel.client.consuming.handling import error_text
from hourwheel.client.consuming.subscription import Subscription
from hourwheel.client.options import PrefetchOptions
from hourwheel.locks import Event
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.dramatiq")


class _DramatiqFields(Struct):
    """The fields of a message that Dramatiq reads outside the actor."""

    queue_name: str
    actor_name: str
    args: list[Any]
    kwargs: dict[str, Any]
    options: dict[str, Any]
    message_id: str
    message_timestamp: int


class DeliveredMessage(MessageProxy):
    """Holds a message of Dramatiq together with the delivery that settles it."""

    def __init__(self, message: Message, delivery: Delivery) -> None:  # type: ignore[type-arg]  # its result is unknown
        super().__init__(message)
        self.delivery = delivery


class QueueConsumer(Consumer):
    """Iterates over the messages of a queue, and keeps at most ``prefetch`` of them unsettled.

    ``next`` returns None where no message comes within ``timeout_seconds``. Any thread may settle.
    """

    def __init__(
        self,
        options: PrefetchOptions[Any],
        *,
        queue_name: str,
        prefetch: int,
        timeout_seconds: float,
        on_missing: Callable[[], None],
        error_details: bool = True,
    ) -> None:
        self._queue_name = queue_name
        self._queue = options.subject
        self._error_details = error_details
        self._prefetch = prefetch
        self._timeout_seconds = timeout_seconds
        self._held: set[Delivery] = set()
        self._ready = Event()
        self._subscription = Subscription(
            options, room=self._room, limit=lambda: prefetch, on_ready=self._ready.set, on_missing=on_missing
        )
        self._subscription.start()

    def __next__(self) -> MessageProxy | None:
        message = self._next()
        if message is None:
            self._ready.wait(self._timeout_seconds)
            self._ready.clear()
            message = self._next()
        return message

    def ack(self, message: MessageProxy) -> None:
        self._settle(message, DeliveryOutcome.ACK)

    def nack(self, message: MessageProxy) -> None:
        """Makes the message a dead letter. Its ``detail`` is the error of the actor, if ``error_details`` is set."""
        if isinstance(message, DeliveredMessage) and message._exception is not None and self._error_details:
            explain(message.delivery, error_text(message._exception))
        self._settle(message, DeliveryOutcome.DEAD)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Gives messages back: another worker gets them at once."""
        for message in messages:
            self._settle(message, DeliveryOutcome.RELEASE)

    def close(self) -> None:
        """Gives back the messages that were not handed out, and sends all settlements.

        Messages that worker threads still handle come again when their leases end."""
        self._subscription.close()

    def _next(self) -> MessageProxy | None:
        while self._room() and (delivery := self._subscription.take()) is not None:
            body = delivery.body
            try:
                message = Message.decode(body.encode() if isinstance(body, str) else body)
                self._check(message)
            except (DecodeError, msgspec.ValidationError) as error:
                _log.error(
                    "message %r of queue %s was not sent by Dramatiq and is now a dead letter: %s",
                    delivery.id,
                    self._queue,
                    shown(str(error)),
                )
                explain(delivery, error_text(error))
                self._subscription.settle(delivery, DeliveryOutcome.DEAD)
                continue
            self._held.add(delivery)
            return DeliveredMessage(message, delivery)
        return None

    def _check(self, message: Message[Any]) -> None:
        """Raises ``ValidationError`` for fields that would end a thread of the worker: once the actor has ended,
        Dramatiq looks up the consumer of the message by its ``queue_name``."""
        fields = msgspec.convert(message.asdict(), _DramatiqFields)
        if fields.queue_name != self._queue_name:
            raise msgspec.ValidationError(f"queue_name is {fields.queue_name!r}, and not {self._queue_name!r}")

    def _room(self) -> int:
        return max(0, self._prefetch - len(self._held))

    def _settle(self, message: MessageProxy, outcome: DeliveryOutcome) -> None:
        """Settles a message that a consumer of this queue handed out. Ignores any other message."""
        if isinstance(message, DeliveredMessage):
            self._held.discard(message.delivery)
            self._subscription.settle(message.delivery, outcome)
            self._ready.set()  # there is room for another message
