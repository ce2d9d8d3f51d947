"""Pulls messages for a framework of tasks, and settles them as the framework decides.

A ``Consumer`` hands messages to handlers. A framework has handlers of its own: it limits how many messages each worker
may hold, and asks for a message when it can take one.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hourwheel.client.consuming.delivery import Delivery, DeliveryOutcome
from hourwheel.client.consuming.prefetcher import Prefetcher
from hourwheel.client.errors import Closed, NotFound
from hourwheel.client.options import PrefetchOptions
from hourwheel.client.records.compact import CompactPulls
from hourwheel.client.records.messages import Pulled
from hourwheel.client.transport.steps import Steps, finished
from hourwheel.locks import gives_back
from hourwheel.model.fields import BATCH_MESSAGES, Delay
from hourwheel.model.pulls import Settlement

PACE_SECONDS = 0.1  # longer than a pull takes, so that the messages last until the next pull has brought others


class Pace:
    """Counts the messages that a worker settled lately: in the current tenth of a second, or in the one before."""

    def __init__(self) -> None:
        self._slot = 0
        self._now = 0
        self._before = 0

    def add(self, now: float) -> None:
        self._turn(now)
        self._now += 1

    def recent(self, now: float) -> int:
        self._turn(now)
        return max(self._now, self._before)

    def _turn(self, now: float) -> None:
        slot = int(now / PACE_SECONDS)
        if slot != self._slot:
            self._before = self._now if slot == self._slot + 1 else 0
            self._now = 0
            self._slot = slot


class Subscription(Prefetcher):
    """Pulls ahead for one worker. ``take`` returns a message that was pulled, ``settle`` decides about a message.

    ``room`` returns how many messages the framework could take now, ``limit`` how many it may hold at once. A pull asks
    for as many messages as there is room for. If the worker settled more than its limit within a tenth of a second, the
    pull asks for the difference too. So a worker with short tasks pulls in large batches, and one with long tasks holds
    no message that another worker could begin. A thread of the subscription calls ``on_ready`` when messages have come,
    or when the pulls have failed.

    With ``on_missing`` pulls create nothing: where the subject, the group or the consumer is missing, the thread calls
    ``on_missing``, which creates them with the settings of the framework, and pulls again.
    """

    def __init__(
        self,
        options: PrefetchOptions[Any],
        *,
        room: Callable[[], int],
        limit: Callable[[], int],
        on_ready: Callable[[], None],
        on_missing: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(options)
        self._open_room = room
        self._limit = limit
        self._on_ready = on_ready
        self._on_missing = on_missing
        self._pace = Pace()
        self._process = os.getpid()

    @property
    def own(self) -> bool:
        """Whether this process made the subscription. A forked child has no threads for it and must not settle."""
        return self._process == os.getpid()

    @property
    def busy(self) -> bool:
        """Whether the framework holds messages about which it has not decided."""
        return self._leases.in_hand

    def start_settling(self) -> None:
        """Starts the thread that settles, but no pulls: for callers of ``fetch`` and ``pull_ahead``."""
        self._settler.start()

    def take(self) -> Delivery | None:
        """Returns a message that was pulled, or None. Raises the error that ended the pulls."""
        delivery = self._next_at_once()
        if delivery is None and self.failure is not None:
            raise self.failure
        return delivery

    def fetch(self) -> Delivery | None:
        """Pulls on the caller's thread, without waiting, and returns a message or None. Raises ``AnswerError``."""
        self._pull_now(1)
        return self.take()

    def pull_ahead(self) -> None:
        """Pulls on the caller's thread, without waiting, as many messages as there is room for, at least one. Raises
        ``AnswerError``."""
        self._pull_now(max(1, self._room()))

    @gives_back
    def _pull_now(self, most: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._record_acks(now)
            settlements = self._leases.complete(now)
            self._max_messages, self._pulling = most, True
        pulled: Pulled | CompactPulls | None = None
        try:
            pulled = finished(self._pull(settlements, 0, self._fields(alone=True)))
        finally:
            self._end_pull(settlements, pulled)

    def settle(self, delivery: Delivery, outcome: DeliveryOutcome, delay: Delay | None = None) -> None:
        """Decides about a message. A second decision about it has no effect."""
        if not self.own:
            return
        self._pace.add(time.monotonic())
        self._decide(delivery, outcome, delay)
        self.nudge()

    def nudge(self) -> None:
        """Makes the puller look again whether there is room."""
        if self._hungry_puller:
            self._wake_hungry()

    @gives_back
    def halt(self) -> None:
        """Ends the pulls, and releases the messages that were not taken. Those that were taken can still be settled."""
        if not self.own:
            return
        self.stop(drain_seconds=0)
        if not self._busy_pull:
            self._pulls.close()
        with self._lock:
            self._release_queue()

    def close(self, *, release: Sequence[Delivery] = ()) -> None:
        """Releases the messages ``release`` and those that were not taken, sends all settlements, and ends the
        threads."""
        if not self.own:
            return
        self.halt()
        self.release(release)
        if self._settler.ident is None:  # the server refused the first pull, before the threads were started
            self.start_settling()
        self.finish()

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self._on_ready()

    def _fields(self, *, alone: bool = False) -> dict[str, Any]:
        fields = super()._fields(alone=alone)
        return fields if self._on_missing is None else {**fields, "create": False}

    def _pull(
        self, settlements: Sequence[Settlement], wait_seconds: float, rest: Mapping[str, Any] | None = None
    ) -> Steps[Pulled | CompactPulls]:
        try:
            return (yield from super()._pull(settlements, wait_seconds, rest))
        except NotFound as error:
            if self._on_missing is None:
                raise
            if self._stopping:
                raise Closed("the subscription ends") from error
            self._on_missing()
        # May create what is missing: a worker without the right to declare a queue must not end.
        return (yield from super()._pull(settlements, wait_seconds, super()._fields()))

    def _has_room(self) -> bool:
        return self._room() > 0

    def _next_size(self, now: float) -> int:
        return max(1, self._room())

    def _room(self) -> int:
        """Returns how many messages the next pull may bring; 0 while enough messages wait."""
        most = min(self._most(), BATCH_MESSAGES)
        waiting = len(self._queue)
        return most - waiting if 2 * waiting <= most else 0  # not for each message that is taken, but for half of them

    def _most(self) -> int:
        """Returns how many messages may wait to be taken."""
        return self._open_room() + max(0, self._pace.recent(time.monotonic()) - self._limit())

    @gives_back
    def _end_pull(self, settlements: Sequence[Settlement], pulled: Pulled | CompactPulls | None) -> None:
        super()._end_pull(settlements, pulled)
        if self._stopping:
            with self._lock:
                self._release_queue()
        elif self._queue:
            self._on_ready()
