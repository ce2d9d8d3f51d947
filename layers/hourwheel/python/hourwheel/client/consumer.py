"""Receives messages: a handler that is called with each, or a loop over them."""

import contextlib
import functools
import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from hourwheel.adapters.system import SystemIds
from hourwheel.client.api import Api
from hourwheel.client.errors import Reject, Retry
from hourwheel.client.lease_tracker import Delivery
from hourwheel.client.prefetcher import Prefetcher, PrefetchOptions
from hourwheel.client.signing import Sign
from hourwheel.ports import Ids

_log = logging.getLogger("hourwheel.consumer")

Handler = TypeVar("Handler", bound=Callable[[Delivery], object])

_WAKE_SECONDS = 0.5  # the main thread looks after signals so often, whatever it waits for


class Consumer:
    """Receives the messages of a group, which its consumers share: with a handler, or as a loop. Good for one run.

    Calls a handler on ``concurrency`` threads. Returning acknowledges the message, an exception retries it when the
    group's policy says, ``Retry`` retries it after a delay of its own, ``Reject`` makes it a dead letter. With
    ``concurrency`` above 1 the order of a queue is not kept.

    A loop acknowledges a message when it asks for the next one, or leaves the ``with`` block without an exception
    (``break`` too). An exception that leaves the block retries the message.

    Delivery is at least once. The consumer pulls up to ``max_messages`` (1 to 1,000), waits ``wait_seconds`` (0 to 20)
    for them, and settles results with the next pull, or ``settle_linger_seconds`` after the first result. It extends
    leases (of ``lease_seconds``) until their messages are settled. Where a lease is lost nevertheless, ``message.lost``
    says so, the result is dropped, and ``lost_messages`` counts it.

    Stopping hands out the messages that were pulled for ``drain_seconds``, then gives the rest back: other consumers
    get them at once, without an attempt more. Leaving the ``with`` block gives them back at once. A pull that was cut
    may leave a message leased, which comes again when its lease ends.

    A refusal that repeating cannot help (token, unknown name) stops the consumer; ``run`` or the loop raises it. While
    the server is away the consumer waits for it. ``token``, ``ca_file``, ``sign`` and ``region`` are those of ``Api``.

    Raises:
        ValueError: the URL is no HTTP URL, or ``token``, ``sign`` and ``region`` contradict each other.
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

    def __init__(
        self,
        url: str,
        subject: str,
        group: str,
        *,
        token: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        sign: Sign | None = None,
        region: str | None = None,
        consumer_id: str | None = None,
        concurrency: int = 1,
        max_messages: int = 100,
        wait_seconds: float = 20,
        lease_seconds: int = 30,
        settle_linger_seconds: float = 1.0,
        drain_seconds: float = 5.0,
        ids: Ids | None = None,
    ) -> None:
        ids = ids or SystemIds()
        self._concurrency = concurrency
        self._drain_seconds = drain_seconds
        self._handler: Callable[[Delivery], object] | None = None
        self._loops: list[_Loop] = []
        self._used = False
        self._entered = False
        self._feed = Prefetcher(
            PrefetchOptions(
                connect=functools.partial(Api, url, token=token, ca_file=ca_file, sign=sign, region=region, ids=ids),
                subject=subject,
                group=group,
                consumer_id=consumer_id or _default_id(ids),
                max_messages=max_messages,
                wait_seconds=wait_seconds,
                lease_seconds=lease_seconds,
                settle_linger_seconds=settle_linger_seconds,
                low_water=max_messages // 2,
                ids=ids,
            )
        )

    @property
    def lost_messages(self) -> int:
        """The number of messages whose lease was lost before they were settled. They are delivered again."""
        return self._feed.lost_messages

    def handler(self, scheduled_id: Handler) -> Handler:
        """Sets the function that ``run`` calls with each message; a decorator. The last one that was set counts.

        Raises nothing.

        Example:
            >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing", concurrency=8)
            >>> @consumer.handler
            ... def bill(message):
            ...     print(message.body)
        """
        self._handler = scheduled_id
        return scheduled_id

    def run(self) -> None:
        """Handles messages until ``stop``. On the main thread SIGINT and SIGTERM stop it too; a second signal of one
        kind has the effect that it had before ``run``.

        Raises:
            AnswerError: the server refuses the consumer, and repeating cannot help.
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
        if self._handler is None:
            raise RuntimeError("decorate a function with @consumer.handler first")
        workers = [
            threading.Thread(target=self._work, args=(self._handler,), name=f"hourwheel-handler-{number}", daemon=True)
            for number in range(self._concurrency)
        ]
        with self._stopped_by_signals():
            self._begin()
            for worker in workers:
                worker.start()
            try:
                for worker in workers:
                    while worker.is_alive():
                        worker.join(_WAKE_SECONDS)
            finally:
                self._feed.stop(drain_seconds=0)  # all is drained, or this thread was interrupted
                self._feed.finish()
        if self._feed.failure is not None:
            raise self._feed.failure

    def stop(self) -> None:
        """Stops the consumer, from any thread, a handler's too. Returns at once; ``run``, or the loop, ends when all
        results are settled.

        Raises nothing.

        Example:
            >>> consumer = Consumer("http://127.0.0.1:7420", "orders", "billing")
            >>> with consumer as messages:
            ...     for message in messages:
            ...         print(message.body)
            ...         consumer.stop()
            paid
        """
        self._feed.stop(drain_seconds=self._drain_seconds)

    def __enter__(self) -> Self:
        self._begin()
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for loop in self._loops:
            loop.leave(failed=error is not None)
        self._feed.stop(drain_seconds=0)
        self._feed.finish()

    def __iter__(self) -> Iterator[Delivery]:
        if not self._entered:
            raise RuntimeError("loop inside a with block: with Consumer(...) as messages")
        loop = _Loop(self._feed)
        self._loops.append(loop)
        return loop

    def _begin(self) -> None:
        if self._used:
            raise RuntimeError("a consumer is good for one run: make another one")
        self._used = True
        self._feed.start()

    def _work(self, scheduled_id: Callable[[Delivery], object]) -> None:
        while (message := self._feed.next()) is not None:
            try:
                scheduled_id(message)
            except Reject as reason:
                _log.info("message %s rejected: %s", message.id, reason)
                message.dead()
            except Retry as reason:
                _log.info("message %s will be retried after %s: %s", message.id, reason.delay, reason)
                message.retry(delay=reason.delay)
            except Exception:
                _log.exception(
                    "handler failed: message %s goes back, to be retried unless this was its last attempt", message.id
                )
                message.retry()
            except BaseException as error:
                message.retry()
                self._feed.fail(error)
            else:
                message.ack()

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[signal.Signals, Any] = {}

        def on_signal(number: int, frame: FrameType | None) -> None:
            signal.signal(number, before[signal.Signals(number)])
            self.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, on_signal)
        try:
            yield
        finally:
            for number, scheduled_id in before.items():
                signal.signal(number, scheduled_id)


class _Loop(Iterator[Delivery]):
    """One ``for`` over a consumer; several threads may each have theirs."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self._feed = prefetcher
        self._current: Delivery | None = None

    def __next__(self) -> Delivery:
        self.leave(failed=False)
        self._current = self._feed.next()
        if self._current is not None:
            return self._current
        if self._feed.failure is not None:
            raise self._feed.failure
        raise StopIteration

    def leave(self, *, failed: bool) -> None:
        if self._current is not None:
            if failed:
                self._current.retry()
            else:
                self._current.ack()
            self._current = None


def _default_id(ids: Ids) -> str:
    """``host-process-random``, within the alphabet and length of names."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:60]
    return f"{host}-{os.getpid()}-{ids.token().hex()[:8]}"
