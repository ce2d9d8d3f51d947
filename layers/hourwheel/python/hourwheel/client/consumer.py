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
from hourwheel.client.feed import Feed, FeedOptions
from hourwheel.client.ledger import Delivery
from hourwheel.client.signing import Sign
from hourwheel.ports import Ids

_log = logging.getLogger("hourwheel.consumer")

Handler = TypeVar("Handler", bound=Callable[[Delivery], object])

_WAKE_SECONDS = 0.5  # the main thread looks after signals so often, whatever it waits for


class Consumer:
    """A member of a group: the consumers of a group share its messages.

    With a handler, on ``concurrency`` threads: returning acknowledges, an exception retries when the group's policy
    says, ``Retry`` after a delay of its own, ``Reject`` gives up.

        consumer = Consumer("http://127.0.0.1:7420", "orders", "billing", concurrency=8)

        @consumer.handler
        def bill(message):
            charge(message.body)

        consumer.run()  # until stop(), SIGINT or SIGTERM

    As a loop: a message is acknowledged when the loop asks for the next one, or when the ``with`` block is left without
    an exception (``break`` too); an exception that leaves the block retries it.

        with Consumer("http://127.0.0.1:7420", "orders", "billing") as messages:
            for message in messages:
                charge(message.body)

    Delivery is at least once. Results are settled with the next pull, or ``settle_linger_seconds`` after the first of a
    pull, whichever comes first. Leases of what is pulled are extended for as long as it takes; should one be lost
    nevertheless, ``message.lost`` says so, the result is dropped, and ``lost_messages`` counts it. With ``concurrency``
    above 1 the order of a queue is not kept.

    Stopping: what is pulled is still handed out for ``drain_seconds``, and a pull that waits at the server may end by
    itself for so long. What nobody has begun by then is given back: others get it at once, and it costs no attempt.
    Leaving the ``with`` block gives back at once. A pull that is cut may still lease a message at a server that does
    not notice: that one comes again when its lease ends.

    A refusal that repeating cannot mend (token, unknown name) stops the consumer and is raised by ``run`` or the loop;
    while the server is away the consumer waits for it. ``token``, ``ca_file``, ``sign`` and ``region`` are those of
    ``Api``.
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
        self._feed = Feed(
            FeedOptions(
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
        """Messages whose lease was lost before they were settled. They are delivered again."""
        return self._feed.lost_messages

    def handler(self, handle: Handler) -> Handler:
        """Decorator: ``run`` calls this with each message."""
        self._handler = handle
        return handle

    def run(self) -> None:
        """Handles messages until ``stop``. On the main thread SIGINT and SIGTERM stop it too; the second one of a kind
        does what it did before."""
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
        """From any thread, a handler's too. Returns at once; ``run``, or the loop, ends when all is settled."""
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

    def _work(self, handle: Callable[[Delivery], object]) -> None:
        while (message := self._feed.next()) is not None:
            try:
                handle(message)
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
            for number, handle in before.items():
                signal.signal(number, handle)


class _Loop(Iterator[Delivery]):
    """One ``for`` over a consumer; several threads may each have theirs."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
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
