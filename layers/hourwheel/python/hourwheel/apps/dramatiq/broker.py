"""Sends the messages of Dramatiq's actors, and counts the messages that are not done."""

import functools
import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from dramatiq.broker import Broker
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout
from dramatiq.message import Message as DramatiqMessage
from dramatiq.middleware import Middleware

from hourwheel.apps.dramatiq.consumer import QueueConsumer
from hourwheel.client.api import DEFAULT_URL, Api
from hourwheel.client.consuming.handling import default_consumer_id
from hourwheel.client.ensure import ensure_group, ensure_subject
from hourwheel.client.errors import Closed, DeliveryTimeout, NotFound, ServerUnavailable, Unauthorized
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.producing.producer import Producer
from hourwheel.client.records.messages import Message, SendResult
from hourwheel.client.transport.signing import Sign
from hourwheel.locks import Event
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.system import SystemIds

_log = logging.getLogger("hourwheel.dramatiq")

_HOURS = 744  # the longest span for which the server counts delayed messages: 31 days
_NO_RATES: Mapping[str, float] = {}


class HourwheelBroker(Broker):
    """Lets Dramatiq send and consume messages by a server. A queue is the group ``group`` of the subject with its name,
    after ``namespace``; a rejected message is a dead letter.

    ``send_with_options(delay=…)`` and retries are delayed in the queue, up to two years, and no worker holds them. The
    worker extends the leases (of ``lease_seconds``) of the messages that it holds. ``rates`` limits the messages per
    second that all workers of a queue get together. ``last_result`` is the result of the thread's last message; its
    ``scheduled_id`` cancels a delayed message. The group's ``max_attempts`` counts lost workers only: Dramatiq retries
    by sending the message again. A dead letter has the type and the first line of the actor's error in its ``detail``,
    unless ``error_details`` is False.

    ``token``, ``ca_file``, ``sign`` and ``region`` are those of ``Api``.

    Raises:
        ValueError: the URL is no HTTP URL, or ``token``, ``sign`` and ``region`` contradict each other.

    Example:
        >>> import dramatiq
        >>> broker = HourwheelBroker("http://127.0.0.1:7420", rates={"mails": 50})
        >>> dramatiq.set_broker(broker)
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        middleware: list[Middleware] | None = None,
        namespace: str = "",
        group: str = "dramatiq",
        lease_seconds: int = 60,
        max_attempts: int = 100,
        retention_seconds: int = 604_800,
        rates: Mapping[str, float] = _NO_RATES,
        send_timeout_seconds: float = 30.0,
        error_details: bool = True,
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self._namespace = namespace
        self._group = group
        self._lease_seconds = lease_seconds
        self._max_attempts = max_attempts
        self._retention_seconds = retention_seconds
        self._rates = dict(rates)
        self._error_details = error_details
        self._ids = SystemIds()
        access: dict[str, Any] = {"token": token, "ca_file": ca_file, "sign": sign, "region": region}
        self._connect = functools.partial(Api, url, **access, ids=self._ids)
        self._api = self._connect()
        self._producer = Producer(url, **access, delivery_timeout_seconds=send_timeout_seconds, create=False)
        self._ensured: set[str] = set()
        self._local = threading.local()

    @property
    def last_result(self) -> SendResult | None:
        """The result of the message that the calling thread sent last."""
        return getattr(self._local, "result", None)

    def close(self) -> None:
        """Closes the connections.

        Raises:
            NotSent: messages of other threads were not accepted in time.

        Example:
            >>> broker.close()
        """
        self._producer.close()
        self._api.close()

    def declare_queue(self, queue_name: str) -> None:
        """Registers a queue. Makes no request: actors are declared when their modules are imported.

        Raises nothing.

        Example:
            >>> broker.declare_queue("mails")
        """
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        """Returns the names of the queues that were declared.

        Raises nothing.

        Example:
            >>> broker.get_declared_queues()
            {'mails'}
        """
        return self.queues.copy()

    def enqueue(self, message: DramatiqMessage[Any], *, delay: int | None = None) -> DramatiqMessage[Any]:
        """Sends a message, and returns once it is durable. ``delay`` is in milliseconds, up to 732 days.

        Raises:
            ConnectionClosed: the server did not accept the message in time; it may be stored.
            AnswerError: the server refused the message; nothing was stored.

        Example:
            >>> broker.enqueue(remind.message("customer-42"), delay=30 * 86_400_000)
        """
        self.logger.debug("Enqueueing message %r on queue %r.", message.message_id, message.queue_name)
        self.emit_before("enqueue", message, delay)
        data = message.encode()
        try:
            body: str | bytes = data.decode()  # Dramatiq encodes as JSON by default: people can read it in the queue
        except UnicodeDecodeError:
            body = data
        message_id = message.message_id[:100]  # the longest id of a message
        outgoing = Message(body, id=message_id, delay=delay / 1_000 if delay else None)
        try:
            subject = self._ensure(message.queue_name)
            self._local.result = self._send(message.queue_name, subject, outgoing)
        except (DeliveryTimeout, ServerUnavailable, Closed) as error:
            raise ConnectionClosed(error) from error
        self.emit_after("enqueue", message, delay)
        return message

    def _send(self, queue_name: str, subject: str, outgoing: Message) -> SendResult:
        try:
            (result,) = self._producer.send_batch([outgoing], subject=subject)
        except NotFound:
            self._declare_again(queue_name)
            # May create the subject: a program without the right to declare a queue has sent so far, too.
            (result,) = self._api.produce(subject, [outgoing], idempotency_key=self._ids.token().hex())
        return result

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 5_000) -> QueueConsumer:
        """Returns an iterator over the messages of a queue. It waits ``timeout`` milliseconds for each, and returns
        None where none comes.

        Raises:
            ConnectionClosed: the server does not answer.

        Example:
            >>> message = next(broker.consume("mails", prefetch=4, timeout=1_000))
        """
        try:
            subject = self._ensure(queue_name)
        except ServerUnavailable as error:
            raise ConnectionClosed(error) from error
        options = PrefetchOptions(
            connect=self._connect,
            subject=subject,
            group=self._group,
            consumer_id=default_consumer_id(self._ids),
            max_messages=BATCH_MESSAGES,
            wait_seconds=20.0,
            lease_seconds=self._lease_seconds,
            settle_linger_seconds=0.25,
            ids=self._ids,
        )
        return QueueConsumer(
            options,
            queue_name=queue_name,
            prefetch=prefetch,
            timeout_seconds=timeout / 1_000,
            on_missing=functools.partial(self._declare_again, queue_name),
            error_details=self._error_details,
        )

    def flush(self, queue_name: str) -> None:
        """Drops all messages of a queue, also the delayed ones and the dead letters. For tests.

        Raises:
            AnswerError: the server does not answer, or refuses.

        Example:
            >>> broker.flush("mails")
        """
        subject = self._subject(queue_name)
        try:
            self._api.delete_subject(subject)
        except NotFound:
            return
        self._ensured.discard(queue_name)
        self._ensure(queue_name)

    def flush_all(self) -> None:
        """Drops all messages of the queues that were declared, as ``flush`` does. For tests.

        Raises:
            AnswerError: the server does not answer, or refuses.

        Example:
            >>> broker.flush_all()
        """
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Waits until every message of a queue is acknowledged or dead, also those delayed by up to 31 days. For tests.

        Raises:
            QueueJoinTimeout: after ``timeout`` milliseconds.

        Example:
            >>> broker.join("mails", timeout=10_000)
        """
        give_up_at = None if timeout is None else time.monotonic() + timeout / 1_000
        pause = Event()
        while not (self._is_done(queue_name) and self._is_done(queue_name)):  # a message may move between two counts
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise QueueJoinTimeout(queue_name)
            pause.wait(interval / 1_000)

    def _is_done(self, queue_name: str) -> bool:
        subject = self._subject(queue_name)
        try:
            if self._api.pending(subject, hours=_HOURS).messages:
                return False
            lag = self._api.lag(subject, self._group)
        except NotFound:
            return True
        return not (lag.waiting or lag.in_flight or lag.retrying or lag.backing_off)

    def _subject(self, queue_name: str) -> str:
        return self._namespace + queue_name

    def _declare_again(self, queue_name: str) -> None:
        """Creates the subject and the group of a queue that somebody has deleted, with its own settings."""
        _log.warning("queue %r is missing on the server: it is declared again", queue_name)
        self._ensured.discard(queue_name)
        self._ensure(queue_name)

    def _ensure(self, queue_name: str) -> str:
        """Creates the subject and the group of a queue where they are missing, and sets the rate of the group. Returns
        the subject."""
        subject = self._subject(queue_name)
        if queue_name not in self._ensured:
            ensure_subject(self._api, subject, retention_seconds=self._retention_seconds)
            ensure_group(self._api, subject, self._group, max_attempts=self._max_attempts)
            if queue_name in self._rates:
                with suppress(Unauthorized):  # a program that may only send leaves the rate to the workers
                    self._api.put_group(subject, self._group, messages_per_second=self._rates[queue_name])
            self._ensured.add(queue_name)
        return subject
