"""Pulls ahead and settles behind, so that those who handle messages do neither.

One thread pulls: when the local queue runs low it asks for more, and takes along the settlements of the pulls that
are through. Another settles what no pull takes along within the linger, and extends the leases of what takes long.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hourwheel.client.api import DEFAULT_TIMEOUT_SECONDS, Api
from hourwheel.client.backoff import PullBackoff, pause_seconds
from hourwheel.client.errors import BadRequest, Closed, ServerFault, ServerUnavailable
from hourwheel.client.lease_tracker import Delivery, LeaseTracker, Outcome
from hourwheel.client.records import Pulled
from hourwheel.model import Delay, Settled, Settlement
from hourwheel.ports import Ids

_log = logging.getLogger("hourwheel.consumer")

_UNKNOWN_RECEIPT = "receipt-invalid"
_LAST_SETTLEMENTS_SECONDS = 10.0

# A pull waits at the server for long only while nothing is in hand. Otherwise, at a stop, it would still wait there
# when messages are given back, and lease them to nobody: so it is short, and the stop lets it end first.
_BUSY_WAIT_SECONDS = 1.0
_BUSY_END_SECONDS = 3.0


class PrefetchOptions(NamedTuple):
    connect: Callable[..., Api]
    subject: str
    group: str
    consumer_id: str
    max_messages: int
    wait_seconds: float
    lease_seconds: int
    settle_linger_seconds: float
    low_water: int
    ids: Ids


class Prefetcher:
    """One use: ``start``, any number of ``next`` from any thread, ``stop``, ``finish``."""

    def __init__(self, options: PrefetchOptions) -> None:
        self._options = options
        # Each thread has its own connection: cutting a pull must not cut a settlement.
        self._pulls = options.connect()
        # An answer that takes as long as the lease would come too late for the leases to extend.
        settle_timeout = min(DEFAULT_TIMEOUT_SECONDS, max(1.0, options.lease_seconds / 2))
        self._settles = options.connect(timeout_seconds=settle_timeout)
        self._ledger = LeaseTracker(lease_seconds=options.lease_seconds, linger_seconds=options.settle_linger_seconds)
        self._queue: deque[Delivery] = deque()
        # Reentrant: a signal handler may call ``stop`` while its thread is in here.
        lock = threading.RLock()
        self._ready = threading.Condition(lock)  # there is something to handle
        self._hungry = threading.Condition(lock)  # there is room to pull
        self._due = threading.Condition(lock)  # there is something to tell the server
        self._pulling = False
        self._busy_pull = False
        self._stopping = False
        self._drain_until = 0.0
        self._ending = False
        self._end_at = 0.0
        self.failure: BaseException | None = None
        self._puller = threading.Thread(target=self._run_puller, name="hourwheel-puller", daemon=True)
        self._settler = threading.Thread(target=self._run_settler, name="hourwheel-settler", daemon=True)

    @property
    def lost_messages(self) -> int:
        return self._ledger.lost_messages

    def start(self) -> None:
        self._puller.start()
        self._settler.start()

    def next(self) -> Delivery | None:
        """Waits for a message; None when stopped and drained."""
        with self._ready:
            while True:
                left_seconds = self._drain_until - time.monotonic() if self._stopping else None
                if left_seconds is not None and left_seconds <= 0:
                    return None
                while self._queue:
                    delivery = self._queue.popleft()
                    if len(self._queue) <= self._options.low_water:
                        self._hungry.notify()
                    if not delivery.lost:
                        return delivery
                if self._stopping and not self._pulling:
                    return None
                self._ready.wait(left_seconds)

    def stop(self, *, drain_seconds: float) -> None:
        """No new pull begins; what is pulled is handed out for so long yet. From any thread, or a signal handler."""
        with self._ready:
            until = time.monotonic() + drain_seconds
            self._drain_until = min(self._drain_until, until) if self._stopping else until
            self._stopping = True
            for condition in (self._ready, self._hungry, self._due):
                condition.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._ready:
            self.failure = self.failure or error
        self.stop(drain_seconds=0)

    def finish(self) -> None:
        """After ``stop``, when nobody handles messages any more: gives back what nobody has begun, and returns when all
        results are settled, or after 10 s without an answer (their leases end then)."""
        left_seconds = max(0.0, self._drain_until - time.monotonic())
        self._puller.join(max(left_seconds, _BUSY_END_SECONDS) if self._busy_pull else left_seconds)
        self._pulls.close()  # cuts a pull that still waits; what the server leases to it waits for its lease to end
        self._puller.join()
        with self._due:
            while self._queue:
                self._decide(self._queue.popleft(), Outcome.RELEASE)
            self._ending = True
            self._end_at = time.monotonic() + _LAST_SETTLEMENTS_SECONDS
            self._due.notify_all()
        self._settler.join()
        self._settles.close()

    def _decide(self, delivery: Delivery, outcome: Outcome, delay: Delay | None = None) -> None:
        with self._due:
            if self._ledger.decide(delivery, outcome, time.monotonic(), delay):
                self._due.notify()

    # The puller

    def _run_puller(self) -> None:
        backoff = PullBackoff(self._options.ids)
        while (settlements := self._begin_pull()) is not None:
            pulled: Pulled | None = None
            wait_seconds = self._options.wait_seconds
            if self._busy_pull:
                wait_seconds = min(wait_seconds, _BUSY_WAIT_SECONDS)
            began = time.monotonic()
            try:
                pulled = self._pull(settlements, wait_seconds)
                took_seconds = time.monotonic() - began
                backoff.answered(pulled.pulls, asked_seconds=wait_seconds, took_seconds=took_seconds)
            except Closed:
                pass  # stopping
            except (ServerUnavailable, ServerFault) as error:
                backoff.failed(error)
                _log.warning("pull failed, trying again: %s", error)
            except BaseException as error:
                self.fail(error)
            self._end_pull(settlements, pulled)
            with self._hungry:
                self._hungry.wait_for(lambda: self._stopping, backoff.seconds())

    def _begin_pull(self) -> list[Settlement] | None:
        with self._hungry:
            self._hungry.wait_for(lambda: self._stopping or len(self._queue) <= self._options.low_water)
            if self._stopping:
                return None
            self._pulling = True
            self._busy_pull = self._ledger.in_hand
            return self._ledger.complete()

    def _pull(self, settlements: Sequence[Settlement], wait_seconds: float) -> Pulled:
        options = self._options
        try:
            return self._pulls.pull(
                options.subject,
                options.group,
                options.consumer_id,
                max_messages=options.max_messages,
                wait_seconds=wait_seconds,
                lease_seconds=options.lease_seconds,
                settle=settlements,
                retry_seconds=0,
            )
        except BadRequest as error:
            if not settlements or error.slug != _UNKNOWN_RECEIPT:
                raise
            return Pulled(pulls=[], settled=self._settle(settlements))

    def _end_pull(self, settlements: Sequence[Settlement], pulled: Pulled | None) -> None:
        with self._ready:
            now = time.monotonic()
            self._pulling = False
            if pulled is None:
                self._ledger.unanswered(settlements)
            else:
                self._ledger.answered(settlements, pulled.settled, now)
                for pull in pulled.pulls:
                    self._queue.extend(self._ledger.open(pull, now, self._decide))
            self._ready.notify_all()
            self._due.notify_all()

    # The settler

    def _run_settler(self) -> None:
        failures = 0
        while (settlements := self._next_settlements()) is not None:
            results: list[Settled] | None = None
            try:
                results = self._settle(settlements)
                failures = 0
            except (ServerUnavailable, ServerFault) as error:
                failures += 1
                _log.warning("settlement failed, trying again: %s", error)
            except BaseException as error:
                self.fail(error)
                results = [Settled("stale") for _ in settlements]  # repeating cannot mend it: they are lost
            with self._due:
                if results is None:
                    self._ledger.unanswered(settlements)
                else:
                    self._ledger.answered(settlements, results, time.monotonic())
            if failures:
                self._pause(failures)

    def _next_settlements(self) -> list[Settlement] | None:
        with self._due:
            while True:
                now = time.monotonic()
                if self._ending and (not self._ledger.untold or now >= self._end_at):
                    self._report_unsettled()
                    return None
                settlements = self._ledger.due(now, ending=self._ending)
                if settlements:
                    return settlements
                due_at = self._ledger.next_due()
                self._due.wait(None if due_at is None else max(0.0, due_at - now))

    def _settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """One receipt that the server does not know spoils a request: then each is asked alone, and that one lost."""
        options = self._options
        try:
            return self._settles.settle(options.subject, options.group, settlements, retry_seconds=0)
        except BadRequest as error:
            if error.slug != _UNKNOWN_RECEIPT:
                raise
            if len(settlements) == 1:
                return [Settled("stale")]
        return [self._settle([settlement])[0] for settlement in settlements]

    def _report_unsettled(self) -> None:
        if self._ledger.untold:
            _log.error("stopped with the results of %d pulls unsettled: they are served again", self._ledger.untold)

    def _pause(self, failures: int) -> None:
        """Before settlements are tried again; it never lasts long, as leases end."""
        with self._due:
            self._due.wait_for(lambda: False, min(pause_seconds(failures, self._options.ids), 1.0))
