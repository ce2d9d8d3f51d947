"""Implements a channel of Kombu: declares queues, publishes, consumes and settles messages."""

import functools
import itertools
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from amqp.protocol import queue_declare_ok_t
from kombu.entity import TRANSIENT_DELIVERY_MODE
from kombu.exceptions import ChannelError
from kombu.exceptions import OperationalError as KombuOperationalError
from kombu.transport import virtual

from hourwheel.apps.celery.handlers import TaskHandler
from hourwheel.apps.celery.shared_room import SharedRoom, SharingSubscription
from hourwheel.apps.celery.state import QueueKind, Source
from hourwheel.apps.celery.tap import Tap, Tapped
from hourwheel.apps.celery.task_fields import NotTask, check_task
from hourwheel.apps.celery.topology import SendTarget
from hourwheel.apps.celery.unsettled import Unsettled
from hourwheel.apps.celery.wire import KombuMessage, encode
from hourwheel.client.consuming.delivery import DeliveryOutcome, explain
from hourwheel.client.consuming.handling import default_consumer_id, error_text
from hourwheel.client.consuming.subscription import Subscription
from hourwheel.client.errors import AnswerError, Closed, DeliveryTimeout, NotFound
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.records.messages import Message, SendResult
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.celery")


class Channel(virtual.Channel):
    """Implements ``virtual.Channel`` by subjects and groups of a server. ``link`` is the transport."""

    QoS = Unsettled
    supports_fanout = True
    do_restore = False  # ``close`` gives unsettled messages back
    body_encoding = None  # text stays as it is; ``_augment`` encodes other bodies

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.link = connection
        self.closed: bool = False
        self._taps: dict[str, Tap] = {}
        self._retired: list[Tap] = []  # of cancelled consumers: their messages may still be settled
        self._getters: dict[str, Tap] = {}  # of ``basic_get``, by queue
        self._tags = itertools.count(1)
        self._shared_room = SharedRoom(self.nudge)

    # Declaring

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> Any:
        queue = queue or f"amq.gen-{self.link.ids.token().hex()}"
        if passive:
            if not self.link.topology.exists(queue):
                raise ChannelError(
                    f"NOT_FOUND - no queue {queue!r} on this server", (50, 10), "Channel.queue_declare", "404"
                )
            return queue_declare_ok_t(queue, self._size(queue), 0)
        durable = kwargs.get("durable", True) and not kwargs.get("auto_delete") and not kwargs.get("exclusive")
        self.state.queues[queue] = QueueKind(durable=bool(durable))
        if durable:
            self.link.topology.ensure_queue(queue)
        return queue_declare_ok_t(queue, 0, 0)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        if if_empty and self._size(queue):
            return
        self._drop_getter(queue)
        self.link.topology.delete(queue)
        self.state.queue_bindings_delete(queue)
        self.state.queues.pop(queue, None)
        for exchange in self.state.exchanges.values():
            exchange["table"] = [bound for bound in exchange["table"] if bound[2] != queue]

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Deletes an exchange, its bindings, and the messages that it holds for queues. The queues stay."""
        if exchange in self.state.exchanges:
            if self.state.is_shared(exchange):
                self.link.topology.delete_exchange(exchange)
            for binding in [binding for binding in self.state.bindings if binding.exchange == exchange]:
                self.state.binding_delete(*binding)
            del self.state.exchanges[exchange]

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.state.is_shared(exchange):
            self.link.topology.ensure_binding(queue, exchange)

    def _size(self, queue: str) -> int:
        return int(self.link.topology.size(queue))

    def _purge(self, queue: str) -> int:
        return int(self.link.topology.purge(queue))

    # Publishing

    def basic_publish(self, message: KombuMessage, exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Sends a message. Returns once it is durable, unless it is transient or ``confirm_publish`` is off.

        Raises ``ChannelError`` for an exchange that neither this program nor the server knows, ``OperationalError``
        where the server does not answer. Raises ``AnswerError`` where it refuses the message, and ``ValueError`` for a
        delay that is not valid. A message for an exchange without a queue is dropped with a warning.
        """
        self._augment(message, exchange, routing_key)
        for target in self._targets(exchange, routing_key, message):
            self._send(target, message)

    def _augment(self, message: KombuMessage, exchange: str, routing_key: str) -> None:
        """Adds the properties that a message of Kombu carries. Encodes a body that is not text as base64."""
        body, encoding = message["body"], None
        if isinstance(body, bytes):
            try:
                body = body.decode()
            except UnicodeDecodeError:
                encoding = "base64"
        message["body"], encoding = self.encode_body(body, encoding)
        properties = message["properties"]
        properties["body_encoding"] = encoding
        properties["delivery_info"].update(exchange=exchange, routing_key=routing_key)

    def _targets(self, exchange: str, routing_key: str, message: KombuMessage) -> list[SendTarget]:
        topology = self.link.topology
        level = self._level(message)
        if not exchange:
            return [topology.target_of(routing_key, level)]
        if exchange not in self.state.exchanges:
            if topology.has_exchange(exchange):  # Celery sends to a Broadcast queue without declaring it
                return [SendTarget(topology.exchange_subject(exchange))]
            raise ChannelError(
                f"NOT_FOUND - no exchange {exchange!r}: declare it in this program",
                (50, 10),
                "Channel.basic_publish",
                "404",
            )
        if self.state.is_shared(exchange):
            return [topology.exchange_target(exchange)]
        queues = sorted(self._lookup(exchange, routing_key))
        if not queues:
            _log.warning(
                "no queue is bound to exchange %r with the key %r: the message is dropped, as in AMQP. Declare the"
                " queue in the program that sends (task_queues)",
                exchange,
                routing_key,
            )
        return [topology.target_of(queue, level) for queue in queues]

    def _level(self, message: KombuMessage) -> int:
        priority = self._get_message_priority(message)
        return max((step for step in self.link.options.priority_steps if step <= priority), default=0)

    def _send(self, target: SendTarget, message: KombuMessage) -> None:
        options = self.link.options
        outgoing = encode(message)
        transient = message["properties"].get("delivery_mode") == TRANSIENT_DELIVERY_MODE
        try:
            if transient or not options.confirm_publish:
                self.link.producer.send(
                    outgoing.body,
                    subject=target.subject,
                    message_id=outgoing.id,
                    delay=outgoing.delay,
                    deliver_at=outgoing.deliver_at,
                    on_done=functools.partial(self._sent, target, outgoing),
                )
                return
            result = self._send_now(target, outgoing)
        except (DeliveryTimeout, Closed) as error:
            raise KombuOperationalError(str(error)) from error
        if result.scheduled_id is not None and options.on_scheduled is not None:
            options.on_scheduled(message.get("headers") or {}, result)

    def _send_now(self, target: SendTarget, outgoing: Message) -> SendResult:
        try:
            results: list[SendResult] = self.link.producer.send_batch([outgoing], subject=target.subject)
        except NotFound:
            return self._send_again(target, outgoing)
        return results[0]

    def _send_again(self, target: SendTarget, outgoing: Message) -> SendResult:
        """Declares again what was deleted, and sends a message that was refused for that. This send may create the
        subject: a program without the right to declare a queue has sent so far, too."""
        target.declare_again()
        key = self.link.ids.token().hex()
        results: list[SendResult] = self.link.api.produce(target.subject, [outgoing], idempotency_key=key)
        return results[0]

    def _sent(self, target: SendTarget, outgoing: Message, future: Future[SendResult]) -> None:
        """Sends a message again whose subject was deleted, and logs another failure of a message that nobody waits
        for. On a thread of the producer."""
        error = future.exception()
        try:
            if isinstance(error, NotFound):
                self._send_again(target, outgoing)
                error = None
        except AnswerError as failure:
            error = failure
        if error is not None:
            _log.warning("a message that nobody waited for was not sent: %s", shown(str(error)))

    # Consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], object], consumer_tag: str, **kwargs: Any
    ) -> None:
        self._reap()
        tap = self._tap(queue, callback, no_ack=no_ack)
        self._taps[consumer_tag] = tap
        self._consumers.add(consumer_tag)
        tap.start()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Ends the pulls of a consumer. Messages that it was handed may still be settled."""
        tap = self._taps.pop(consumer_tag, None)
        if tap is not None:
            self._consumers.discard(consumer_tag)
            for _, subscription in tap.subscriptions:
                subscription.halt()
            self._retired.append(tap)

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:
        for active in self._taps.values():
            if active.queue == queue and (tapped := active.take()) is not None:
                return self._message(tapped, no_ack=no_ack)
        tap = self._getters.get(queue)
        if tap is None:
            tap = self._getters[queue] = self._tap(queue, None, no_ack=no_ack)
            for _, subscription in tap.subscriptions:
                subscription.start_settling()
        try:
            tapped = tap.fetch()
        except NotFound:
            return None
        return None if tapped is None else self._message(tapped, no_ack=no_ack)

    def deliver(self, most: int) -> int:
        """Hands out at most ``most`` pulled messages, and returns their number."""
        count = 0
        for tag, tap in list(self._taps.items()):
            # A callback may cancel its consumer.
            while count < most and tag in self._taps and (tap.no_ack or self.qos.can_consume()):
                tapped = tap.take()
                if tapped is None:
                    break
                count += 1
                self._hand_out(tap, tapped)
            if count >= most:
                self._taps[tag] = self._taps.pop(tag)  # the next queue comes first the next time
                break
        return count

    def _hand_out(self, tap: Tap, tapped: Tapped) -> None:
        """Calls the consumer with a message. A message about which a worker of Celery raises an error becomes a dead
        letter: the error would end the worker, and each other one that takes the message. Errors of the connection or
        of the machine are raised, and those of a program that has callbacks of its own."""
        assert tap.callback is not None
        message = self._message(tapped, no_ack=tap.no_ack)
        handler = TaskHandler.of(tap.callback)
        if not handler.in_worker:
            tap.callback(message)
            return
        try:
            if handler.takes_tasks:
                message.accept = handler.accept
                check_task(message)
            tap.callback(message)
        except (*self.link.connection_errors, KombuOperationalError, OSError, MemoryError):
            raise
        except Exception as error:
            self._give_up(tap, tapped, error)

    def _give_up(self, tap: Tap, tapped: Tapped, error: Exception) -> None:
        _log.error(
            "message %r of queue %r is now a dead letter, because the worker cannot take it: %s",
            tapped.delivery.id,
            tap.queue,
            shown(error_text(error)),
            exc_info=None if isinstance(error, NotTask) else error,
        )
        explain(tapped.delivery, error_text(error))
        self.qos.reject(tapped.message["properties"]["delivery_tag"])

    def _message(self, tapped: Tapped, *, no_ack: bool) -> Any:
        tag = next(self._tags)
        tapped.message["properties"]["delivery_tag"] = tag
        if no_ack:
            tapped.subscription.settle(tapped.delivery, DeliveryOutcome.ACK)
        else:
            self.qos.hold(tag, tapped.subscription, tapped.delivery)
            tapped.subscription.nudge()
        return self.Message(tapped.message, channel=self)

    def _tap(self, queue: str, callback: Callable[[Any], object] | None, *, no_ack: bool) -> Tap:
        # Messages that need no acknowledgement, and those of ``basic_get``, take no room.
        shares = callback is not None and not no_ack
        subscriptions = [
            (source, self._subscribe(queue, source, shares=shares)) for source in self.link.topology.sources(queue)
        ]
        return Tap(queue, callback, subscriptions, self.link.clock, no_ack=no_ack)

    def _subscribe(self, queue: str, source: Source, *, shares: bool) -> Subscription:
        link, options = self.link, self.link.options
        consumer = link.topology.consumer_of(queue) if source.transient else default_consumer_id(link.ids)
        prefetch = PrefetchOptions(
            connect=link.connect,
            subject=source.subject,
            group=source.group,
            consumer_id=consumer,
            max_messages=BATCH_MESSAGES,
            wait_seconds=options.wait_seconds,
            lease_seconds=options.visibility_timeout,
            settle_linger_seconds=options.settle_linger_seconds,
            ids=link.ids,
        )
        how: dict[str, Any] = {
            "room": self.qos.room,
            "limit": self.qos.limit,
            "on_ready": link.bell.ring,
            "on_missing": functools.partial(link.topology.declare_again, queue),
        }
        if shares:
            return SharingSubscription(prefetch, queue=queue, shared=self._shared_room, **how)
        return Subscription(prefetch, **how)

    # Settling

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        self.qos.prefetch_count = prefetch_count
        self.nudge()
        self.link.bell.ring()

    def nudge(self) -> None:
        """Makes the pullers of all queues look again whether there is room. Any thread may call it."""
        for tap in list(self._taps.values()):
            tap.nudge()

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        if multiple:
            self.qos.ack_up_to(delivery_tag)
        else:
            self.qos.ack(delivery_tag)
        self.link.bell.ring()

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        self.qos.reject(delivery_tag, requeue=requeue)
        self.link.bell.ring()

    def basic_recover(self, requeue: bool = False) -> None:
        if not requeue:
            raise NotImplementedError("messages are recovered by requeueing them: basic_recover(requeue=True)")
        self.qos.restore_unacked()

    def close(self) -> None:
        """Gives back the messages that are not settled, and sends the settlements of the others."""
        if self.closed:
            return
        self.closed = True
        for tag in list(self._taps):
            self.basic_cancel(tag)
        held = self.qos.give_back()
        for tap in (*self._retired, *self._getters.values()):
            for _, subscription in tap.subscriptions:
                subscription.close(release=held.get(subscription, ()))
        self._retired.clear()
        self._getters.clear()
        if self.connection is not None:
            self.connection.close_channel(self)
        self.exchange_types = None

    def _reap(self) -> None:
        """Ends the threads of cancelled consumers whose messages are all settled."""
        for tap in [tap for tap in self._retired if not tap.busy]:
            self._retired.remove(tap)
            for _, subscription in tap.subscriptions:
                subscription.close()

    def _drop_getter(self, queue: str) -> None:
        tap = self._getters.pop(queue, None)
        if tap is not None:
            for _, subscription in tap.subscriptions:
                subscription.close()
