"""Decides what a consumer pulls and settles, and when.

This module has no threads, no tasks and no connections: a driver runs the steps of the puller and those of the settler,
each in a thread or in a task, and makes their calls. ``prefetcher.py`` drives threads, ``aio/prefetcher.py`` tasks.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from hourwheel.client.calls.pull import PullCalls, pull_encoded
from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome
from hourwheel.client.consuming.dozing import Doze, QueueListener
from hourwheel.client.consuming.lease_tracker import LeaseTracker
from hourwheel.client.consuming.local_queue import LocalQueue
from hourwheel.client.consuming.settlements import UNKNOWN_RECEIPT, settle_each
from hourwheel.client.consuming.stock import Stock
from hourwheel.client.consuming.suspects import SuspectTurn, rest_after
from hourwheel.client.errors import BadRequest, Closed, ServerFault, ServerUnavailable
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.client.transport.backoff import Outage, PullBackoff, pause_seconds
from hourwheel.client.transport.steps import Steps
from hourwheel.locks import gives_back
from hourwheel.model.fields import Delay
from hourwheel.model.pulls import Settled, Settlement, WakeupQueue
from hourwheel.ports.machine import Ids
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")

LAST_SETTLEMENTS_SECONDS = 10.0  # a stop does not wait longer for a server that does not answer

# A pull waits for long only if it began without a message in hand: such a pull may be cut at once by a stop. A pull
# that began with messages in hand could lease the messages that a stop releases, for a consumer that has ended. So it
# is short, and a stop waits for its end before it releases messages.
BUSY_WAIT_SECONDS = 1.0
BUSY_END_SECONDS = 3.0  # the wait of a busy pull, and two seconds for its answer

_LONGEST_PAUSE_SECONDS = 1.0  # before settlements are retried: leases run out meanwhile

A = TypeVar("A")
T = TypeVar("T")
C = TypeVar("C", bound="Wakes")


class PrefetchOptions(NamedTuple, Generic[A]):
    connect: Callable[..., A]
    subject: str
    group: str
    consumer_id: str
    max_messages: int
    wait_seconds: float
    lease_seconds: int
    settle_linger_seconds: float
    ids: Ids


class Wakes(Protocol):
    """Wakes threads or tasks that wait for a change of the session."""

    def notify(self, n: int = 1) -> None: ...
    def notify_all(self) -> None: ...


class Readiness(NamedTuple, Generic[T]):
    """Whether a thread or task can go on, with ``result``. Otherwise it looks again when it is woken, or after
    ``wait_seconds`` (None: only then)."""

    ready: bool
    result: T | None = None
    wait_seconds: float | None = None


def pull_seconds(wait_seconds: float, *, busy: bool, taking: bool) -> float:
    """Returns for how long a pull waits. ``busy``: the consumer has messages in hand when the pull begins. ``taking``:
    it takes suspects."""
    return min(wait_seconds, 0.0 if taking else BUSY_WAIT_SECONDS if busy else wait_seconds)


class PullSession(Generic[C]):
    """Holds what one run of a consumer has pulled and not settled. ``pulling`` and ``settling`` are the steps of its
    puller and of its settler; a driver adds the calls that wait.

    Thread-safe: messages may be taken and decided in any thread. The driver of tasks pays for the lock too, which takes
    less than a tenth of a microsecond.
    """

    def __init__(
        self,
        options: PrefetchOptions[Any],
        pulls: PullCalls,
        settles: PullCalls,
        listener: QueueListener,
        condition: Callable[[threading.RLock], C],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._now = now
        self._pull_calls = pulls
        self._settle_calls = settles
        self._leases = LeaseTracker(lease_seconds=options.lease_seconds, linger_seconds=options.settle_linger_seconds)
        self._turn = SuspectTurn(self._leases, options.max_messages)
        self._local = LocalQueue()
        self._queue = self._local.deliveries
        self._doze = Doze(pulls._http.signer, pulls._http.host)
        self._listener = listener
        self._stock = Stock(options.max_messages)
        self._max_messages = options.max_messages  # of the pull under way
        self._handled = 0  # messages that were decided so far
        self._idle_handlers = 0  # threads or tasks that wait for a message
        self._unordered = False  # whether the last pull said that the group keeps no order of keys
        self._acked: deque[Delivery] = deque()  # acknowledged, and not recorded in ``_leases`` yet
        self._recorded_at = 0.0
        self._settler_until = 0.0  # the time at which the settler wakes by itself
        self._idle_settler = False  # whether the settler has seen no lingering outcome, so that a new one must wake it
        self._hungry_puller = False  # whether the puller waits for room
        # Reentrant: a signal handler may call ``stop`` while its thread is in here.
        self._lock = threading.RLock()
        self._ready = condition(self._lock)  # a message waits to be handled
        self._hungry = condition(self._lock)  # the local queue has room for a pull
        self._due = condition(self._lock)  # a settlement waits to be sent
        self._settle_outage = Outage()
        self._pulling = False
        self._busy_pull = False
        self._stopping = False
        self._drain_until = 0.0
        self._ending = False
        self._end_at = 0.0
        self.failure: BaseException | None = None

    @property
    def lost_messages(self) -> int:
        return self._leases.lost_messages

    # What a driver adds

    def _wait(self, condition: C, look: Callable[[], Readiness[T]]) -> Any:
        """Returns the result of ``look`` once it is ready. Calls it again whenever ``condition`` is notified."""
        raise NotImplementedError

    def _wake_handlers(self) -> None:
        """Wakes those that wait for a message, after messages came or the session stopped."""
        raise NotImplementedError

    # Handlers

    def _look_for_message(self) -> Readiness[Delivery]:
        """Is ready with a message, or with None once the session is stopped and drained."""
        left_seconds = self._drain_until - self._now() if self._stopping else None
        if left_seconds is not None and left_seconds <= 0:
            return Readiness(True)
        delivery = self._take()
        if delivery is not None:
            return Readiness(True, delivery)
        # A pull that began without a message in hand may wait long: ``finish`` cuts it.
        drained = self._stopping and not self._queue and not (self._pulling and self._busy_pull)
        return Readiness(drained, None, left_seconds)

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

    # The end

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

    def _pull_end_seconds(self) -> float:
        """Returns how long a stop waits for the pull under way before it cuts the pull."""
        left_seconds = max(0.0, self._drain_until - self._now())
        return max(left_seconds, BUSY_END_SECONDS) if self._busy_pull else left_seconds

    @gives_back
    def _end(self) -> None:
        """Releases the messages that nobody has begun, and lets the settler end once all outcomes are settled. Called
        when the puller has ended, and nobody handles messages any more."""
        with self._lock:
            self._record_acks(self._now())
            self._release_queue()
            self._ending = True
            self._end_at = self._now() + LAST_SETTLEMENTS_SECONDS
            self._due.notify_all()
        self._turn.stop()

    def _release_queue(self) -> None:
        self.release(self._local.pop(len(self._queue))[::-1])

    def _report_unsettled(self) -> None:
        if left := self._leases.unconfirmed:
            _log.error("stopped with %d pulls not settled: their messages are delivered again", left)

    def _pause(self, condition: C, seconds: float, over: Callable[[], bool] = lambda: False) -> Any:
        """Waits for this time, or until ``over`` is true."""
        until = self._now() + seconds

        def look() -> Readiness[None]:
            left_seconds = until - self._now()
            return Readiness(left_seconds <= 0 or over(), None, left_seconds)

        return self._wait(condition, look)

    # The puller

    def pulling(self) -> Steps[None]:
        """Pulls whenever the local queue runs low, and sends the settlements of completed pulls with the request."""
        backoff, outage = PullBackoff(self._options.ids), Outage()
        while (settlements := (yield self._wait(self._hungry, self._begin_pull))) is not None:
            pulled: Pulled | CompactPulls | None = None
            fields = self._fields()
            wait_seconds = pull_seconds(self._longest_wait(), busy=self._busy_pull, taking=self._turn.taking)
            began = self._now()
            try:
                pulled = yield from self._pull(settlements, wait_seconds, fields)
                took_seconds = self._now() - began
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
                if outage.failed(error, self._now()):
                    _log.warning("pull failed, retrying: %s", shown(str(error)))
            finally:
                self._end_pull(settlements, pulled)
            if pulled is not None and pulled.wakeup is not None:
                yield from self._rest_at(pulled.wakeup, backoff)
            yield self._pause(self._hungry, backoff.seconds(), lambda: self._stopping)

    def _rest_at(self, queue: WakeupQueue, backoff: PullBackoff) -> Steps[None]:
        waiting = self._doze.begin(queue)
        if waiting is not None:
            yield from self._listener.wait(waiting)
            self._doze.ended(waiting)
            backoff.rests(waiting.pause_seconds)

    def _begin_pull(self) -> Readiness[list[Settlement]]:
        """Is ready with the settlements that the next pull takes along, once there is room for its messages; with None
        once the session is stopped."""
        self._hungry_puller = True  # says that the puller waits before it looks, so that no call to wake it is missed
        begins = self._stopping or (self._may_pull() and self._has_room())
        self._hungry_puller = not begins
        if self._stopping or not begins:
            return Readiness(begins)
        now = self._now()
        self._record_acks(now)
        self._pulling = True
        self._busy_pull = self._leases.in_hand
        self._max_messages = self._next_size(now)
        return Readiness(True, self._leases.complete(now))

    @gives_back
    def _fields(self, *, alone: bool = False) -> dict[str, Any]:
        """Returns what the next pull says of a rest, and of suspects."""
        with self._lock:
            suspects = self._turn.fields(alone=alone)
            # A suspect whose answer a stop cuts off would lose an attempt.
            self._busy_pull = self._busy_pull or self._turn.taking
            return {**self._doze.fields(), **suspects}

    def _may_pull(self) -> bool:
        """Returns whether no suspect is in hand, or waits until the messages in hand are decided."""
        if self._turn.draining:
            self._record_acks(self._now())
        return self._turn.may_pull()

    def _has_room(self) -> bool:
        """Returns whether it is time for the next pull."""
        return len(self._queue) <= self._stock.low_water

    def _longest_wait(self) -> float:
        return self._options.wait_seconds

    def _next_size(self, now: float) -> int:
        """Returns how many messages the next pull asks for."""
        return self._stock.next_size(self._handled, len(self._queue), now)

    def _pull(
        self, settlements: Sequence[Settlement], wait_seconds: float, rest: Mapping[str, Any] | None = None
    ) -> Steps[Pulled | CompactPulls]:
        options = self._options
        try:
            pulled: Pulled | CompactPulls = yield pull_encoded(
                self._pull_calls,
                options.subject,
                options.group,
                options.consumer_id,
                max_messages=self._max_messages,
                wait_seconds=wait_seconds,
                lease_seconds=options.lease_seconds,
                settle=settlements,
                rest=rest,
            )
            return pulled
        except BadRequest as error:
            unknown = bool(rest) and (self._doze.refused(error) or self._turn.refused(error))
            if not unknown and (not settlements or error.slug != UNKNOWN_RECEIPT):
                raise
        if unknown:
            return (yield from self._pull(settlements, wait_seconds, self._fields()))
        return Pulled(pulls=[], settled=(yield from self._settle(settlements)))

    @gives_back
    def _end_pull(self, settlements: Sequence[Settlement], pulled: Pulled | CompactPulls | None) -> None:
        with self._lock:
            now = self._now()
            self._pulling = False
            if pulled is None:
                self._leases.unanswered(settlements)
            else:
                self._leases.answered(settlements, pulled.settled, now)
                self._leases.is_group_full = pulled.limited_by == "max_in_flight"
                for pull in pulled.pulls:
                    self._unordered = not pull.ordered
                    if pull.ordered:
                        self._stock.follow(None)  # waiting messages may be of keys in hand: others are needed
                    self._queue.extend(self._leases.open(pull, now, self._decide))
                self._turn.answered(pulled)
            self._wake_handlers()
            due_at = self._leases.next_due()
            if due_at is not None and due_at < self._settler_until:
                self._due.notify()

    # The settler

    def settling(self) -> Steps[None]:
        """Sends the settlements that no pull takes along within the linger, and extends the leases of messages that
        take long."""
        failures = 0
        while (settlements := (yield self._wait(self._due, self._next_settlements))) is not None:
            results: list[Settled] | None = None
            try:
                results = yield from self._settle(settlements)
                failures = 0
                self._log_settled()
            except (ServerUnavailable, ServerFault) as error:
                failures += 1
                if self._settle_outage.failed(error, self._now()):
                    _log.warning("settlement failed%s, retrying: %s", self._settle_outage.repeated, shown(str(error)))
            except Exception as error:
                self.fail(error)
                results = [Settled("stale") for _ in settlements]  # no retry can help: these leases are lost
            self._settled(settlements, results)
            if failures:
                yield self._pause(self._due, min(pause_seconds(failures, self._options.ids), _LONGEST_PAUSE_SECONDS))

    def _settle(self, settlements: Sequence[Settlement]) -> Steps[list[Settled]]:
        calls, subject, group = self._settle_calls, self._options.subject, self._options.group
        return settle_each(lambda sent: calls.settle(subject, group, sent, retry_seconds=0), settlements)

    @gives_back
    def _settled(self, settlements: Sequence[Settlement], results: Sequence[Settled] | None) -> None:
        with self._lock:
            if results is None:
                self._leases.unanswered(settlements)
            else:
                self._leases.answered(settlements, results, self._now())
            self._wake_puller()  # a lease may be lost

    def _next_settlements(self) -> Readiness[list[Settlement]]:
        """Is ready with the settlements to send now; with None once the session ends and nothing is left to settle."""
        now = self._now()
        self._record_acks(now)
        self._idle_settler = False
        if self._ending and (not self._leases.unconfirmed or now >= self._end_at):
            return Readiness(True)
        settlements = self._leases.due(now, ending=self._ending)
        if settlements:
            return Readiness(True, settlements)
        due_at = self._leases.next_due()
        self._settler_until = math.inf if due_at is None else due_at
        self._idle_settler = not self._leases.lingering
        if self._idle_settler and self._acked:
            return Readiness(False, None, 0.0)  # a message that was acknowledged just before did not wake the settler
        until = min(self._settler_until, self._end_at if self._ending else math.inf)
        return Readiness(False, None, None if until == math.inf else max(0.0, until - now))

    def _log_settled(self) -> None:
        """Logs the end of an outage of settlements, if there was one."""
        if (seconds := self._settle_outage.ended(self._now())) is not None:
            _log.warning("settlements are answered again, after %.0f s", seconds)
