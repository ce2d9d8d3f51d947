"""Sends messages from the tasks of an event loop. Tasks that send at the same time share requests."""

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from hourwheel.client.aio.api import AsyncApi
from hourwheel.client.aio.shared_sends import AsyncSharedSends, AwaitedBatch
from hourwheel.client.due import Delay, Moment
from hourwheel.client.errors import Closed, DeliveryTimeout, NotSent
from hourwheel.client.producing.outgoing import NO_ROOM, RequestContext, out_of_time
from hourwheel.client.producing.producer_base import ProducerBase
from hourwheel.client.producing.sizes import batch_bytes
from hourwheel.client.records.messages import AddressedMessage, Message, SendResult, as_messages
from hourwheel.client.transport.backoff import Outage
from hourwheel.model.fields import Precision


class AsyncProducer(ProducerBase[AsyncApi]):
    """Sends messages from the tasks of one event loop.

    Tasks that send at the same time share requests of at most ``batch_messages`` (up to 1,000) and ``batch_bytes``,
    without a linger. The messages of a subject keep the order of the calls: one request of them is under way at a time.
    The batch of a call is stored whole or not at all; if it fails, the other batches of its request do not.

    A request is retried unchanged, under one idempotency key, until the server accepts or refuses it. A message that is
    not accepted within ``delivery_timeout_seconds`` fails with ``DeliveryTimeout``. While ``max_pending_messages``
    messages or ``max_pending_bytes`` bytes are not accepted yet, further calls wait for room.

    A cancelled call takes its messages back if no request holds them yet. Otherwise they are sent, as are the messages
    of other tasks in that request: a note of the ``CancelledError`` says whether they are stored or may be, and the log
    tells once they are.

    The end of the ``async with`` block sends the remaining messages, for at most ``close_timeout_seconds``, and raises
    ``NotSent`` with the messages that were not accepted; their calls raise ``Closed``. If the block raised another
    error, that error passes, with the number of these messages as a note.

    A send creates a subject that is missing, with the defaults, where the server allows that. With ``create=False`` it
    fails with ``NotFound`` instead.

    ``token``, ``ca_file``, ``sign`` and ``region`` are those of ``Api``.

    Raises:
        ValueError: the URL is no HTTP URL, ``token``, ``sign`` and ``region`` contradict each other, or a number is out
            of its range.
        TypeError: an option that is a number has another type.
        ClientError: requests are to be signed, and botocore is not installed.

    Example:
        >>> async def main():
        ...     async with AsyncProducer("http://127.0.0.1:7420", subject="orders") as producer:
        ...         result = await producer.send("paid", key="customer-42")
        ...         return result.offset
        >>> asyncio.run(main())
        1
    """

    _connects = AsyncApi

    def _begin(self) -> None:
        self._api = self._connect()
        self._outage = Outage()
        context = RequestContext(self._api.calls, self._ids, asyncio.sleep, self._outage, self._create)
        self._sends = AsyncSharedSends(context, most_messages=self._batch_messages, most_bytes=self._batch_bytes)
        self._messages = 0
        self._bytes = 0
        self._room: deque[asyncio.Future[None]] = deque()  # calls that wait for room, in order
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except NotSent as unsent:
            if error is None:
                raise
            error.add_note(str(unsent))

    async def send(
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
    ) -> SendResult:
        """Sends a message, and returns its result once the message is durable. ``Message`` describes the arguments and
        their limits.

        To send several messages at once, call it from several tasks (of a ``TaskGroup``), or call ``send_batch``.

        Raises:
            AnswerError: the server refused the message; it was not stored.
            DeliveryTimeout: the message was not accepted within ``delivery_timeout_seconds``, or refused after a try
                without an answer; it may be stored or not.
            Closed: the producer was closed.
            ValueError: no subject is named, or ``delay``, ``deliver_at`` or ``precision`` is not valid.
            TypeError: the body is of another type, or contains a value that JSON has no form for.

        Example:
            >>> async def main():
            ...     async with AsyncProducer("http://127.0.0.1:7420", subject="orders") as producer:
            ...         async with asyncio.TaskGroup() as tasks:
            ...             sent = [tasks.create_task(producer.send(body)) for body in ("one", "two")]
            ...     return [task.result().offset for task in sent]
            >>> asyncio.run(main())
            [1, 2]
        """
        message = Message(body, key, tags, headers, message_id, delay, deliver_at, queue, precision)
        return (await self._send([message], subject))[0]

    async def send_batch(
        self, messages: Iterable[Message | str | bytes | Any], *, subject: str | None = None
    ) -> list[SendResult]:
        """Sends a batch of up to 1,000 messages, and returns their results once all of them are durable.

        The batch is stored whole or not at all.

        Raises:
            AnswerError: the server refused the batch; nothing was stored.
            DeliveryTimeout: the batch was not accepted within ``delivery_timeout_seconds``, or refused after a try
                without an answer; it may be stored or not.
            Closed: the producer was closed.
            ValueError: no subject is named.
            TypeError: ``messages`` is a single body, or a body is of another type or contains a value that JSON has no
                form for.

        Example:
            >>> async def main():
            ...     async with AsyncProducer("http://127.0.0.1:7420", subject="orders") as producer:
            ...         return [each.offset for each in await producer.send_batch(["one", Message("two")])]
            >>> asyncio.run(main())
            [1, 2]
        """
        batch = as_messages(messages)
        return await self._send(batch, subject)

    async def flush(self, timeout_seconds: float | None = None) -> bool:
        """Waits until each message that was sent before is accepted or has failed, and returns True; returns False if
        that takes longer than ``timeout_seconds``.

        Raises nothing.

        Example:
            >>> async def main():
            ...     async with AsyncProducer("http://127.0.0.1:7420", subject="orders") as producer:
            ...         return await producer.flush(timeout_seconds=30)
            >>> asyncio.run(main())
            True
        """
        futures = [batch.future for batch in self._sends.outstanding()]
        if not futures:
            return True
        _, rest = await asyncio.wait(futures, timeout=timeout_seconds)
        return not rest

    async def close(self, timeout_seconds: float | None = None) -> None:
        """Refuses new messages, and goes on sending the earlier ones for at most ``timeout_seconds`` (default:
        ``close_timeout_seconds``). Messages that are not accepted by then fail with ``Closed``. A second call has no
        effect.

        Raises:
            NotSent: messages were not accepted; the error holds them.

        Example:
            >>> async def main():
            ...     producer = AsyncProducer("http://127.0.0.1:7420", subject="orders")
            ...     result = await producer.send("paid")
            ...     await producer.close(timeout_seconds=30)
            >>> asyncio.run(main())
        """
        if self._closed:
            return
        self._closed = True
        self._wake_all()
        outstanding = self._sends.outstanding()
        try:
            await self.flush(self._close_seconds if timeout_seconds is None else timeout_seconds)
        finally:
            error = out_of_time(self._outage)
            for batch in outstanding:
                batch.fail(error)
            await self._sends.abandon()
            await self._api.close()
        unsent = list(_unsent(outstanding))
        if unsent:
            raise NotSent([message for message, _ in unsent], unsent[0][1]) from unsent[0][1]

    async def _send(self, messages: Sequence[Message], subject: str | None) -> list[SendResult]:
        chosen = self._subject_of(subject)
        size_bytes = batch_bytes(messages, else_bytes=self._batch_bytes)
        give_up_at = time.monotonic() + self._timeout_seconds
        # Calls that wait for room already go first.
        if self._closed or self._room or not self._fits(len(messages), size_bytes):
            await self._wait_for_room(len(messages), size_bytes, give_up_at)
        self._messages += len(messages)
        self._bytes += size_bytes
        try:
            return list(await self._sends.send(AwaitedBatch(chosen, messages, size_bytes, give_up_at)))
        finally:
            self._messages -= len(messages)
            self._bytes -= size_bytes
            if self._room:
                self._wake_next()

    def _fits(self, messages: int, size_bytes: int) -> bool:
        """Returns whether there is room for the batch. Without other messages a batch of any size has room."""
        if not self._messages:
            return True
        fits = self._messages + messages <= self._max_pending_messages
        return fits and self._bytes + size_bytes <= self._max_pending_bytes

    async def _wait_for_room(self, messages: int, size_bytes: int, give_up_at: float) -> None:
        """Waits until the batch fits, behind the calls that waited before. Raises ``DeliveryTimeout`` or ``Closed``."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._room.append(turn)
        try:
            async with asyncio.timeout(give_up_at - time.monotonic()):
                while not self._closed and not (self._room[0] is turn and self._fits(messages, size_bytes)):
                    await turn
                    self._room[self._room.index(turn)] = turn = asyncio.get_running_loop().create_future()
        except TimeoutError:
            raise DeliveryTimeout(NO_ROOM) from None
        finally:
            self._room.remove(turn)
            self._wake_next()  # there may be room for the next call too
        if self._closed:
            raise Closed("the producer was closed")

    def _wake_next(self) -> None:
        if self._room and not self._room[0].done():
            self._room[0].set_result(None)

    def _wake_all(self) -> None:
        for turn in self._room:
            if not turn.done():
                turn.set_result(None)


def _unsent(batches: Sequence[AwaitedBatch]) -> Iterable[tuple[AddressedMessage, BaseException]]:
    """Yields the messages that were not accepted, each with its error. Leaves out those of cancelled calls, for which
    nobody waits."""
    for batch in batches:
        if not batch.future.done() or batch.future.cancelled():
            continue
        error = batch.future.exception()
        if error is not None:
            for message in batch.messages:
                yield AddressedMessage(**msgspec.structs.asdict(message), subject=batch.subject), error
