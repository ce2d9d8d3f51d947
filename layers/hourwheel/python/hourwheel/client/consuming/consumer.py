"""Receives messages: a handler is called with each message, or a loop iterates over them."""

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, overload

from hourwheel.client.api import Api
from hourwheel.client.consuming.consumer_base import ConsumerBase
from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.consuming.handling import Handling, decide_failed, give_up
from hourwheel.client.consuming.prefetcher import Prefetcher
from hourwheel.client.in_process import InProcessServer, MessageSource
from hourwheel.client.options import PrefetchOptions

if TYPE_CHECKING:
    from hourwheel.client.consuming.idempotence import AnyStore

Handler = TypeVar("Handler", bound=Callable[..., object])

_WAKE_SECONDS = 0.5  # the main thread handles signals at least this often while it waits


class Consumer(ConsumerBase[Api, MessageSource]):
    """Receives messages of a group, with a handler or as a loop. The consumers of a group share its messages. A
    consumer can be used for one run.

    Calls the handler on ``concurrency`` threads. When the handler returns, its message is acknowledged. When it raises
    ``Retry``, the message is retried after the delay of ``Retry``; ``Reject`` makes the message a dead letter; after
    any other exception the message is retried by the group's policy. With ``concurrency`` above 1 the order of a queue
    is not kept.

    A loop acknowledges a message when it asks for the next one, or when it leaves the ``with`` block without an
    exception, also by ``break``. When an exception leaves the block, the message is retried.

    Delivery is at least once. By default the messages that a consumer holds are those that its handlers finish within
    about a second, and at least one more than they work on. With ``max_messages`` (1 to 1,000), with a batch handler
    and in an ordered group, the next pull begins when fewer than ``max_messages`` (100) wait, and asks for that many.
    If the handlers need less than 50 ms for them, it asks for up to eight times as many. A pull waits ``wait_seconds``
    (0 to 20) for the first message. Results are settled with the next pull, or ``settle_linger_seconds`` after the
    first of them. They are settled at once if the group has as many messages in flight as it may (``max_in_flight``).
    In an ordered group they are settled 10 ms after the last message in hand of a key if a handler is idle. The
    consumer extends leases (of ``lease_seconds``) until their messages are settled. If a lease is lost nevertheless,
    ``message.lost`` is true, the result is dropped, and ``lost_messages`` counts the message.

    After ``stop`` the consumer goes on handing out the messages that it has pulled, for ``drain_seconds``, and then
    releases the rest; at the end of the ``with`` block it releases them at once. Other consumers get released messages
    at once, with the same attempt. A pull that was cut off may leave messages leased; they are delivered again when
    their lease ends.

    A retried message and a dead letter have the error of the handler in their ``detail``, up to 1,000 characters. For
    ``Retry`` and ``Reject`` it is the text, for any other exception the type and the first line of its text. With
    ``error_details=False`` these texts stay in the log of the consumer.

    A refusal that no retry can change (wrong token, unknown name) stops the consumer, and ``run`` or the loop raises
    the error. If the subject or the group is deleted meanwhile, the messages in hand are lost, and the consumer goes on
    with its next pull, which creates them again where the server allows that. While the server is unavailable, the
    consumer waits. ``token``, ``ca_file``, ``sign`` and ``region`` are those of ``Api``.

    Raises:
        ValueError: the URL is no HTTP URL, ``token``, ``sign`` and ``region`` contradict each other, or a number is out
            of its range.
        TypeError: an option that is a number has another type.
        ClientError: requests are to be signed, and botocore is not installed.
        AnswerError: the loop raises it where the server refuses the consumer.
        RuntimeError: the consumer was used before, or a loop stands outside a ``with`` block.

    Example:
        >>> with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
        ...     for message in messages:
        ...         print(message.body)
        ...         break
        paid
    """

    _connects = Api

    def _source_of(self, server: InProcessServer | None, options: PrefetchOptions[Api]) -> MessageSource:
        return Prefetcher(options) if server is None else server.source(options)

    @overload
    def handler(self, function: Handler) -> Handler: ...

    @overload
    def handler(self, *, idempotent: "AnyStore") -> Callable[[Handler], Handler]: ...

    def handler(self, function: Handler | None = None, *, idempotent: "AnyStore | None" = None) -> Any:
        """Sets the function that ``run`` calls with each message, as a decorator. A later call replaces the function.

        The annotation of the first parameter decides what the function gets: the message (``Delivery``, or without an
        annotation), or its body. The body is decoded from JSON (a pydantic model, a msgspec struct, a dataclass, a
        ``TypedDict``, ``dict``, ``list``, a number), or comes as it was sent (``str``, ``bytes``). A second parameter
        gets the message. A message whose body does not fit becomes a dead letter at once, without retries.

        ``idempotent`` is a store of ``hourwheel.idempotency``, by which the function handles each message once. A
        function with a parameter ``session`` gets the session of the store's transaction.

        Raises:
            TypeError: no body can be decoded as the annotation says, ``idempotent`` is not a store, or the function is
                asynchronous or a generator function.

        Example:
            >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing", concurrency=8)
            >>> @consumer.handler
            ... def bill(message):
            ...     print(message.body)
        """
        if function is None:
            return functools.partial(self._set_handler, idempotent)
        return self._set_handler(idempotent, function)

    def _set_handler(self, store: "AnyStore | None", function: Handler) -> Handler:
        # Imported here: a program that only sends does not pay for ``inspect``.
        from hourwheel.client.consuming.decoding import check_runs, handler_of
        from hourwheel.client.consuming.idempotence import idempotent_handler

        check_runs(function)
        handle = handler_of(function) if store is None else idempotent_handler(function, store, *self._handling[:2])
        self._work, self._takes_lists = functools.partial(self._handle_each, handle), False
        return function

    @overload
    def batch_handler(self, function: Handler) -> Handler: ...

    @overload
    def batch_handler(self, *, idempotent: object) -> NoReturn: ...

    def batch_handler(self, function: Handler | None = None, *, idempotent: object = None) -> Any:
        """Sets the function that ``run`` calls with a list of messages, as a decorator, in place of a handler.

        The list has the messages that were pulled and not handed out yet, from 1 to ``max_messages``: it does not wait
        for more. The function decides about single messages by calling their ``retry`` or ``dead``. When it returns,
        the other messages are acknowledged. When it raises an exception, ``Retry`` or ``Reject``, the others are
        retried or become dead letters, as with a handler of one message. In an ordered group the messages of a list
        have different keys.

        An annotation such as ``list[Order]`` asks for the decoded bodies; a second parameter then gets the messages.
        Messages whose bodies do not fit become dead letters, and the function gets the others.

        Raises:
            TypeError: no body can be decoded as the annotation says, the function is asynchronous or a generator
                function, or there is an idempotency store. A transaction cannot undo the work for one message of a list
                alone, so only a handler of one message takes a store.

        Example:
            >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
            >>> @consumer.batch_handler
            ... def bill(messages):
            ...     for message in messages:
            ...         if not message.body:
            ...             message.dead()
        """
        from hourwheel.client.consuming.decoding import batch_handler_of, check_runs
        from hourwheel.client.consuming.idempotence import BATCHES

        if idempotent is not None:
            raise TypeError(BATCHES)
        if function is None:
            return self.batch_handler
        check_runs(function)
        reject = functools.partial(give_up, handling=self._handling)
        self._work = functools.partial(self._handle_batches, batch_handler_of(function, reject))
        self._takes_lists = True
        return function

    def run(self) -> None:
        """Handles messages until ``stop``. On the main thread SIGINT and SIGTERM stop the consumer too; a second signal
        of one kind has the effect that it had before ``run``.

        Raises:
            AnswerError: the server refuses the consumer, and no retry can change that.
            RuntimeError: there is no handler, or the consumer was used before.

        Example:
            >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
            >>> @consumer.handler
            ... def bill(message):
            ...     print(message.body)
            ...     consumer.stop()
            >>> consumer.run()
            paid
        """
        if self._work is None:
            raise RuntimeError("decorate a function with @consumer.handler first")
        workers = [
            threading.Thread(target=self._work, name=f"hourwheel-handler-{number}", daemon=True)
            for number in range(self._concurrency)
        ]
        with self._stopped_by_signals():
            self._begin()
            try:
                if self._inline:  # so that tests see the same order in each run
                    workers = []
                    self._work()
                for worker in workers:
                    worker.start()
                for worker in workers:
                    while worker.is_alive():
                        worker.join(_WAKE_SECONDS)
            finally:
                self._prefetcher.stop(drain_seconds=0)  # all messages are handled, or a signal interrupted this thread
                self._prefetcher.finish()
        if self._prefetcher.failure is not None:
            raise self._prefetcher.failure

    def stop(self) -> None:
        """Stops the consumer, from any thread, also within a handler. Returns at once; ``run`` or the loop ends once
        all results are settled.

        Raises nothing.

        Example:
            >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
            >>> with consumer as messages:
            ...     for message in messages:
            ...         print(message.body)
            ...         consumer.stop()
            paid
        """
        self._prefetcher.stop(drain_seconds=self._drain_seconds)

    def __enter__(self) -> Self:
        self._begin()
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
        self._prefetcher.finish()

    def __iter__(self) -> Iterator[Delivery]:
        if not self._entered:
            raise RuntimeError("loop inside a with block: with Consumer(...) as messages")
        loop = _Loop(self._prefetcher, self._handling)
        self._loops.append(loop)
        return loop

    def _handle_each(self, handle: Callable[[Delivery], object]) -> None:
        following = self._prefetcher.next
        while (message := following()) is not None:
            try:
                handle(message)
            except BaseException as error:
                self._failed([message], error)
            else:
                message.ack()

    def _handle_batches(self, handle: Callable[[list[Delivery]], object]) -> None:
        while messages := self._prefetcher.next_batch():
            try:
                handle(list(messages))
            except BaseException as error:
                self._failed(messages, error)
            else:
                self._prefetcher.acknowledge(messages)

    def _failed(self, messages: list[Delivery], error: BaseException) -> None:
        if decide_failed(messages, error, self._handling):
            self._prefetcher.fail(error)  # such as SystemExit: ends the consumer, and ``run`` raises it

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        # Python sets signal handlers in the main thread only.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {}

        def on_signal(number: int, frame: FrameType | None) -> None:
            # A second signal has its former effect, so that a user can end a program that does not stop.
            signal.signal(number, before[signal.Signals(number)])
            self.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, effect in before.items():
                signal.signal(number, effect)


class _Loop(Iterator[Delivery]):
    """Iterates over the messages of a consumer. Each of several threads may have a loop of its own."""

    def __init__(self, prefetcher: MessageSource, handling: Handling) -> None:
        self._prefetcher = prefetcher
        self._handling = handling
        self._current: Delivery | None = None

    def __next__(self) -> Delivery:
        self.leave(None)
        self._current = self._prefetcher.next()
        if self._current is not None:
            return self._current
        if self._prefetcher.failure is not None:
            raise self._prefetcher.failure
        raise StopIteration

    def leave(self, error: BaseException | None) -> None:
        """Acknowledges the message in hand, or retries it if an ``error`` ends the loop."""
        if self._current is not None:
            if error is None:
                self._current.ack()
            else:
                self._current.retry(detail=self._handling.detail(error))
            self._current = None
