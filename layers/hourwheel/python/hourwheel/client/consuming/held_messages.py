"""Holds what a consumer has pulled and not settled, and wakes those who wait for it."""

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome
from hourwheel.client.consuming.lease_tracker import LeaseTracker
from hourwheel.client.consuming.local_queue import LocalQueue
from hourwheel.client.consuming.stock import Stock
from hourwheel.client.consuming.suspects import SuspectTurn
from hourwheel.client.options import PrefetchOptions
from hourwheel.locks import gives_back
from hourwheel.model.fields import Delay

T = TypeVar("T")
C = TypeVar("C", bound="Wakes")


class Wakes(Protocol):
    """Wakes threads or tasks that wait for a change of the session."""

    def notify(self, n: int = 1) -> None: ...
    def notify_all(self) -> None: ...


class LookResult(NamedTuple, Generic[T]):
    """Whether a thread or task can go on, with ``result``. Otherwise it looks again when it is woken, or after
    ``wait_seconds`` (None: only then)."""

    ready: bool
    result: T | None = None
    wait_seconds: float | None = None


class HeldMessages(ABC, Generic[C]):
    """Hands out the messages of one run of a consumer, and records what is decided about them.

    Driven by threads, messages may be taken and decided in any thread; driven by tasks, in their event loop alone.
    Tasks pay for the lock too, which takes less than a tenth of a microsecond.
    """

    def __init__(
        self,
        options: PrefetchOptions[Any],
        condition: Callable[[threading.RLock], C],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._now = now
        self._leases = LeaseTracker(lease_seconds=options.lease_seconds, linger_seconds=options.settle_linger_seconds)
        self._turn = SuspectTurn(self._leases, options.max_messages)
        self._local = LocalQueue()
        self._queue = self._local.deliveries
        self._stock = Stock(options.max_messages)
        self._handled = 0  # messages that were decided so far
        self._idle_handlers = 0  # threads or tasks that wait for a message
        self._unordered = False  # whether the last pull said that the group keeps no order of keys
        self._acked: deque[Delivery] = deque()  # acknowledged, and not recorded in ``_leases`` yet
        self._recorded_at = 0.0
        self._idle_settler = False  # whether the settler has seen no lingering outcome, so that a new one must wake it
        self._hungry_puller = False  # whether the puller waits for room
        # Reentrant: a signal handler may call ``stop`` while its thread is in here.
        self._lock = threading.RLock()
        self._ready = condition(self._lock)  # a message waits to be handled
        self._hungry = condition(self._lock)  # the local queue has room for a pull
        self._due = condition(self._lock)  # a settlement waits to be sent
        self._pulling = False
        self._busy_pull = False
        self._stopping = False
        self._drain_until = 0.0
        self.failure: BaseException | None = None

    @property
    def lost_messages(self) -> int:
        return self._leases.lost_messages

    def _look_for_message(self) -> LookResult[Delivery]:
        """Is ready with a message, or with None once the session is stopped and drained."""
        left_seconds = self._drain_until - self._now() if self._stopping else None
        if left_seconds is not None and left_seconds <= 0:
            return LookResult(True)
        delivery = self._take()
        if delivery is not None:
            return LookResult(True, delivery)
        # A pull that began without a message in hand may wait long: ``finish`` cuts it.
        drained = self._stopping and not self._queue and not (self._pulling and self._busy_pull)
        return LookResult(drained, None, left_seconds)

    @gives_back
    def _with_more(self, first: Delivery | None) -> list[Delivery]:
        """Returns a message with those that are there, up to ``max_messages``; no message without a first one."""
        if first is None:
            return []
        batch = [first]
        with self._lock:
            while (
                len(batch) < self._options.max_messages
                and (delivery := self._next_at_once() if self._unordered else self._take()) is not None
            ):
                batch.append(delivery)
        return batch

    def _next_at_once(self) -> Delivery | None:
        """Removes and returns a message, without the lock, which would cost more than the rest. A deque is
        thread-safe by itself."""
        queue = self._queue
        while queue:
            try:
                delivery = queue.popleft()
            except IndexError:  # another thread was faster
                return None
            if self._hungry_puller and len(queue) <= self._stock.low_water:
                self._wake_hungry()
            if not delivery._lease.lost:
                return delivery
        return None

    def _take(self) -> Delivery | None:
        """Removes and returns the first message that may be handled now, or None."""
        taken = self._local.take()
        if len(self._queue) <= self._stock.low_water:
            self._hungry.notify()
        return taken

    def _note_idle(self, more: int) -> None:
        self._idle_handlers += more
        self._stock.idle(self._idle_handlers, self._now())
        if self._leases.idle(self._idle_handlers):
            self._due.notify()

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledges the messages about which nothing was decided."""
        if deliveries[0]._lease.ordered:
            for delivery in deliveries:
                delivery.ack()
            return
        self._acked.extend(deliveries)
        self._wake_after_acks()

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """Gives back the messages about which nothing was decided: they come again at once, with the same attempt."""
        for delivery in deliveries:
            self._decide(delivery, DeliveryOutcome.RELEASE)

    def _decide(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None = None) -> None:
        if outcome is DeliveryOutcome.ACK and not delivery._lease.ordered:
            self._acked.append(delivery)  # recorded with many others, under one lock
            self._wake_after_acks()
            return
        self._decide_at_once(delivery, outcome, delay)

    @gives_back
    def _decide_at_once(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None) -> None:
        with self._lock:
            now = self._now()
            self._record_acks(now)  # the first decision about a message counts
            self._handled += 1
            due = self._leases.decide(delivery, outcome, now, delay)
            if delivery.ordered_key is not None:
                for behind in self._local.free(delivery, outcome):
                    due |= self._leases.decide(behind, DeliveryOutcome.RELEASE, now)
                self._ready.notify_all()
            if due:
                self._due.notify()
            self._wake_puller()

    @gives_back
    def _wake_after_acks(self) -> None:
        if self._idle_settler:
            self._wake_settler()
        if self._turn.draining:
            with self._lock:
                self._record_acks(self._now())
                self._wake_puller()

    def _record_acks(self, now: float) -> None:
        """Records the acknowledgements since the last call, as if all had come right after it: reading the clock for
        each would cost more."""
        if self._acked:
            acked = [self._acked.popleft() for _ in range(len(self._acked))]
            self._handled += len(acked)
            self._leases.acknowledged(acked, now if self._idle_settler else self._recorded_at)
        self._recorded_at = now

    def _wake_puller(self) -> None:
        """Wakes the puller if it waits for the messages in hand."""
        if self._turn.draining:
            if not self._pulling:
                self._turn.end()
            self._hungry.notify()

    @gives_back
    def _wake_hungry(self) -> None:
        with self._lock:
            self._hungry_puller = False  # one call is enough; the puller says so if it still waits
            self._hungry.notify()

    @gives_back
    def _wake_settler(self) -> None:
        with self._lock:
            if self._idle_settler:
                self._idle_settler = False
                self._due.notify()

    @abstractmethod
    def _wake_handlers(self) -> None:
        """Wakes those that wait for a message, after messages came or the session stopped."""

    @gives_back
    def stop(self, *, drain_seconds: float) -> None:
        """Ends pulling, also when a signal handler calls it. ``next`` returns pulled messages for ``drain_seconds``
        more."""
        with self._lock:
            until = self._now() + drain_seconds
            self._drain_until = min(self._drain_until, until) if self._stopping else until
            self._stopping = True
            for condition in (self._ready, self._hungry, self._due):
                condition.notify_all()

    @gives_back
    def fail(self, error: BaseException) -> None:
        with self._lock:
            self.failure = self.failure or error
        self.stop(drain_seconds=0)

    def _release_queue(self) -> None:
        self.release(self._local.pop(len(self._queue))[::-1])
