"""Simulates EventBridge Scheduler, the queue of precise timers and the wake-up queues of SQS."""

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from bench.cost.meter import SQS_SECONDS, TIMER_SECONDS
from bench.cost.prices import Usage
from hourwheel.adapters.aws.functions import ATTEMPTS
from hourwheel.adapters.aws.scheduler import SOON_MS, started_with
from hourwheel.errors import Throttled
from hourwheel.model.pulls import WakeupQueue
from tests.load.lambdas import Lambdas
from tests.load.limits import value
from tests.load.machine import Machine, Task
from tests.load.quotas import Quota

T = TypeVar("T")

_PRECISION_MS = value("schedule precision") * 1_000
_QUEUE_MS = value("start by SQS or Lambda")


class SimulatedScheduler:
    """Implements ``Timers`` as ``adapters/aws/scheduler.py`` does. ``creations``: the schedules that may be made in a
    second; a client of the SDK makes three tries."""

    def __init__(self, machine: Machine, lambdas: Lambdas, usage: Usage, creations: float) -> None:
        self.machine = machine
        self.usage = usage
        self._lambdas = lambdas
        self.creations = Quota("creations of schedules", machine, creations, creations)
        self._names: set[tuple[int, str, bool]] = set()

    def at(self, when_ms: int, bucket: str) -> None:
        self.order(when_ms, bucket, 0)

    def order(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        if when_ms <= self.machine.now + SOON_MS:
            self.machine.wait(TIMER_SECONDS * 1_000)
            self._lambdas.start("wheel", started_with(bucket, wakes_ms))
            return
        self._create()
        name = when_ms // 1_000, bucket, bool(wakes_ms)
        if name in self._names:
            return
        self._names.add(name)
        fires = when_ms // 1_000 * 1_000 + self.machine.rng.random() * _PRECISION_MS
        self.machine.at(fires, lambda: self._fire(name, bucket, wakes_ms))

    def _create(self) -> None:
        for attempt in range(ATTEMPTS):
            self.machine.wait(TIMER_SECONDS * 1_000)
            if self.creations.takes():
                return
            if attempt + 1 < ATTEMPTS:
                self.machine.sleep(self.machine.rng.random() * 2**attempt)  # the standard mode of botocore
        raise Throttled("CreateSchedule")

    def _fire(self, name: tuple[int, str, bool], bucket: str, wakes_ms: int) -> None:
        self._names.discard(name)
        self.usage["schedule-firing"] += 1
        self._lambdas.start("wheel", started_with(bucket, wakes_ms))


class SimulatedTimerQueue:
    """Implements ``PreciseTimers`` as ``adapters/aws/timer_queue.py`` does. Its reading is on at once."""

    def __init__(self, scheduler: SimulatedScheduler, lambdas: Lambdas) -> None:
        self._scheduler = scheduler
        self._lambdas = lambdas
        self._machine = scheduler.machine
        self._sent = 0

    def after(self, seconds: int, bucket: str, wakes_ms: int) -> None:
        self._machine.wait(TIMER_SECONDS * 1_000)
        self._sent += 1
        self._scheduler.usage["sqs-request"] += 3
        record = {"messageId": f"m-{self._sent}", "body": json.dumps(started_with(bucket, wakes_ms))}
        visible = self._machine.now + seconds * 1_000
        self._machine.at(visible, lambda: self._lambdas.start("wheel", {"Records": [record]}))

    def relay(self, when_ms: int, bucket: str, wakes_ms: int) -> None:
        self._scheduler.order(when_ms, bucket, wakes_ms)

    def listen(self, on: bool) -> bool:
        return on


class SimulatedWakeupQueues:
    """Implements ``WakeupQueues``, and lets consumers receive from them. A wake-up that nobody waits for is kept for
    the next who does."""

    def __init__(self, machine: Machine, usage: Usage) -> None:
        self._machine = machine
        self._usage = usage
        self._kept: dict[str, int] = {}
        self._waiting: dict[str, dict[Task, bool]] = {}

    def open(self, name: str, *, fresh: bool) -> WakeupQueue:
        if fresh or name not in self._kept:
            self._kept.setdefault(name, 0)
            self._request()
        return WakeupQueue(name, "us-east-1")

    def wake(self, name: str) -> bool:
        self._request()
        if name not in self._kept:
            return False
        for task, woken in self._waiting.get(name, {}).items():
            if not woken:
                self._waiting[name][task] = True
                self._machine.wake(task)
                return True
        self._kept[name] += 1
        return True

    def remove(self, name: str) -> None:
        self._request()
        self._kept.pop(name, None)

    def side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        return [call() for call in calls]

    def receive(self, name: str, seconds: float) -> bool:
        """Waits for a wake-up, as a consumer does; returns whether one came."""
        task = self._machine.current
        assert task is not None
        self._usage["sqs-request"] += 1
        if self._kept.get(name, 0):
            self._kept[name] -= 1
            return True
        waiting = self._waiting.setdefault(name, {})
        waiting[task] = False
        self._machine.sleep(seconds)
        return waiting.pop(task)

    def _request(self) -> None:
        self._usage["sqs-request"] += 1
        self._machine.sleep(SQS_SECONDS)
