"""Turns wheels in threads of this process, starts each wheel when its timer is due, and wakes those that sleep."""

import heapq
import threading
from collections.abc import Callable
from itertools import islice

from hourwheel.api.boundary import Boundary
from hourwheel.api.problems import is_fault
from hourwheel.buckets.buckets import Bucket
from hourwheel.delay.wheel import WheelEnd
from hourwheel.deployment.deployment import Deployment
from hourwheel.embedded.workers.wheel_sleep import WheelSleep
from hourwheel.system import SystemClock

_RETRY_MS = 2_000  # doubled after each further error in a row
_LONGEST_RETRY_MS = 60_000  # the sweeper, which starts overdue wheels too, comes as often
_LONGEST_SLEEP_SECONDS = 5.0  # the clock may be set forward while the thread sleeps
_SPARE = 2  # threads that stay free for buckets that are not over, while buckets that are over take turns


class Wheels:
    """Implements ``Timers`` and ``WheelWakeups`` for one process. After ``start``, at most ``at_once`` wheels turn at
    the same time.

    After an outage of days, the buckets that are over take turns, and leave threads for the current buckets.
    """

    def __init__(self, clock: SystemClock, *, at_once: int) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._timers: list[tuple[int, str]] = []
        self._soonest: dict[str, int] = {}
        self._turning: dict[str, threading.Thread] = {}
        self._sleeps: dict[str, WheelSleep] = {}
        self._reordered: dict[str, int] = {}
        self._ready: dict[str, None] = {}
        self._overdue: dict[str, None] = {}
        self._at_once = at_once
        self._stopping = threading.Event()
        self._turn: Callable[[str], int | None] = lambda bucket: None
        self._starter = threading.Thread(target=self._run, name="wheels", daemon=True)

    def at(self, when_ms: int, bucket: str) -> None:
        with self._changed:
            self._order(when_ms, bucket)

    def announce(self, bucket: str, due_ms: int) -> None:
        sleeping = self._sleeps.get(bucket)
        if sleeping is not None:
            sleeping.announce(due_ms)

    def announce_all(self) -> None:
        """Wakes all wheels that turn: another process may have stored messages."""
        for sleeping in list(self._sleeps.values()):
            sleeping.announce(0)

    def start(self, deployment: Deployment, owner: str, boundary: Boundary) -> None:
        """Begins to turn the cell's wheels, as ``owner``."""

        failing: dict[str, tuple[int, str]] = {}

        def turn(bucket: str) -> int | None:
            """Turns the wheel until it ends. Returns the milliseconds until a retry if it failed, or if another process
            has its lease; None otherwise. Of equal errors in a row it reports the first.
            """
            try:
                ended = deployment.turn_wheel(bucket, owner, self._sleeps[bucket].sleep)
            except Exception as error:
                before_ms, last_text = failing.get(bucket, (_RETRY_MS // 2, ""))
                text = f"{type(error).__name__}: {error}"
                if is_fault(error) and text != last_text:
                    boundary.report(error, f"the wheel of {bucket} failed")
                failing[bucket] = (min(2 * before_ms, _LONGEST_RETRY_MS), text)
                return failing[bucket][0]
            failing.pop(bucket, None)
            return _RETRY_MS if ended is WheelEnd.BUSY else None

        self._turn = turn
        self._starter.start()

    def stop(self) -> None:
        """Stops the wheels, and waits until each has finished its turn and released its lease."""
        self._stopping.set()
        with self._changed:
            for sleeping in self._sleeps.values():
                sleeping.end()
            self._changed.notify()
        if self._starter.is_alive():
            self._starter.join()
        for thread in list(self._turning.values()):
            thread.join()

    @property
    def turning(self) -> int:
        """The number of wheels that turn."""
        with self._changed:
            return len(self._turning)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._changed:
                if self._stopping.is_set():
                    return
                for bucket in self._due():
                    self._sleeps[bucket] = WheelSleep(self._clock)
                    thread = threading.Thread(target=self._serve, args=(bucket,), name=f"wheel {bucket}", daemon=True)
                    self._turning[bucket] = thread
                    thread.start()
                self._changed.wait(self._idle_seconds())

    def _order(self, when_ms: int, bucket: str) -> None:
        if self._soonest.get(bucket, when_ms + 1) > when_ms:
            self._soonest[bucket] = when_ms
            heapq.heappush(self._timers, (when_ms, bucket))
            self._changed.notify()

    def _due(self) -> list[str]:
        """Returns the buckets to start now: those that are due and not turning, as many as threads are free."""
        now_ms = self._clock.now_ms()
        while self._timers and self._timers[0][0] <= now_ms:
            when_ms, bucket = heapq.heappop(self._timers)
            if self._soonest.get(bucket) != when_ms:
                continue  # an earlier timer has replaced this one
            del self._soonest[bucket]
            if bucket in self._turning:
                self._reordered[bucket] = when_ms
            elif Bucket.parse(bucket).end_ms <= now_ms:
                self._overdue[bucket] = None
            else:
                self._ready[bucket] = None
        room = self._at_once - len(self._turning)
        due = list(islice(self._ready, max(0, room)))
        # Of the buckets that are over, one always turns, even without a spare thread: else their messages could wait
        # for ever.
        over = sum(Bucket.parse(bucket).end_ms <= now_ms for bucket in self._turning)
        due += islice(self._overdue, max(1 - over, room - len(due) - _SPARE, 0))
        for bucket in due:
            self._ready.pop(bucket, None)
            self._overdue.pop(bucket, None)
        return list(dict.fromkeys(due))

    def _idle_seconds(self) -> float:
        if not self._timers:
            return _LONGEST_SLEEP_SECONDS
        left_seconds = (self._timers[0][0] - self._clock.now_ms()) / 1_000
        return min(max(0.0, left_seconds), _LONGEST_SLEEP_SECONDS)

    def _serve(self, bucket: str) -> None:
        retry_ms = self._turn(bucket)
        with self._changed:
            del self._turning[bucket], self._sleeps[bucket]
            start_ms = self._reordered.pop(bucket, None)
            if start_ms is not None:
                self._order(start_ms, bucket)
            if retry_ms is not None:
                self._order(self._clock.now_ms() + retry_ms, bucket)
            self._changed.notify()
