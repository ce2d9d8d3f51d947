"""Simulates Lambda: executions that start cold, their limits, and invocations for which nobody waits."""

from collections import Counter as Counts
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from bench.cost.clock import VCPU_MB
from bench.cost.deployment import HTTP_MEMORY_MB, MEMORY_MB, TIMEOUT_SECONDS
from bench.cost.prices import Usage
from hourwheel.errors import HourwheelError
from tests.load.limits import value
from tests.load.machine import Core, Machine, Task
from tests.load.quotas import Executions, Quota

Handler = Callable[[Any, "Invocation"], Any]

_START_MS = value("start by SQS or Lambda")
_COLD_MS = value("cold start")
_NEW = value("new executions")
_REQUESTS = value("requests of an execution")


class TooManyRequests(Exception):
    """Lambda refuses an invocation: the executions of the account, or those that may be new, are used up."""


@dataclass(frozen=True)
class Invocation:
    machine: Machine
    ends: float

    def get_remaining_time_in_millis(self) -> int:
        return int(self.ends - self.machine.now)


@dataclass
class Function:
    """One function. ``idle``: the processes that wait for an event, the last used one last. ``warm``: the number of
    further ones, which were started before the run. ``fresh``: those that may be new."""

    name: str
    make: Callable[[], Handler]
    fresh: Quota
    warm: int
    idle: list[Handler] = field(default_factory=list)

    @property
    def memory_mb(self) -> int:
        return MEMORY_MB.get(self.name, HTTP_MEMORY_MB)

    @property
    def timeout_ms(self) -> float:
        return 1_000 * TIMEOUT_SECONDS[self.name]

    @property
    def slowness(self) -> float:
        return max(1.0, VCPU_MB / self.memory_mb)


class Lambdas:
    """All functions of one account, of which ``concurrency`` invocations run at once. ``warm``: the processes of each
    function that were started before the run. ``has_overheads``: starts and CPU take time."""

    def __init__(self, machine: Machine, usage: Usage, concurrency: int, warm: int, *, has_overheads: bool) -> None:
        self.machine = machine
        self._usage = usage
        self._warm = warm
        self._has_overheads = has_overheads
        self._functions: dict[str, Function] = {}
        self.executions = Executions("executions of Lambda", machine, concurrency, concurrency)
        requests = concurrency * _REQUESTS
        self.requests = Quota("requests to Lambda", machine, requests, requests)
        self.cold = 0
        self.invocations: Counts[str] = Counts()
        self.failed: Counts[tuple[str, str]] = Counts()
        """The invocations that failed, of those for which nobody waits: by function and error."""
        self.seconds: dict[str, list[float]] = {}
        """The billed seconds of each invocation, by function."""

    @property
    def quotas(self) -> list[Quota]:
        return [self.executions, self.requests, *(function.fresh for function in self._functions.values())]

    def add(self, name: str, make: Callable[[], Handler]) -> None:
        fresh = Quota(f"new executions of {name}", self.machine, _NEW / 10, _NEW)
        self._functions[name] = Function(name, make, fresh, self._warm)

    def invoke(self, name: str, event: Any, ends: Task | None = None) -> Any:
        """Invokes a function in this task, and returns its answer. Raises ``TooManyRequests``, and the function's
        errors. A task in ``ends`` is ended when the time of the function is over."""
        function = self._functions[name]
        if not (self.requests.takes() and self.executions.takes()):
            raise TooManyRequests(name)
        task, began, handler = self.machine.current, self.machine.now, None
        assert task is not None
        before, task.core = task.core, Core()
        task.core.call_ms = self._cpu_ms(function, "CPU of a store call")
        try:
            handler, wait_ms = self._process(function)
            self.invocations[name] += 1
            invocation = Invocation(self.machine, began + wait_ms + function.timeout_ms)
            if ends is not None:
                self.machine.at(invocation.ends, lambda: self._time_out(ends, name))
            self.machine.wait(wait_ms + self._cpu_ms(function, "CPU of an invocation"))
            return handler(event, invocation)
        finally:
            task.core = before
            self.executions.gives_back()
            if handler is not None:
                self._bill(function, self.machine.now - began)
                function.idle.append(handler)

    def start(self, name: str, event: Any) -> None:
        """Orders an invocation for which nobody waits. Lambda keeps the event while no execution is left; it does not
        repeat an invocation that fails (``infra/functions.py``)."""

        def work() -> None:
            while True:
                try:
                    self.invoke(name, event, task)
                except TooManyRequests:
                    self.machine.sleep(1.0)
                    continue
                except (HourwheelError, ValueError) as error:
                    self.failed[name, type(error).__name__] += 1
                return

        task: Task = self.machine.spawn(work, _START_MS)

    def _time_out(self, task: Task, name: str) -> None:
        if self.machine.end(task):
            self.failed[name, "time-out"] += 1

    def _process(self, function: Function) -> tuple[Handler, float]:
        """Returns a process of the function, and how long it takes to start."""
        if function.idle:
            return function.idle.pop(), 0.0
        if function.warm:
            function.warm -= 1
            return function.make(), 0.0
        if not function.fresh.takes():
            raise TooManyRequests(function.name)
        self.cold += 1
        return function.make(), _COLD_MS if self._has_overheads else 0.0

    def _cpu_ms(self, function: Function, what: str) -> float:
        return value(what) * function.slowness if self._has_overheads else 0.0

    def _bill(self, function: Function, ms: float) -> None:
        seconds = ceil(ms) / 1_000
        self.seconds.setdefault(function.name, []).append(seconds)
        self._usage.update({"lambda-request": 1, "lambda-gb-second": seconds * function.memory_mb / 1_024})
