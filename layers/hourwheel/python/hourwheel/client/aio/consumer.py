"""Receives messages in the tasks of an event loop, for a handler that is awaited with each message or for a loop."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, cast, overload

from hourwheel.client.aio.api import AsyncApi
from hourwheel.client.aio.prefetcher import AsyncPrefetcher
from hourwheel.client.consuming.consumer_base import ConsumerBase
from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.consuming.handling import Handling, decide_failed, give_up
from hourwheel.client.in_process import AsyncMessageSource, InProcessServer
from hourwheel.client.options import PrefetchOptions

if TYPE_CHECKING:
    from hourwheel.client.aio.idempotence import AnyAsyncStore

Handler = TypeVar("Handler", bound=Callable[..., Awaitable[object]])


class AsyncConsumer(ConsumerBase[AsyncApi, AsyncMessageSource]):
    """Receives messages of a group in the tasks of one event loop, with a handler or as a loop. A consumer can be used
    for one run.

    Awaits the handler in ``concurrency`` tasks. When the handler returns, its message is acknowledged. When it raises
    ``Retry``, the message is retried after the delay of ``Retry``; ``Reject`` makes the message a dead letter; after
    any other exception the message is retried by the group's policy. When the run is cancelled, the handlers are
    cancelled too and their messages released: another consumer gets them at once, with the same attempt. With
    ``concurrency`` above 1 the order of a queue is not kept.

    A loop acknowledges a message when it asks for the next one, or when it leaves the ``async with`` block without an
    exception, also by ``break``. When an exception leaves the block, the message is retried, or released if the
    exception is a cancellation.

    ``Consumer`` describes pulls, settlements, leases, ``stop`` and the other arguments. No signal stops the run: the
    program owns its event loop, so it calls ``stop`` or cancels the task.

    Raises:
        ValueError: the URL is no HTTP URL, ``token``, ``sign`` and ``region`` contradict each other, or a number is out
            of its range.
        TypeError: an option that is a number has another type.
        ClientError: requests are to be signed, and botocore is not installed.
        AnswerError: the loop raises it where the server refuses the consumer.
        RuntimeError: the consumer was used before, or a loop stands outside an ``async with`` block.

    Example:
        >>> async def main():
        ...     async with AsyncConsumer("http://127.0.0.1:7420", "orders", "billing") as messages:
        ...         async for message in messages:
        ...             print(message.body)
        ...             break
        >>> asyncio.run(main())
        paid
    """

    _connects = AsyncApi

    def _source_of(self, server: InProcessServer | None, options: PrefetchOptions[AsyncApi]) -> AsyncMessageSource:
        return AsyncPrefetcher(options) if server is None else server.async_source(options)

    @overload
    def handler(self, function: Handler) -> Handler: ...

    @overload
    def handler(self, *, idempotent: "AnyAsyncStore") -> Callable[[Handler], Handler]: ...

    def handler(self, function: Handler | None = None, *, idempotent: "AnyAsyncStore | None" = None) -> Any:
        """Sets the coroutine function that ``run`` awaits with each message, as a decorator. A later call replaces the
        function. Its annotations say what it gets, as for ``Consumer.handler``.

        ``idempotent`` is an asynchronous store of ``hourwheel.idempotency``, by which the function handles each message
        once. A function with a parameter ``session`` gets the session of the store's transaction.

        Raises:
            TypeError: no body can be decoded as the annotation says, ``idempotent`` is not an asynchronous store, or
                the function is not a coroutine function.

        Example:
            >>> consumer = AsyncConsumer("http://127.0.0.1:7420", "orders", "billing", concurrency=100)
            >>> @consumer.handler
            ... async def bill(message):
            ...     print(message.body)
        """
        if function is None:
            return functools.partial(self._set_handler, idempotent)
        return self._set_handler(idempotent, function)

    def _set_handler(self, store: "AnyAsyncStore | None", function: Handler) -> Handler:
        # Imported here: a program that only sends does not pay for ``inspect``.
        from hourwheel.client.aio.idempotence import awaited_once
        from hourwheel.client.consuming.decoding import check_awaitable, handler_of

        check_awaitable(function)
        if store is None:
            handle = cast(Callable[[Delivery], Awaitable[object]], handler_of(function))
        else:
            handle = awaited_once(function, store, *self._handling[:2])
        self._work, self._takes_lists = functools.partial(self._handle_each, handle), False
        return function

    @overload
    def batch_handler(self, function: Handler) -> Handler: ...

    @overload
    def batch_handler(self, *, idempotent: object) -> NoReturn: ...

    def batch_handler(self, function: Handler | None = None, *, idempotent: object = None) -> Any:
        """Sets the coroutine function that ``run`` awaits with a list of messages, in place of a handler, as
        ``Consumer.batch_handler`` does.

        Raises:
            TypeError: no body can be decoded as the annotation says, the function is not a coroutine function, or there
                is an idempotency store. A transaction cannot undo the work for one message of a list alone, so only a
                handler of one message takes a store.

        Example:
            >>> consumer = AsyncConsumer("http://127.0.0.1:7420", "orders", "billing")
            >>> @consumer.batch_handler
            ... async def bill(messages):
            ...     for message in messages:
            ...         if not message.body:
            ...             message.dead()
        """
        from hourwheel.client.consuming.decoding import batch_handler_of, check_awaitable
        from hourwheel.client.consuming.idempotence import BATCHES

        if idempotent is not None:
            raise TypeError(BATCHES)
        if function is None:
            return self.batch_handler

        check_awaitable(function)
        reject = functools.partial(give_up, handling=self._handling)
        handle = cast(Callable[[list[Delivery]], Awaitable[object] | None], batch_handler_of(function, reject))
        self._work, self._takes_lists = functools.partial(self._handle_batches, handle), True
        return function

    async def run(self) -> None:
        """Handles messages until ``stop``, or until its task is cancelled: then the handlers are cancelled too, and
        their messages released. After that it waits at most 10 s until all results are settled.

        Raises:
            AnswerError: the server refuses the consumer, and no retry can change that.
            RuntimeError: there is no handler, or the consumer was used before.

        Example:
            >>> async def main():
            ...     consumer = AsyncConsumer("http://127.0.0.1:7420", "orders", "billing")
            ...     @consumer.handler
            ...     async def bill(message):
            ...         print(message.body)
            ...         consumer.stop()
            ...     await consumer.run()
            >>> asyncio.run(main())
            paid
        """
        if self._work is None:
            raise RuntimeError("decorate a coroutine function with @consumer.handler first")
        self._begin()
        try:
            if self._inline:  # the test may run the handler again later, so nothing is stopped here
                await self._work()
            else:
                async with asyncio.TaskGroup() as workers:
                    try:
                        await asyncio.wait([workers.create_task(self._work()) for _ in range(self._concurrency)])
                    finally:  # a handler that suppresses its cancellation must get no further message
                        self._prefetcher.stop(drain_seconds=0)
        finally:
            await self._prefetcher.finish()
        if self._prefetcher.failure is not None:
            raise self._prefetcher.failure

    def stop(self) -> None:
        """Stops the consumer, also from a handler, on the thread of its event loop. Returns at once; ``run`` or the
        loop ends when all results are settled.

        Raises nothing.

        Example:
            >>> async def main():
            ...     async with AsyncConsumer("http://127.0.0.1:7420", "orders", "billing") as messages:
            ...         async for message in messages:
            ...             print(message.body)
            ...             messages.stop()
            >>> asyncio.run(main())
            paid
        """
        self._prefetcher.stop(drain_seconds=self._drain_seconds)

    async def __aenter__(self) -> Self:
        self._begin()
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(error)
        await self._prefetcher.finish()

    def __aiter__(self) -> AsyncIterator[Delivery]:
        if not self._entered:
            raise RuntimeError("loop inside an async with block: async with AsyncConsumer(...) as messages")
        loop = _AsyncLoop(self._prefetcher, self._handling)
        self._loops.append(loop)
        return loop

    async def _handle_each(self, handle: Callable[[Delivery], Awaitable[object]]) -> None:
        while (message := await self._prefetcher.next()) is not None:
            try:
                await handle(message)
            except BaseException as error:
                self._failed([message], error)
            else:
                message.ack()

    async def _handle_batches(self, handle: Callable[[list[Delivery]], Awaitable[object] | None]) -> None:
        while messages := await self._prefetcher.next_batch():
            try:
                handling = handle(list(messages))
                if handling is not None:
                    await handling
            except BaseException as error:
                self._failed(messages, error)
            else:
                self._prefetcher.acknowledge(messages)

    def _failed(self, messages: Sequence[Delivery], error: BaseException) -> None:
        """Decides about messages whose handler raised an error. What the handler decided before stays."""
        if not isinstance(error, asyncio.CancelledError):
            if decide_failed(messages, error, self._handling):
                self._prefetcher.fail(error)
            return
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            self._prefetcher.release(messages)
            raise error
        # Nobody cancelled this task, so the handler awaited another task that was cancelled: the handler has failed.
        decide_failed(messages, RuntimeError("the handler awaited a task that was cancelled"), self._handling)


class _AsyncLoop(AsyncIterator[Delivery]):
    """Iterates over the messages of a consumer. Each of several tasks may have a loop of its own."""

    def __init__(self, prefetcher: AsyncMessageSource, handling: Handling) -> None:
        self._prefetcher = prefetcher
        self._handling = handling
        self._current: Delivery | None = None

    async def __anext__(self) -> Delivery:
        self.leave(None)
        self._current = await self._prefetcher.next()
        if self._current is not None:
            return self._current
        if self._prefetcher.failure is not None:
            raise self._prefetcher.failure
        raise StopAsyncIteration

    def leave(self, error: BaseException | None) -> None:
        """Acknowledges the message in hand, or after an ``error`` retries or releases it."""
        if self._current is None:
            return
        if error is None:
            self._current.ack()
        elif isinstance(error, asyncio.CancelledError):
            self._prefetcher.release([self._current])
        else:
            self._current.retry(detail=self._handling.detail(error))
        self._current = None
