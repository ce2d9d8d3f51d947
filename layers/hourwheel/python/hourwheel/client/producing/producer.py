"""Sends messages: one by one, which the producer collects into batches in the background, or a batch at a time."""

import atexit
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from hourwheel.client.api import DEFAULT_URL, Api
from hourwheel.client.due import Delay, Moment
from hourwheel.client.errors import Closed, DeliveryTimeout, NotSent
from hourwheel.client.in_process import server_at
from hourwheel.client.options import check_options
from hourwheel.client.producing.accumulator import Accumulator, InFlightBatch, Pending
from hourwheel.client.producing.delivery import begin, give_up, give_up_rest
from hourwheel.client.producing.futures import SendFuture
from hourwheel.client.producing.outgoing import NO_ROOM, OutgoingRequest, RequestContext, out_of_time
from hourwheel.client.producing.producer_base import ProducerBase
from hourwheel.client.producing.shared_sends import SharedSends
from hourwheel.client.producing.sizes import batch_bytes, message_bytes
from hourwheel.client.records.messages import Message, SendResult, as_messages
from hourwheel.client.transport.backoff import Outage
from hourwheel.client.transport.signing import Sign
from hourwheel.locks import Condition, Event, give_back, gives_back
from hourwheel.model.fields import Precision
from hourwheel.ports.machine import Ids
from hourwheel.wire.words import shown

_MOST_SENDERS = 8  # a sender is a thread with one batch under way, so this many subjects are sent to at a time
_AT_EXIT_SECONDS = 10.0  # for all producers together: a program that ends must not hang for a server
_CUT_SECONDS = 0.5  # a thread that resolves a name or connects cannot be stopped, so ``close`` leaves it behind


