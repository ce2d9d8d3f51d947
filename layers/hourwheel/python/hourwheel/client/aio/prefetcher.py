"""Pulls and settles in two tasks, so that the tasks that handle messages do neither. ``consuming/pull_session.py``
decides what the two tasks do."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hourwheel.client.aio.api import AsyncApi
from hourwheel.client.aio.connections import AsyncConnections
from hourwheel.client.aio.waking import AsyncCondition
from hourwheel.client.consuming import pull_session
from hourwheel.client.consuming.delivery import Delivery
from hourwheel.client.consuming.dozing import QueueListener, QueueRequest
from hourwheel.client.consuming.held_messages import LookResult
from hourwheel.client.consuming.pull_session import PullSession
from hourwheel.client.consuming.settlements import settle_timeout
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.transport.steps import Steps, awaited

_AT_ONCE = 16  # the other tasks of the loop get a turn after this many messages

T = TypeVar("T")


class AsyncPrefetcher(PullSession[AsyncCondition]):
    """Pulls ahead for one run of a consumer: ``start``, ``next`` from any task, ``stop``, ``finish``."""

    def __init__(self, options: PrefetchOptions[AsyncApi]) -> None:
        self._pulls = options.connect()
        self._settles = options.connect(timeout_seconds=settle_timeout(options.lease_seconds))
        listener = QueueListener(AsyncConnections, lambda *request: asyncio.to_thread(QueueRequest.headers, *request))
        super().__init__(options, self._pulls.calls, self._settles.calls, listener, AsyncCondition)
        self._handed_out = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, handlers: int | None = None) -> None:
        """Starts to pull. ``handlers`` is the number of handlers that the stock follows."""
        self._stock.follow(handlers)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(work)) for work in (self.pulling, self.settling)]

    async def next(self) -> Delivery | None:
        """Waits for a message and returns it, or returns None once the prefetcher is stopped and drained."""
        self._handed_out += 1
        if self._handed_out % _AT_ONCE == 0:
            await asyncio.sleep(0)  # handlers that wait for nothing would keep the loop to themselves
        if self._unordered and not self._stopping and (delivery := self._next_at_once()) is not None:
            return delivery
        while not (seen := self._look_for_message()).ready:
            self._note_idle(1)
            try:
                await self._ready.wait(seen.wait_seconds)
            finally:
                self._note_idle(-1)
        return seen.result

    async def next_batch(self) -> list[Delivery]:
        """Waits for a message, and returns it with those that are there, up to ``max_messages``. Returns no message
        once the prefetcher is stopped and drained. The messages of an ordered group have different keys."""
        return self._with_more(await self.next())

    async def finish(self) -> None:
        """Releases the messages that nobody has begun, and waits until all outcomes are settled.

        Called after ``stop``, when no task handles messages any more. Returns after 10 s at the latest: the messages
        that are not settled by then come again when their leases end.
        """
        puller, settler = self._tasks
        try:
            await awaited(self._listener.close())
            await asyncio.wait([puller], timeout=self._pull_end_seconds())
            await _ended(puller)  # cuts a pull that still waits; the server then leases nothing for it
            self._end()
            await asyncio.wait([settler], timeout=pull_session.LAST_SETTLEMENTS_SECONDS)
            await awaited(self._listener.give_back(self._doze.given_back()))
            self._report_unsettled()
        finally:
            self._turn.stop()
            await _ended(*self._tasks)
            await self._pulls.close()
            await self._settles.close()

    async def _run(self, work: Callable[[], Steps[None]]) -> None:
        """Works in a task. An unexpected error ends the run: nobody waits for a task that has ended."""
        try:
            await awaited(work())
        except Exception as error:
            self.fail(error)

    async def _wait(self, condition: AsyncCondition, look: Callable[[], LookResult[T]]) -> T | None:
        while not (seen := look()).ready:
            await condition.wait(seen.wait_seconds)
        return seen.result

    def _wake_handlers(self) -> None:
        if self._stopping:
            self._ready.notify_all()
        else:
            self._ready.notify(len(self._queue))  # thousands of tasks may wait, for one message


def _ended(*tasks: asyncio.Task[None]) -> Coroutine[Any, Any, Any]:
    """Cancels the tasks, and waits for their end."""
    for task in tasks:
        task.cancel()
    return asyncio.wait(tasks)
