"""Provides a queue in memory for the tests of applications, with a clock that the test moves."""

from datetime import datetime, timedelta
from itertools import count
from types import TracebackType
from typing import Any, Self

import msgspec

from hourwheel.apps.testing.clock import distance, moment
from hourwheel.apps.testing.handler_errors import HandlerErrors
from hourwheel.apps.testing.sent import Sent, described, fits, sent_of
from hourwheel.apps.testing.server import Accepted, MemoryServer, Steps
from hourwheel.apps.testing.steps import StepRunner, awaited
from hourwheel.client import (
    Api,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    DeadLetter,
    NotFound,
    Producer,
    ScheduledMessage,
)
from hourwheel.client.in_process import register, unregister
from hourwheel.client.producing.producer import open_producers
from hourwheel.system import SystemClock

_NUMBERS = count(1)
_WAITING = {"waiting", "moved"}  # a message is moved when its time of delivery is changed: it still waits


class Queue:
    """Serves a queue in memory with a clock that the test moves: no server, no socket, no waiting.

    ``Producer``, ``Consumer``, ``Api`` and their asynchronous forms work on it by its ``url``, as with any server, also
    those that the tested code makes. ``run`` and ``advance`` call the handlers on the caller's thread, ``run_async``
    and ``advance_async`` in the caller's event loop, one message after the other. A ``Consumer.run`` or a loop of the
    tested code ends when no message is left.

    ``now`` is the time at which the clock begins (default: the time of this machine). ``url`` is any URL, such as the
    one that the tested code has in its settings. The ``with`` block, or ``close``, frees the URL.

    Raises:
        ValueError: another queue has the URL, or ``now`` has no time zone.

    Example:
        >>> with Queue() as queue:
        ...     consumer = queue.consumer("trials", "mails")
        ...     @consumer.handler
        ...     def remind(message):
        ...         print(message.body)
        ...     future = queue.producer("trials").send("your trial ends", delay="30d")
        ...     queue.advance(days=29)
        ...     queue.advance(days=1)
        0
        your trial ends
        1
    """

    def __init__(self, *, now: datetime | None = None, url: str | None = None) -> None:
        if now is not None and now.tzinfo is None:
            raise ValueError("now needs a time zone: datetime(…, tzinfo=UTC)")
        now_ms = SystemClock().now_ms() if now is None else round(now.timestamp() * 1_000)
        self._url = url or f"http://queue-{next(_NUMBERS)}.test.invalid"
        self._server = MemoryServer(self._url, now_ms)
        self._runner = StepRunner()
        register(self._url, self._server)
        self._api = Api(self._url, ids=self._server.deployment.context.ids, clock=self._server.clock)
        self._errors = HandlerErrors()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the producers, and frees the URL.

        Raises:
            NotSent: the queue refused messages that nobody waited for.

        Example:
            >>> queue = Queue()
            >>> queue.close()
        """
        try:
            for producer in open_producers(self._url):
                producer.close()
        finally:
            self._runner.close()
            unregister(self._url)

    @property
    def url(self) -> str:
        """The URL for ``Producer``, ``Consumer`` and ``Api``, and for those of asyncio."""
        return self._url

    @property
    def api(self) -> Api:
        """Makes every call of the HTTP API: creates groups, pauses them, redrives dead letters, and so on."""
        return self._api

    @property
    def now(self) -> datetime:
        """The time of the queue, in UTC."""
        return moment(self._server.clock.ms)

    @property
    def errors(self) -> list[Exception]:
        """The errors that handlers raised in ``run`` and ``advance``, other than ``Retry`` and ``Reject``."""
        return list(self._errors.raised)

    def producer(self, subject: str | None = None, **options: Any) -> Producer:
        """Returns a ``Producer`` on this queue, with these options.

        Raises:
            TypeError: there is no such option.

        Example:
            >>> with Queue() as queue:
            ...     queue.producer("orders").send("paid").result().offset
            0
        """
        return Producer(self._url, subject=subject, **options)

    def consumer(self, subject: str, group: str, **options: Any) -> Consumer:
        """Returns a ``Consumer`` on this queue, with these options. Creates the group, which gets the messages that the
        subject keeps and all later ones.

        Raises:
            TypeError: there is no such option.

        Example:
            >>> with Queue() as queue:
            ...     consumer = queue.consumer("orders", "billing")
            ...     future = queue.producer("orders").send("paid")
            ...     with consumer as messages:
            ...         [message.body for message in messages]
            ['paid']
        """
        consumer = Consumer(self._url, subject, group, **options)
        self._api.put_group(subject, group)
        return consumer

    def async_producer(self, subject: str | None = None, **options: Any) -> AsyncProducer:
        """Returns an ``AsyncProducer`` on this queue, with these options.

        Raises:
            TypeError: there is no such option.

        Example:
            >>> with Queue() as queue:
            ...     asyncio.run(queue.async_producer("orders").send("paid")).offset
            0
        """
        return AsyncProducer(self._url, subject=subject, **options)

    def async_consumer(self, subject: str, group: str, **options: Any) -> AsyncConsumer:
        """Returns an ``AsyncConsumer`` on this queue, with these options. Creates the group, as ``consumer`` does.

        Raises:
            TypeError: there is no such option.

        Example:
            >>> with Queue() as queue:
            ...     consumer = queue.async_consumer("orders", "billing")
            ...     @consumer.handler
            ...     async def bill(message):
            ...         print(message.body)
            ...     future = queue.producer("orders").send("paid")
            ...     queue.run()
            paid
            1
        """
        consumer = AsyncConsumer(self._url, subject, group, **options)
        self._api.put_group(subject, group)
        return consumer

    def run(self, *, at_most: int = 10_000) -> int:
        """Runs the handlers until no message is left for any. Returns the number of messages that were handled, each
        attempt counted. A message that is retried after a while waits for ``advance``.

        Handlers of an ``AsyncConsumer`` run in an event loop of the queue: one for all calls, until ``close``.

        Raises:
            AssertionError: a handler raised this error; it fails the test.
            RuntimeError: there were more than ``at_most`` messages, or there is a handler of an ``AsyncConsumer`` and
                an event loop runs already.

        Example:
            >>> with Queue() as queue:
            ...     consumer = queue.consumer("orders", "billing")
            ...     @consumer.handler
            ...     def bill(message):
            ...         print(message.body)
            ...     future = queue.producer("orders").send("paid")
            ...     queue.run()
            paid
            1
        """
        return self._runner.run(self._handle(at_most))

    async def run_async(self, *, at_most: int = 10_000) -> int:
        """Runs the handlers as ``run`` does, in the event loop of the caller.

        Raises:
            AssertionError: a handler raised this error.
            RuntimeError: there were more than ``at_most`` messages.

        Example:
            >>> async def test(queue):
            ...     consumer = queue.async_consumer("orders", "billing")
            ...     @consumer.handler
            ...     async def bill(message):
            ...         print(message.body)
            ...     result = await queue.async_producer("orders").send("paid")
            ...     return await queue.run_async()
            >>> with Queue() as queue:
            ...     asyncio.run(test(queue))
            paid
            1
        """
        return await awaited(self._handle(at_most))

    def advance(self, delta: timedelta | None = None, **duration: float) -> int:
        """Moves the clock by ``delta``, or by ``days=``, ``hours=``, ``minutes=``, ``seconds=``. Stops at each time at
        which a delayed message or a retry is due, and runs the handlers there. Returns the number of messages that were
        handled.

        Raises:
            ValueError: the clock would go back.
            AssertionError: a handler raised this error.
            RuntimeError: there were more than 10,000 messages at one time, or there is a handler of an
                ``AsyncConsumer`` and an event loop runs already.

        Example:
            >>> with Queue() as queue:
            ...     consumer = queue.consumer("orders", "billing")
            ...     @consumer.handler
            ...     def bill(message):
            ...         print(queue.now - began)
            ...     began = queue.now
            ...     future = queue.producer("orders").send("remind", delay="90d")
            ...     queue.advance(days=100)
            90 days, 0:00:00
            1
        """
        return self._runner.run(self._advance(distance(delta, duration)))

    async def advance_async(self, delta: timedelta | None = None, **duration: float) -> int:
        """Moves the clock as ``advance`` does, and runs the handlers in the event loop of the caller.

        Raises:
            ValueError: the clock would go back.
            AssertionError: a handler raised this error.
            RuntimeError: there were more than 10,000 messages at one time.

        Example:
            >>> async def test(queue):
            ...     consumer = queue.async_consumer("trials", "mails")
            ...     @consumer.handler
            ...     async def remind(message):
            ...         print(message.body)
            ...     result = await queue.async_producer("trials").send("your trial ends", delay="30d")
            ...     return await queue.advance_async(days=30)
            >>> with Queue() as queue:
            ...     asyncio.run(test(queue))
            your trial ends
            1
        """
        return await awaited(self._advance(distance(delta, duration)))

    def _handle(self, at_most: int = 10_000) -> Steps:
        with self._errors.collected():
            return (yield from self._server.handle(at_most, self._flush))

    def _advance(self, delta: timedelta) -> Steps:
        clock, timers = self._server.clock, self._server.timers
        self._flush()
        until_ms = clock.ms + round(delta / timedelta(milliseconds=1))
        handled = yield from self._handle()
        while (next_ms := timers.next_ms()) is not None and next_ms <= until_ms:
            clock.ms = max(clock.ms, next_ms)  # a call that slept may have moved the clock further
            handled += yield from self._handle()
        clock.ms = max(clock.ms, until_ms)
        self._server.sweep()
        return handled + (yield from self._handle())

    def sent(self, subject: str) -> list[Sent]:
        """Returns the messages that the queue accepted for a subject, in order, delayed ones included.

        Raises nothing.

        Example:
            >>> with Queue() as queue:
            ...     results = queue.producer("orders").send_batch(["one", "two"])
            ...     [message.body for message in queue.sent("orders")]
            ['one', 'two']
        """
        return [sent_of(accepted) for accepted in self._accepted(subject)]

    def scheduled(self, subject: str) -> list[Sent]:
        """Returns the delayed messages that wait for their time, the next one first.

        Raises nothing.

        Example:
            >>> with Queue() as queue:
            ...     future = queue.producer("orders").send("remind", delay="2h")
            ...     [message.due_at - queue.now for message in queue.scheduled("orders")]
            [datetime.timedelta(seconds=7200)]
        """
        waiting = [
            msgspec.structs.replace(sent_of(accepted), due_at=scheduled.deliver_at)
            for accepted in self._accepted(subject)
            if (scheduled := self._scheduled_message(accepted.result.scheduled_id)) is not None
            and scheduled.state in _WAITING
        ]
        return sorted(waiting, key=lambda message: message.due_at or message.sent_at)

    def _scheduled_message(self, scheduled_id: str | None) -> ScheduledMessage | None:
        """Returns a delayed message; None for a message without a delay, and for one whose bucket was removed a day
        after its end."""
        try:
            return None if scheduled_id is None else self._api.get_scheduled(scheduled_id)
        except NotFound:
            return None

    def dead(self, subject: str, group: str) -> list[DeadLetter]:
        """Returns the dead letters of a group.

        Raises:
            NotFound: there is no such subject or group.

        Example:
            >>> with Queue() as queue:
            ...     consumer = queue.consumer("orders", "billing")
            ...     @consumer.handler
            ...     def bill(order: dict):
            ...         print(order)
            ...     future = queue.producer("orders").send("paid")
            ...     handled = queue.run()
            ...     queue.dead("orders", "billing")[0].detail
            'the body does not fit dict: the body is not JSON in UTF-8 (byte 0)'
        """
        self._flush()
        letters: list[DeadLetter] = []
        after: str | None = None
        while True:
            page = self._api.list_dead(subject, group, after=after)
            letters += page.messages
            after = page.next
            if after is None:
                return letters

    def assert_sent(self, subject: str, body: Any = None, **fields: Any) -> Sent:
        """Returns the first message of the subject with this ``body`` and these ``fields`` of ``Sent``. A body that is
        an object is compared as JSON.

        Raises:
            AssertionError: no such message was sent; the error lists those that were.

        Example:
            >>> with Queue() as queue:
            ...     future = queue.producer("orders").send({"order": 7}, key="customer-42")
            ...     queue.assert_sent("orders", {"order": 7}, key="customer-42").body
            '{"order":7}'
        """
        messages = self.sent(subject)
        for message in messages:
            if fits(message, body, fields):
                return message
        listing = "".join(f"\n  {message}" for message in messages) or " nothing"
        raise AssertionError(f"no message {described(body, fields)} was sent to {subject}, but:{listing}")

    def assert_nothing_sent(self, subject: str) -> None:
        """Checks that no message was sent to the subject.

        Raises:
            AssertionError: messages were sent; the error lists them.

        Example:
            >>> with Queue() as queue:
            ...     queue.assert_nothing_sent("orders")
        """
        messages = self.sent(subject)
        if messages:
            raise AssertionError(f"sent to {subject}:" + "".join(f"\n  {message}" for message in messages))

    def _accepted(self, subject: str) -> list[Accepted]:
        self._flush()
        return [accepted for accepted in self._server.deployment.accepted if accepted.subject == subject]

    def _flush(self) -> None:
        for producer in open_producers(self._url):
            producer.flush()