class Producer(ProducerBase[Api]):
    """Sends messages, batched in the background or a batch at a time. Thread-safe.

    Keeps the order of the messages of ``send`` in each subject: one request of them is under way at a time. A request
    has at most ``batch_messages`` (up to 1,000) and ``batch_bytes``. Messages wait ``linger_seconds`` for others to
    share their request, but no longer once a thread waits for the result of one of them.

    Threads that call ``send_batch`` at the same time share requests of at most this size, without a linger. The
    messages of a thread keep their order; the batch of a thread is stored whole or not at all, and if it fails, the
    other batches of its request do not.

    A request is retried unchanged, under one idempotency key, until the server accepts or refuses it. A message that is
    not accepted within ``delivery_timeout_seconds`` fails with ``DeliveryTimeout``; the other messages of its request,
    and later ones, are sent nevertheless. The producer holds at most ``max_pending_messages`` messages and
    ``max_pending_bytes`` bytes; while it is full, ``send`` waits. After a fork the child has an empty producer, and the
    parent keeps its messages.

    The end of the ``with`` block sends the remaining messages, for at most ``close_timeout_seconds``, and raises
    ``NotSent`` with the messages that were not accepted. If the block raised another error, that error passes, with the
    number of these messages as a note. A producer that the program does not close sends the remaining messages when the
    program ends, for at most 10 s, and logs the number of messages that it could not send.

    A send creates a subject that is missing, with the defaults, where the server allows that. With ``create=False`` it
    fails with ``NotFound`` instead.

    ``token``, ``ca_file``, ``sign`` and ``region`` are those of ``Api``.

    Raises:
        ValueError: the URL is no HTTP URL, ``token``, ``sign`` and ``region`` contradict each other, or a number is out
            of its range.
        TypeError: an option that is a number has another type.
        ClientError: requests are to be signed, and botocore is not installed.

    Example:
        >>> with Producer("http://127.0.0.1:7420", subject="orders") as producer:
        ...     future = producer.send("paid", key="customer-42")
        ...     print(future.result().offset)
        1
    """

    _connects = Api

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        subject: str | None = None,
        batch_messages: int = 500,
        batch_bytes: int = 1 << 20,
        linger_seconds: float = 0.005,
        delivery_timeout_seconds: float = 120.0,
        close_timeout_seconds: float = 10.0,
        max_pending_messages: int = 5_000,
        max_pending_bytes: int = 64 << 20,
        create: bool = True,
        ids: Ids | None = None,
    ) -> None:
        check_options(linger_seconds=linger_seconds)
        self._linger_seconds = linger_seconds
        self._inline = server_at(url) is not None
        """Whether ``send`` waits for the result, so that tests see the same order in each run."""
        super().__init__(
            url,
            token=token,
            ca_file=ca_file,
            sign=sign,
            region=region,
            subject=subject,
            batch_messages=batch_messages,
            batch_bytes=batch_bytes,
            delivery_timeout_seconds=delivery_timeout_seconds,
            close_timeout_seconds=close_timeout_seconds,
            max_pending_messages=max_pending_messages,
            max_pending_bytes=max_pending_bytes,
            create=create,
            ids=ids,
        )
        _producers.add(self)

    def _begin(self) -> None:
        self._api = self._connect()
        self._closing = Event()
        self._context = RequestContext(self._api, self._ids, self._closing.wait, Outage(), self._create)
        self._shared_sends = SharedSends(
            self._context, most_messages=self._batch_messages, most_bytes=self._batch_bytes
        )
        self._accumulator = Accumulator(
            batch_messages=self._batch_messages, batch_bytes=self._batch_bytes, linger_seconds=self._linger_seconds
        )
        self._lock = threading.RLock()
        self._due = Condition(self._lock)  # senders wait here
        self._completion = Condition(self._lock)  # ``flush`` waits here, and ``send`` while there is no room
        self._senders: list[threading.Thread] = []
        self._idle_senders = 0
        self._closed = False
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except NotSent as unsent:
            if error is None:
                raise
            error.add_note(str(unsent))

    def send(
        self,
        body: str | bytes | Any,
        *,
        subject: str | None = None,
        key: str | None = None,
        tags: list[str] | None = None,
        headers: dict[str, str] | None = None,
        message_id: str | None = None,
        delay: Delay | None = None,
        deliver_at: Moment | None = None,
        queue: int | None = None,
        precision: Precision | None = None,
        on_done: Callable[[Future[SendResult]], None] | None = None,
    ) -> Future[SendResult]:
        """Sends a message in the background, and returns a future of its result at once. ``Message`` describes the
        arguments and their limits.

        A ``delay`` begins when the server accepts the message: about ``linger_seconds`` after ``send``, or after an
        outage when the server is back. ``deliver_at`` is a fixed time; a message whose time is past is delivered at
        once. With the ``precision`` "minute" the message may come up to a minute late, and costs less on AWS. The
        result of a delayed message has its ``scheduled_id``.

        Calls ``on_done`` with the future on a thread of the producer, so ``on_done`` must not block. The future fails
        with ``DeliveryTimeout``, ``Closed``, or the ``AnswerError`` with which the server refused this message.

        Raises:
            ValueError: no subject is named, or ``delay``, ``deliver_at`` or ``precision`` is not valid.
            TypeError: the body is of another type, or contains a value that JSON has no form for.
            DeliveryTimeout: the producer had no room for the message for ``delivery_timeout_seconds``.
            Closed: the producer was closed.

        Example:
            >>> with Producer("http://127.0.0.1:7420", subject="orders") as producer:
            ...     future = producer.send("your trial ends", delay="30d")
            >>> future.result().scheduled > datetime.now(UTC)
            True
        """
        message = Message(body, key, tags, headers, message_id, delay, deliver_at, queue, precision)
        chosen = self._subject_of(subject)
        future = SendFuture(functools.partial(self._hurry, chosen), on_done)
        now = time.monotonic()
        try:
            size_bytes = message_bytes(message)
        except (TypeError, AttributeError):
            size_bytes = self._batch_bytes  # a field has a wrong type: sent, as the server's refusal names the field
        pending = Pending(message, size_bytes, future, now, now + self._timeout_seconds)
        try:
            with self._lock:
                if self._closed or not self._room_for(pending):
                    self._wait_for_room(pending)
                if self._accumulator.add(chosen, pending):
                    self._wake_sender()
        except BaseException:
            give_back(self._lock)  # a decorated method would take 5 % of the CPU of a call
            raise
        if self._inline and threading.current_thread() not in self._senders:  # a sender would wait for itself
            self.flush()
        return future

    def send_batch(
        self, messages: Iterable[Message | str | bytes | Any], *, subject: str | None = None
    ) -> list[SendResult]:
        """Sends a batch of up to 1,000 messages and waits until all of them are durable.

        The batch is stored whole or not at all. Batches of other threads that wait may share its request. The batch may
        overtake messages of ``send`` that are not accepted yet.

        Returns:
            The result of each message, in order.

        Raises:
            AnswerError: the server refused the batch; nothing was stored.
            DeliveryTimeout: the batch was not accepted within ``delivery_timeout_seconds``, or refused after a try
                without an answer; it may be stored or not.
            Closed: the producer was closed.
            ValueError: no subject is named.
            TypeError: ``messages`` is a single body, or a body is of another type or contains a value that JSON has no
                form for.

        Example:
            >>> with Producer("http://127.0.0.1:7420", subject="orders") as producer:
            ...     results = producer.send_batch(["one", Message("two", tags=["eu"])])
            >>> [each.offset for each in results]
            [1, 2]
        """
        batch = as_messages(messages)
        if self._closed:
            raise Closed("the producer was closed")
        size_bytes = self._batch_bytes  # a full batch shares its request with no other: its size does not matter
        if len(batch) < self._batch_messages:
            size_bytes = batch_bytes(batch, else_bytes=size_bytes)
        return self._shared_sends.send(self._subject_of(subject), batch, size_bytes, self._timeout_seconds)

    @gives_back
    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Sends the pending messages, waits until each is accepted or has failed, and returns True; returns False if
        that takes longer than ``timeout_seconds``.

        Raises:
            RuntimeError: ``on_done`` made the call, which would wait for its own thread.

        Example:
            >>> with Producer("http://127.0.0.1:7420", subject="orders") as producer:
            ...     future = producer.send("paid")
            ...     producer.flush(timeout_seconds=30), future.done()
            (True, True)
        """
        self._refuse_sender()
        with self._lock:
            counts = self._accumulator.flush()
            for _ in counts:
                self._wake_sender()
            return self._completion.wait_for(
                lambda: all(buffer.completed >= count for buffer, count in counts.items()), timeout_seconds
            )

    @gives_back
    def close(self, timeout_seconds: float | None = None) -> None:
        """Refuses new messages, and goes on sending the earlier ones for at most ``timeout_seconds`` (default:
        ``close_timeout_seconds``). Messages that are not accepted by then fail with ``Closed``. A second call has no
        effect.

        Raises:
            NotSent: messages were not accepted; the error holds them.
            RuntimeError: ``on_done`` made the call, which would wait for its own thread.

        Example:
            >>> producer = Producer("http://127.0.0.1:7420", subject="orders")
            >>> future = producer.send("paid")
            >>> producer.close(timeout_seconds=30)
            >>> future.result().offset
            1
        """
        self._refuse_sender()
        with self._lock:
            if self._ended:
                return
            self._closed = True
            self._completion.notify_all()
            outstanding = self._accumulator.outstanding()
        self.flush(self._close_seconds if timeout_seconds is None else timeout_seconds)
        error = out_of_time(self._context.outage)
        try:
            self._end(error)
        except BaseException:  # an interrupt: no sender goes on, and other threads may wait for the results
            self._end(error)
            give_up_rest(outstanding, error)
            raise
        _producers.discard(self)
        unsent = give_up_rest(outstanding, error)
        if unsent:
            raise NotSent([message for message, _ in unsent], unsent[0][1]) from unsent[0][1]

    @gives_back
    def _end(self, error: Closed) -> None:
        """Ends the senders, and fails the futures of messages that are not under way. A second call does what the first
        left."""
        with self._lock:
            self._ended = True
            waiting = list(self._accumulator.abandon())
            self._due.notify_all()
        self._closing.set()
        self._api.close()
        give_up(waiting, error)
        stop_at = time.monotonic() + _CUT_SECONDS
        for sender in self._senders:
            if sender.is_alive():  # an interrupt may have cut its start off
                sender.join(max(0.0, stop_at - time.monotonic()))

    def _refuse_sender(self) -> None:
        if threading.current_thread() in self._senders:
            raise RuntimeError(
                "flush and close cannot be called from on_done, as they would wait for its thread: use another thread"
            )

    def _wait_for_room(self, pending: Pending) -> None:
        """Waits until there is room for the message. Raises ``DeliveryTimeout``, or ``Closed``.

        A message that ``on_done`` sends does not wait: ``on_done`` runs on a sender thread, which makes the room.
        """
        if not self._room_for(pending) and threading.current_thread() not in self._senders:
            left_seconds = pending.give_up_at - time.monotonic()
            if not self._completion.wait_for(lambda: self._room_for(pending), left_seconds):
                raise DeliveryTimeout(NO_ROOM)
        if self._closed:
            raise Closed("the producer was closed")

    def _room_for(self, pending: Pending) -> bool:
        """Returns whether there is room for the message, or the producer is closed. Without other messages there is
        always room."""
        accumulator = self._accumulator
        fits = accumulator.size_bytes + pending.size_bytes <= self._max_pending_bytes or not accumulator.messages
        return self._closed or (fits and accumulator.messages < self._max_pending_messages)

    @gives_back
    def _hurry(self, subject: str) -> None:
        """Ends the linger of the messages of a subject: somebody waits for one of them."""
        with self._lock:
            if self._accumulator.hurry(subject):
                self._wake_sender()

    def _wake_sender(self) -> None:
        """Wakes a sender. Starts another one if all are busy, unless the producer is closed: a program that ends cannot
        start threads."""
        if self._idle_senders == 0 and len(self._senders) < _MOST_SENDERS and not self._closed:
            sender = threading.Thread(target=self._run_sender, name="hourwheel-sender", daemon=True)
            try:
                self._senders.append(sender)
                sender.start()
            except BaseException:
                if sender.ident is None:  # the system has no thread left, or an interrupt came first
                    self._senders.remove(sender)
                raise
        self._due.notify()

    @gives_back
    def _run_sender(self) -> None:
        while (batch := self._next_batch()) is not None:
            OutgoingRequest(self._context, batch.buffer.subject, begin(batch.batch)).run()
            with self._lock:
                self._accumulator.completed(batch)
                self._completion.notify_all()

    @gives_back
    def _next_batch(self) -> InFlightBatch | None:
        with self._lock:
            while True:
                now = time.monotonic()
                batch = self._accumulator.take(now)
                due_at = self._accumulator.next_due()
                if batch is not None and (due_at is not None or self._accumulator.ready):
                    self._wake_sender()  # another sender takes care of the other subjects meanwhile
                if batch is not None or self._ended:
                    return batch
                self._idle_senders += 1
                self._due.wait(None if due_at is None else max(0.0, due_at - now))
                self._idle_senders -= 1


_logger = logging.getLogger("hourwheel.client")
_producers: "weakref.WeakSet[Producer]" = weakref.WeakSet()


def open_producers(url: str) -> list[Producer]:
    """Returns the producers of this process for this URL that are not closed."""
    return [producer for producer in list(_producers) if producer._url == url and not producer._closed]


def _close_all() -> None:
    give_up_at = time.monotonic() + _AT_EXIT_SECONDS
    for producer in list(_producers):
        try:
            producer.close(max(0.0, give_up_at - time.monotonic()))
        except NotSent as unsent:
            _logger.error("%s", shown(str(unsent)))


def _begin_anew() -> None:
    """Empties the producers of a forked child, whose threads, locks and connections are those of the parent."""
    for producer in list(_producers):
        producer._begin()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
