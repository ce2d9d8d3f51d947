"""Pulls and settles in two tasks, so that the tasks that handle messages do neither.

One task pulls when the local queue runs low, and sends the settlements of completed pulls with the request. Another one
sends the settlements that no pull takes along within the linger, and extends the leases of messages that take long.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from hourwheel.client.aio.api import AsyncApi
from hourwheel.client.aio.dozing import AsyncQueueListener
from hourwheel.client.aio.pulls import pull_encoded, settle_each
from hourwheel.client.consuming.dozing import Doze
from hourwheel.client.consuming.lease_tracker import Delivery, DeliveryOutcome, LeaseTracker
from hourwheel.client.consuming.local_queue import LocalQueue
from hourwheel.client.consuming.prefetcher import BUSY_END_SECONDS, LAST_SETTLEMENTS_SECONDS, pull_seconds
from hourwheel.client.consuming.settlements import settle_timeout
from hourwheel.client.consuming.stock import Stock
from hourwheel.client.consuming.suspects import SuspectTurn, rest_after
from hourwheel.client.errors import Closed, ServerFault, ServerUnavailable
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.client.transport.backoff import Outage, PullBackoff, pause_seconds
from hourwheel.model.fields import Delay
from hourwheel.model.pulls import Settled, Settlement, WakeupQueue
from hourwheel.ports.machine import Ids
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")

_AT_ONCE = 16  # the other tasks of the loop get a turn after this many messages


class AsyncPrefetchOptions(NamedTuple):
    connect: Callable[..., AsyncApi]
    subject: str
    group: str
    consumer_id: str
    max_messages: int
    wait_seconds: float
    lease_seconds: int
    settle_linger_seconds: float
    ids: Ids


class AsyncPrefetcher:
    """Pulls ahead for one run of a consumer: ``start``, ``next`` from any task, ``stop``, ``finish``."""

    def __init__(self, options: AsyncPrefetchOptions) -> None:
        self._options = options
        self._pulls = options.connect()
        self._settles = options.connect(timeout_seconds=settle_timeout(options.lease_seconds))
        self._leases = LeaseTracker(lease_seconds=options.lease_seconds, linger_seconds=options.settle_linger_seconds)
        self._turn = SuspectTurn(self._leases, options.max_messages)
        self._local = LocalQueue()
        self._queue = self._local.deliveries
        self._doze = Doze(self._pulls._http.signer, self._pulls._http.host)
        self._listener = AsyncQueueListener()
        self._stock = Stock(options.max_messages)
        self._max_messages = options.max_messages  # of the pull under way
        self._handled = 0  # messages that were decided so far
        self._waiters: deque[asyncio.Future[None]] = deque()  # tasks that wait for a message
        self._handed_out = 0
        self._hungry = asyncio.Event()  # the local queue may have room for a pull, or pulling ends
        self._due = asyncio.Event()  # a settlement may be due
        self._stop = asyncio.Event()
        self._settle_outage = Outage()
        self._pulling = False
        self._busy_pull = False
        self._drain_until = 0.0
        self._ending = False
        self.failure: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def lost_messages(self) -> int:
        return self._leases.lost_messages

    def start(self, handlers: int | None = None) -> None:
        """Starts to pull. ``handlers`` is the number of handlers that the stock follows."""
        self._stock.follow(handlers)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run(work)) for work in (self._run_puller, self._run_settler)]

    async def next(self) -> Delivery | None:
        """Waits for a message and returns it, or returns None once the prefetcher is stopped and drained."""
        self._handed_out += 1
        if self._handed_out % _AT_ONCE == 0:
            await asyncio.sleep(0)  # handlers that wait for nothing would keep the loop to themselves
        while True:
            left_seconds = self._drain_until - time.monotonic() if self._stop.is_set() else None
            if left_seconds is not None and left_seconds <= 0:
                return None
            delivery = self._take()
            if delivery is not None:
                return delivery
            # A pull that began without a message in hand may wait long: ``finish`` cuts it.
            if left_seconds is not None and not self._queue and not (self._pulling and self._busy_pull):
                return None
            await self._message_within(left_seconds)

    async def next_batch(self) -> list[Delivery]:
        """Waits for a message, and returns it with those that are there, up to ``max_messages``. Returns no message
        once the prefetcher is stopped and drained. The messages of an ordered group have different keys."""
        first = await self.next()
        batch = [] if first is None else [first]
        while batch and len(batch) < self._options.max_messages and (delivery := self._take()) is not None:
            batch.append(delivery)
        return batch

    def stop(self, *, drain_seconds: float) -> None:
        """Ends pulling. ``next`` returns pulled messages for ``drain_seconds`` more."""
        until = time.monotonic() + drain_seconds
        self._drain_until = min(self._drain_until, until) if self._stop.is_set() else until
        for event in (self._stop, self._hungry, self._due):
            event.set()
        self._wake(len(self._waiters))

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stop(drain_seconds=0)

    def decide(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None = None) -> None:
        self._handled += 1
        if self._leases.decide(delivery, outcome, time.monotonic(), delay):
            self._due.set()
        if delivery.ordered_key is not None:
            for behind in self._local.free(delivery, outcome):
                if self._leases.decide(behind, DeliveryOutcome.RELEASE, time.monotonic()):
                    self._due.set()
            self._wake(len(self._waiters))
        self._wake_puller()

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledges the messages about which nothing was decided."""
        if not deliveries[0]._lease.ordered:
            self._handled += len(deliveries)
            self._leases.acknowledged(deliveries, time.monotonic())
            self._due.set()
            self._wake_puller()
            return
        for delivery in deliveries:
            self.decide(delivery, DeliveryOutcome.ACK)

    def _wake_puller(self) -> None:
        """Wakes the puller if it waits until the messages in hand are decided."""
        if self._turn.draining:
            self._hungry.set()

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """Gives back the messages about which nothing was decided: they come again at once, with the same attempt."""
        for delivery in deliveries:
            self.decide(delivery, DeliveryOutcome.RELEASE)

    async def finish(self) -> None:
        """Releases the messages that nobody has begun, and waits until all outcomes are settled.

        Called after ``stop``, when no task handles messages any more. Returns after 10 s at the latest: the messages
        that are not settled by then come again when their leases end.
        """
        puller, settler = self._tasks
        try:
            left_seconds = max(0.0, self._drain_until - time.monotonic())
            await asyncio.wait(
                [puller], timeout=max(left_seconds, BUSY_END_SECONDS) if self._busy_pull else left_seconds
            )
            await _ended(puller)  # cuts a pull that still waits; the server then leases nothing for it
            while self._queue:
                self.decide(self._queue.popleft(), DeliveryOutcome.RELEASE)
            self._ending = True
            self._due.set()
            await asyncio.wait([settler], timeout=LAST_SETTLEMENTS_SECONDS)
            await self._listener.give_back(self._doze.given_back())
            self._report_unsettled()
        finally:
            self._turn.stop()
            await _ended(*self._tasks)
            await self._listener.close()
            await self._pulls.close()
            await self._settles.close()

    def _report_unsettled(self) -> None:
        if self._leases.unconfirmed:
            _log.error(
                "stopped with %d pulls not settled: their messages are delivered again", self._leases.unconfirmed
            )

    def _take(self) -> Delivery | None:
        delivery = self._local.take()
        if len(self._queue) <= self._stock.low_water:
            self._hungry.set()
        return delivery

    async def _message_within(self, seconds: float | None) -> None:
        """Waits until another task wakes this one because there may be a message, at most for this time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._note_idle()
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._wake(1)  # this task was woken to take a message, so another task has to
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            self._note_idle()

    def _note_idle(self) -> None:
        self._stock.idle(len(self._waiters), time.monotonic())
        if self._leases.idle(len(self._waiters)):
            self._due.set()

    def _wake(self, count: int) -> None:
        for _ in range(min(count, len(self._waiters))):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def _run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Works in a task. An unexpected error ends the run: nobody waits for a task that has ended."""
        try:
            await work()
        except Exception as error:
            self.fail(error)

    # The puller

    async def _run_puller(self) -> None:
        backoff, outage = PullBackoff(self._options.ids), Outage()
        while (settlements := await self._begin_pull()) is not None:
            pulled: Pulled | CompactPulls | None = None
            suspects = self._turn.fields()
            # The lease of a suspect whose answer a stop cuts off would count an attempt.
            self._busy_pull = self._busy_pull or self._turn.taking
            wait_seconds = pull_seconds(self._options.wait_seconds, busy=self._busy_pull, taking=self._turn.taking)
            began = time.monotonic()
            try:
                pulled = await self._pull(settlements, wait_seconds, suspects)
                took_seconds = time.monotonic() - began
                backoff.answered(pulled.pulls, asked_seconds=wait_seconds, took_seconds=took_seconds)
                rest_after(pulled, backoff, self._doze, self._turn)
                if (seconds := outage.ended(began + took_seconds)) is not None:
                    _log.warning("pulls are answered again, after %.0f s", seconds)
                if settlements:
                    self._log_settled()
            except Closed:
                pass  # stopping
            except (ServerUnavailable, ServerFault) as error:
                backoff.failed(error)
                if outage.failed(error, time.monotonic()):
                    _log.warning("pull failed, retrying: %s", shown(str(error)))
            finally:
                self._end_pull(settlements, pulled)
            if pulled is not None and pulled.wakeup is not None:
                await self._wait_at(pulled.wakeup, backoff)
            await _set_within(self._stop, backoff.seconds())

    async def _wait_at(self, queue: WakeupQueue, backoff: PullBackoff) -> None:
        """Waits at the wake-up queue until it is time for the next pull, or the consumer stops."""
        try:
            waiting = self._doze.begin(queue)
            if waiting is not None:
                await self._listener.wait(waiting, self._stop)
                self._doze.ended(waiting)
                backoff.rests(waiting.pause_seconds)
        except Closed:
            pass  # stopping

    async def _begin_pull(self) -> list[Settlement] | None:
        while not self._stop.is_set() and not (len(self._queue) <= self._stock.low_water and self._turn.may_pull()):
            self._hungry.clear()
            await self._hungry.wait()
        if self._stop.is_set():
            return None
        self._pulling = True
        self._busy_pull = self._leases.in_hand
        now = time.monotonic()
        self._max_messages = self._stock.next_size(self._handled, len(self._queue), now)
        return self._leases.complete(now)

    async def _pull(
        self, settlements: Sequence[Settlement], wait_seconds: float, suspects: Mapping[str, Any]
    ) -> Pulled | CompactPulls:
        options = self._options
        return await pull_encoded(
            self._pulls,
            self._settles,
            options.subject,
            options.group,
            options.consumer_id,
            max_messages=self._max_messages,
            wait_seconds=wait_seconds,
            lease_seconds=options.lease_seconds,
            settle=settlements,
            doze=self._doze,
            turn=self._turn,
            suspects=suspects,
        )

    def _end_pull(self, settlements: Sequence[Settlement], pulled: Pulled | CompactPulls | None) -> None:
        self._pulling = False
        if pulled is None:
            self._leases.unanswered(settlements)
        else:
            now = time.monotonic()
            self._leases.answered(settlements, pulled.settled, now)
            self._leases.is_group_full = pulled.limited_by == "max_in_flight"
            for pull in pulled.pulls:
                if pull.ordered:
                    self._stock.follow(None)  # waiting messages may be of keys in hand: others are needed
                self._queue.extend(self._leases.open(pull, now, self.decide))
            self._turn.answered(pulled)
        self._wake(len(self._waiters) if self._stop.is_set() else len(self._queue))
        self._due.set()

    # The settler

    def _log_settled(self) -> None:
        """Logs the end of an outage of settlements, if there was one."""
        if (seconds := self._settle_outage.ended(time.monotonic())) is not None:
            _log.warning("settlements are answered again, after %.0f s", seconds)

    async def _run_settler(self) -> None:
        failures = 0
        while (settlements := await self._next_settlements()) is not None:
            results: list[Settled] | None = None
            try:
                results = await settle_each(self._settles, self._options.subject, self._options.group, settlements)
                failures = 0
                self._log_settled()
            except (ServerUnavailable, ServerFault) as error:
                failures += 1
                if self._settle_outage.failed(error, time.monotonic()):
                    _log.warning("settlement failed%s, retrying: %s", self._settle_outage.repeated, shown(str(error)))
            except Exception as error:
                self.fail(error)
                results = [Settled("stale") for _ in settlements]  # no retry can help: these leases are lost
            if results is None:
                self._leases.unanswered(settlements)
                # At most 1 s, because leases run out meanwhile.
                await asyncio.sleep(min(pause_seconds(failures, self._options.ids), 1.0))
            else:
                self._leases.answered(settlements, results, time.monotonic())
                self._wake_puller()  # a lease may be lost

    async def _next_settlements(self) -> list[Settlement] | None:
        while True:
            self._due.clear()
            now = time.monotonic()
            if self._ending and not self._leases.unconfirmed:
                return None
            settlements = self._leases.due(now, ending=self._ending)
            if settlements:
                return settlements
            due_at = self._leases.next_due()
            await _set_within(self._due, None if due_at is None else max(0.0, due_at - now))


async def _set_within(event: asyncio.Event, seconds: float | None) -> None:
    """Waits until the event is set, at most for this time (None: without a limit)."""
    if seconds == 0:
        return
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


def _cancelled(tasks: Sequence[asyncio.Task[None]]) -> Sequence[asyncio.Task[None]]:
    for task in tasks:
        task.cancel()
    return tasks


def _ended(*tasks: asyncio.Task[None]) -> Coroutine[Any, Any, Any]:
    """Cancels the tasks, and waits for their end."""
    return asyncio.wait(_cancelled(tasks))
