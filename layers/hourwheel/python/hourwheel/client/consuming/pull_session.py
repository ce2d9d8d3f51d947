"""Decides what a consumer pulls and settles, and when.

This module has no threads, no tasks and no connections. A driver runs the steps of the puller and those of the settler,
each in a thread or in a task, and makes their calls. ``prefetcher.py`` drives threads, ``aio/prefetcher.py`` tasks.
"""

import logging
import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hourwheel.client.calls.pull import PullCalls, pull_encoded
from hourwheel.client.consuming.dozing import Doze, QueueListener
from hourwheel.client.consuming.held_messages import HeldMessages, LookResult, Wakes
from hourwheel.client.consuming.settlements import UNKNOWN_RECEIPT, settle_each
from hourwheel.client.consuming.suspects import rest_after
from hourwheel.client.errors import BadRequest, Closed, ServerFault, ServerUnavailable
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.client.transport.backoff import Outage, PullBackoff, pause_seconds
from hourwheel.client.transport.steps import Steps
from hourwheel.locks import gives_back
from hourwheel.model.pulls import Settled, Settlement, WakeupQueue
from hourwheel.wire.words import shown

_log = logging.getLogger("hourwheel.consumer")

LAST_SETTLEMENTS_SECONDS = 10.0  # a stop does not wait longer for a server that does not answer

# A pull waits for long only if it began without a message in hand: such a pull may be cut at once by a stop. A pull
# that began with messages in hand could lease the messages that a stop releases, for a consumer that has ended. So it
# is short, and a stop waits for its end before it releases messages.
BUSY_WAIT_SECONDS = 1.0
BUSY_END_SECONDS = 3.0  # the wait of a busy pull, and two seconds for its answer

_LONGEST_PAUSE_SECONDS = 1.0  # before settlements are retried: leases run out meanwhile

T = TypeVar("T")
C = TypeVar("C", bound="Wakes")


def pull_seconds(wait_seconds: float, *, busy: bool, taking: bool) -> float:
    """Returns for how long a pull waits. ``busy``: the consumer has messages in hand when the pull begins. ``taking``:
    it takes suspects."""
    return min(wait_seconds, 0.0 if taking else BUSY_WAIT_SECONDS if busy else wait_seconds)


class PullSession(HeldMessages[C]):
    """Decides for one run of a consumer. ``pulling`` and ``settling`` are the steps of its puller and of its settler; a
    driver adds the calls that wait."""

    def __init__(
        self,
        options: PrefetchOptions[Any],
        pulls: PullCalls,
        settles: PullCalls,
        listener: QueueListener,
        condition: Callable[[threading.RLock], C],
    ) -> None:
        super().__init__(options, condition)
        self._pull_calls = pulls
        self._settle_calls = settles
        self._listener = listener
        self._doze = Doze(pulls._http.signer, pulls._http.host)
        self._max_messages = options.max_messages  # of the pull under way
        self._settle_outage = Outage()
        self._settler_until = 0.0  # the time at which the settler wakes by itself
        self._ending = False
        self._end_at = 0.0

    @abstractmethod
    def _wait(self, condition: C, look: Callable[[], LookResult[T]]) -> Any:
        """Returns the result of ``look`` once it is ready. Calls it again whenever ``condition`` is notified."""

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

    def _report_unsettled(self) -> None:
        if left := self._leases.unconfirmed:
            _log.error("stopped with %d pulls not settled: their messages are delivered again", left)

    def _pause(self, condition: C, seconds: float, over: Callable[[], bool] = lambda: False) -> Any:
        """Waits for this time, or until ``over`` is true."""
        until = self._now() + seconds

        def look() -> LookResult[None]:
            left_seconds = until - self._now()
            return LookResult(left_seconds <= 0 or over(), None, left_seconds)

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

    def _begin_pull(self) -> LookResult[list[Settlement]]:
        """Is ready with the settlements that the next pull takes along, once there is room for its messages; with None
        once the session is stopped."""
        self._hungry_puller = True  # says that the puller waits before it looks, so that no call to wake it is missed
        begins = self._stopping or (self._may_pull() and self._has_room())
        self._hungry_puller = not begins
        if self._stopping or not begins:
            return LookResult(begins)
        now = self._now()
        self._record_acks(now)
        self._pulling = True
        self._busy_pull = self._leases.in_hand
        self._max_messages = self._next_size(now)
        return LookResult(True, self._leases.complete(now))

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
            if not settlements or error.slug != UNKNOWN_RECEIPT:
                raise
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

    def _next_settlements(self) -> LookResult[list[Settlement]]:
        """Is ready with the settlements to send now; with None once the session ends and nothing is left to settle."""
        now = self._now()
        self._record_acks(now)
        self._idle_settler = False
        if self._ending and (not self._leases.unconfirmed or now >= self._end_at):
            return LookResult(True)
        settlements = self._leases.due(now, ending=self._ending)
        if settlements:
            return LookResult(True, settlements)
        due_at = self._leases.next_due()
        self._settler_until = math.inf if due_at is None else due_at
        self._idle_settler = not self._leases.lingering
        if self._idle_settler and self._acked:
            return LookResult(False, None, 0.0)  # a message that was acknowledged just before did not wake the settler
        until = min(self._settler_until, self._end_at if self._ending else math.inf)
        return LookResult(False, None, None if until == math.inf else max(0.0, until - now))

    def _log_settled(self) -> None:
        """Logs the end of an outage of settlements, if there was one."""
        if (seconds := self._settle_outage.ended(self._now())) is not None:
            _log.warning("settlements are answered again, after %.0f s", seconds)
