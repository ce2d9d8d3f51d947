"""Pulls and settles in the background, so that the threads that handle messages do neither.

One thread pulls when the local queue runs low, and sends the settlements of completed pulls with the request. Another
thread sends the settlements that no pull takes along within the linger, and extends the leases of messages that take
long.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hourwheel.client.api import Api
from hourwheel.client.calls.pull import pull_encoded
from hourwheel.client.consuming.dozing import Doze, QueueListener
from hourwheel.client.consuming.lease_tracker import Delivery, DeliveryOutcome, LeaseTracker
from hourwheel.client.consuming.local_queue import LocalQueue
from hourwheel.client.consuming.settlements import UNKNOWN_RECEIPT, settle_each, settle_timeout
from hourwheel.client.consuming.stock import Stock
from hourwheel.client.consuming.suspects import SuspectTurn, rest_after
from hourwheel.client.errors import BadRequest, Closed, ServerFault, ServerUnavailable
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.client.transport.backoff import Outage, PullBackoff, pause_seconds
from hourwheel.locks import Condition, gives_back
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


class PrefetchOptions(NamedTuple):
    connect: Callable[..., Api]
    subject: str
    group: str
    consumer_id: str
    max_messages: int
    wait_seconds: float
    lease_seconds: int
    settle_linger_seconds: float
    ids: Ids


def pull_seconds(wait_seconds: float, *, busy: bool, taking: bool) -> float:
    """Returns for how long a pull waits. ``busy``: the consumer has messages in hand when the pull begins. ``taking``:
    it takes suspects."""
    return min(wait_seconds, 0.0 if taking else BUSY_WAIT_SECONDS if busy else wait_seconds)


class Prefetcher:
    """Pulls ahead for one run of a consumer: ``start``, ``next`` from any thread, ``stop``, ``finish``."""

    def __init__(self, options: PrefetchOptions) -> None:
        self._options = options
        # Each thread has connections of its own: cutting a pull must not cut a settlement.
        self._pulls = options.connect()
        self._settles = options.connect(timeout_seconds=settle_timeout(options.lease_seconds))
        self._leases = LeaseTracker(lease_seconds=options.lease_seconds, linger_seconds=options.settle_linger_seconds)
        self._turn = SuspectTurn(self._leases, options.max_messages)
        self._local = LocalQueue()
        self._queue = self._local.deliveries
        self._doze = Doze(self._pulls._http.signer, self._pulls._http.host)
        self._listener = QueueListener()
        self._stock = Stock(options.max_messages)
        self._max_messages = options.max_messages  # of the pull under way
        self._handled = 0  # messages that were decided so far
        self._idle_handlers = 0  # threads that wait for a message
        self._unordered = False  # whether the last pull said that the group keeps no order of keys
        self._acked: deque[Delivery] = deque()  # acknowledged, and not recorded in ``_leases`` yet
        self._recorded_at = 0.0
        self._settler_until = 0.0  # the time at which the settler wakes by itself
        self._idle_settler = False  # whether the settler has seen no lingering outcome, so that a new one must wake it
        self._hungry_puller = False  # whether the puller waits for room
        # Reentrant: a signal handler may call ``stop`` while its thread is in here.
        self._lock = threading.RLock()
        self._ready = Condition(self._lock)  # a message waits to be handled
        self._hungry = Condition(self._lock)  # the local queue has room for a pull
        self._due = Condition(self._lock)  # a settlement waits to be sent
        self._settle_outage = Outage()
        self._pulling = False
        self._busy_pull = False
        self._stopping = False
        self._drain_until = 0.0
        self._ending = False
        self._end_at = 0.0
        self.failure: BaseException | None = None
        self._puller, self._settler = (
            threading.Thread(target=self._run, args=(work,), name=f"hourwheel-{name}", daemon=True)
            for name, work in (("puller", self._run_puller), ("settler", self._run_settler))
        )

    @property
    def lost_messages(self) -> int:
        return self._leases.lost_messages

    def start(self, handlers: int | None = None) -> None:
        """Starts to pull. ``handlers`` is the number of handlers that the stock follows."""
        self._stock.follow(handlers)
        self._puller.start()
        self._settler.start()

    def next(self) -> Delivery | None:
        """Waits for a message and returns it, or returns None once the prefetcher is stopped and drained."""
        if self._unordered and not self._stopping and (delivery := self._next_at_once()) is not None:
            return delivery
        return self._wait_for_next()

    @gives_back
    def _wait_for_next(self) -> Delivery | None:
        with self._lock:
            while True:
                since = self._ready.notifications  # a signal handler may call ``stop`` behind the look
                left_seconds = self._drain_until - time.monotonic() if self._stopping else None
                if left_seconds is not None and left_seconds <= 0:
                    return None
                delivery = self._take()
                if delivery is not None:
                    return delivery
                # A pull that began without a message in hand may wait long: ``finish`` cuts it.
                if self._stopping and not self._queue and not (self._pulling and self._busy_pull):
                    return None
                self._note_idle(1)
                try:
                    self._ready.wait(left_seconds, since)
                finally:
                    self._note_idle(-1)

    @gives_back
    def next_batch(self) -> list[Delivery]:
        """Waits for a message, and returns it with those that are there, up to ``max_messages``. Returns no message
        once the prefetcher is stopped and drained. The messages of an ordered group have different keys."""
        first = self.next()
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

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledges the messages about which nothing was decided."""
        if deliveries[0]._lease.ordered:
            for delivery in deliveries:
                delivery.ack()
            return
        self._acked.extend(deliveries)
        self._wake_after_acks()

    def _note_idle(self, more: int) -> None:
        self._idle_handlers += more
        self._stock.idle(self._idle_handlers, time.monotonic())
        if self._leases.idle(self._idle_handlers):
            self._due.notify()

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

    @gives_back
    def _wake_hungry(self) -> None:
        with self._lock:
            self._hungry_puller = False  # one call is enough; the puller says so if it still waits
            self._hungry.notify()

    def _take(self) -> Delivery | None:
        """Removes and returns the first message that may be handled now, or None."""
        taken = self._local.take()
        if len(self._queue) <= self._stock.low_water:
            self._hungry.notify()
        return taken

    @gives_back
    def stop(self, *, drain_seconds: float) -> None:
        """Ends pulling, also when a signal handler calls it. ``next`` returns pulled messages for ``drain_seconds``
        more."""
        with self._lock:
            until = time.monotonic() + drain_seconds
            self._drain_until = min(self._drain_until, until) if self._stopping else until
            self._stopping = True
            for condition in (self._ready, self._hungry, self._due):
                condition.notify_all()

    @gives_back
    def fail(self, error: BaseException) -> None:
        with self._lock:
            self.failure = self.failure or error
        self.stop(drain_seconds=0)

    @gives_back
    def finish(self) -> None:
        """Releases the messages that nobody has begun, and waits until all outcomes are settled.

        Called after ``stop``, when no thread handles messages any more. Returns after 10 s at the latest: the messages
        that are not settled by then come again when their leases end.
        """
        self._listener.close()
        left_seconds = max(0.0, self._drain_until - time.monotonic())
        if self._puller.is_alive():
            self._puller.join(max(left_seconds, BUSY_END_SECONDS) if self._busy_pull else left_seconds)
        self._pulls.close()  # cuts a pull that still waits; the messages of its answer come again when their lease ends
        if self._puller.is_alive():
            self._puller.join()
        self._listener.give_back(self._doze.given_back())
        with self._lock:
            self._record_acks(time.monotonic())
            for delivery in reversed(self._local.pop(len(self._queue))):
                self._decide(delivery, DeliveryOutcome.RELEASE)
            self._ending = True
            self._end_at = time.monotonic() + LAST_SETTLEMENTS_SECONDS
            self._due.notify_all()
        self._turn.stop()
        self._settler.join()
        self._settles.close()

    def _decide(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None = None) -> None:
        if outcome is DeliveryOutcome.ACK and not delivery._lease.ordered:
            self._acked.append(delivery)  # recorded with many others, under one lock
            self._wake_after_acks()
            return
        self._decide_at_once(delivery, outcome, delay)

    @gives_back
    def _decide_at_once(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None) -> None:
        with self._lock:
            now = time.monotonic()
            self._record_acks(now)  # the first decision about a message counts
            self._handled += 1
            if self._leases.decide(delivery, outcome, now, delay):
                self._due.notify()
            if delivery.ordered_key is not None:
                self._free(delivery, outcome)
            self._wake_puller()

    @gives_back
    def _wake_after_acks(self) -> None:
        if self._idle_settler:
            self._wake_settler()
        if self._turn.draining:
            with self._lock:
                self._record_acks(time.monotonic())
                self._wake_puller()

    def _wake_puller(self) -> None:
        """Wakes the puller if it waits for the messages in hand."""
        if self._turn.draining:
            if not self._pulling:
                self._turn.end()
            self._hungry.notify()

    @gives_back
    def _wake_settler(self) -> None:
        with self._lock:
            if self._idle_settler:
                self._idle_settler = False
                self._due.notify()

    def _record_acks(self, now: float) -> None:
        """Records the acknowledgements since the last call, as if all had come right after it: reading the clock for
        each would cost more."""
        if self._acked:
            acked = [self._acked.popleft() for _ in range(len(self._acked))]
            self._handled += len(acked)
            self._leases.acknowledged(acked, now if self._idle_settler else self._recorded_at)
        self._recorded_at = now

    def _free(self, delivery: Delivery, outcome: DeliveryOutcome) -> None:
        for behind in self._local.free(delivery, outcome):
            if self._leases.decide(behind, DeliveryOutcome.RELEASE, time.monotonic()):
                self._due.notify()
        self._ready.notify_all()

    def _run(self, work: Callable[[], None]) -> None:
        """Works on a thread. An unexpected error ends the run: nobody waits for a thread that has ended."""
        try:
            work()
        except BaseException as error:
            self.fail(error)

    # The puller

    @gives_back
    def _run_puller(self) -> None:
        backoff, outage = PullBackoff(self._options.ids), Outage()
        while (settlements := self._begin_pull()) is not None:
            pulled: Pulled | CompactPulls | None = None
            fields = self._fields()
            wait_seconds = pull_seconds(self._longest_wait(), busy=self._busy_pull, taking=self._turn.taking)
            began = time.monotonic()
            try:
                pulled = self._pull(settlements, wait_seconds, fields)
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
                self._wait_at(pulled.wakeup, backoff)
            with self._lock:
                self._hungry.wait_for(lambda: self._stopping, backoff.seconds())

    def _wait_at(self, queue: WakeupQueue, backoff: PullBackoff) -> None:
        """Waits at the wake-up queue until it is time for the next pull, or ``finish`` is called."""
        waiting = self._doze.begin(queue)
        if waiting is not None:
            self._listener.wait(waiting)
            self._doze.ended(waiting)
            backoff.rests(waiting.pause_seconds)

    @gives_back
    def _begin_pull(self) -> list[Settlement] | None:
        with self._lock:
            self._hungry.wait_for(self._begins_pull)
            if self._stopping:
                return None
            now = time.monotonic()
            self._record_acks(now)
            self._pulling = True
            self._busy_pull = self._leases.in_hand
            self._max_messages = self._next_size(now)
            return self._leases.complete(now)

    def _begins_pull(self) -> bool:
        """Returns whether the puller need not wait. Says that it waits before it looks, so that no call to wake it is
        missed."""
        self._hungry_puller = True
        begins = self._stopping or (self._may_pull() and self._has_room())
        self._hungry_puller = not begins
        return begins

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
            self._record_acks(time.monotonic())
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
    ) -> Pulled | CompactPulls:
        options = self._options
        try:
            return pull_encoded(
                self._pulls,
                options.subject,
                options.group,
                options.consumer_id,
                max_messages=self._max_messages,
                wait_seconds=wait_seconds,
                lease_seconds=options.lease_seconds,
                settle=settlements,
                rest=rest,
            )
        except BadRequest as error:
            if rest and (self._doze.refused(error) or self._turn.refused(error)):
                return self._pull(settlements, wait_seconds, self._fields())
            if not settlements or error.slug != UNKNOWN_RECEIPT:
                raise
            return Pulled(pulls=[], settled=self._settle(settlements))

    @gives_back
    def _end_pull(self, settlements: Sequence[Settlement], pulled: Pulled | CompactPulls | None) -> None:
        with self._lock:
            now = time.monotonic()
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
            self._ready.notify_all()
            due_at = self._leases.next_due()
            if due_at is not None and due_at < self._settler_until:
                self._due.notify()

    # The settler

    def _log_settled(self) -> None:
        """Logs the end of an outage of settlements, if there was one."""
        if (seconds := self._settle_outage.ended(time.monotonic())) is not None:
            _log.warning("settlements are answered again, after %.0f s", seconds)

    @gives_back
    def _run_settler(self) -> None:
        failures = 0
        while (settlements := self._next_settlements()) is not None:
            results: list[Settled] | None = None
            try:
                results = self._settle(settlements)
                failures = 0
                self._log_settled()
            except (ServerUnavailable, ServerFault) as error:
                failures += 1
                if self._settle_outage.failed(error, time.monotonic()):
                    _log.warning("settlement failed%s, retrying: %s", self._settle_outage.repeated, shown(str(error)))
            except BaseException as error:
                self.fail(error)
                results = [Settled("stale") for _ in settlements]  # no retry can help: these leases are lost
            with self._lock:
                if results is None:
                    self._leases.unanswered(settlements)
                else:
                    self._leases.answered(settlements, results, time.monotonic())
                self._wake_puller()  # a lease may be lost
            if failures:
                self._pause(failures)

    @gives_back
    def _next_settlements(self) -> list[Settlement] | None:
        with self._lock:
            while True:
                now = time.monotonic()
                self._record_acks(now)
                self._idle_settler = False
                if self._ending and (not self._leases.unconfirmed or now >= self._end_at):
                    if left := self._leases.unconfirmed:
                        _log.error("stopped with %d pulls not settled: their messages are delivered again", left)
                    return None
                settlements = self._leases.due(now, ending=self._ending)
                if settlements:
                    return settlements
                due_at = self._leases.next_due()
                self._settler_until = math.inf if due_at is None else due_at
                self._idle_settler = not self._leases.lingering
                # A message that was acknowledged just before did not wake the settler: look again.
                if not (self._idle_settler and self._acked):
                    until = min(math.inf if due_at is None else due_at, self._end_at if self._ending else math.inf)
                    self._due.wait(None if until == math.inf else max(0.0, until - now))

    def _settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        subject, group = self._options.subject, self._options.group
        return settle_each(lambda each: self._settles.settle(subject, group, each, retry_seconds=0), settlements)

    @gives_back
    def _pause(self, failures: int) -> None:
        """Pauses before settlements are retried, at most 1 s, because leases run out meanwhile."""
        with self._lock:
            self._due.wait_for(lambda: False, min(pause_seconds(failures, self._options.ids), 1.0))
