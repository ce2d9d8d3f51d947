"""Simulates time for thousands of tasks: greenlets of which one runs at a time, in the order in which they wake.

``tests/simulation/world.py`` draws who runs next among all that could, and looks at each of them for that. Here the
time alone decides, so that a wake-up costs the same whatever the number of tasks.
"""

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from types import SimpleNamespace
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from hourwheel.delay import call_workers

START_MS = 1_800_000_000_000
_FOREVER_MS = 1e9


class Stopped(BaseException):
    """Raised in a task that is ended from outside. The library never contains it."""


class Core:
    """The CPU time of a process, whose threads take turns. Each call of the store takes ``call_ms`` of it."""

    __slots__ = ("call_ms", "free_at")

    def __init__(self) -> None:
        self.call_ms = 0.0
        self.free_at = 0.0


class Task:
    """A greenlet that sleeps or runs."""

    __slots__ = ("core", "thread", "turn")

    def __init__(self, thread: greenlet, core: Core) -> None:
        self.thread = thread
        self.turn = 0
        self.core = core


class Machine:
    """The time and the tasks of one run, which the seed determines. Outside of a task nothing takes time."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = float(START_MS)
        self.current: Task | None = None
        self._hub = getcurrent()
        self._due: list[tuple[float, int, Task | Callable[[], None], int]] = []
        self._events = 0
        self._tasks: dict[Task, None] = {}

    def now_ms(self) -> int:
        return int(self.now)

    def sleep(self, seconds: float) -> None:
        self.wait(seconds * 1_000)

    def wait(self, ms: float) -> None:
        """Lets the task sleep, at most until somebody wakes it."""
        task = self.current
        if task is None:
            return
        self._push(self.now + ms, task, task.turn)
        self._hub.switch()

    def wait_for_call(self, ms: float) -> None:
        """Lets the task wait for the answer of a call, and then for the CPU time that the call takes, behind the calls
        of other threads of its process."""
        task = self.current
        if task is None:
            return
        core, done = task.core, self.now + ms
        if core.call_ms:
            done = core.free_at = max(core.free_at, done) + core.call_ms
        self.wait(done - self.now)

    def wake(self, task: Task) -> None:
        """Wakes a task that sleeps, now."""
        self._push(self.now, task, task.turn)

    def spawn(self, work: Callable[[], object], after_ms: float = 0.0, core: Core | None = None) -> Task:
        """Starts a task, that of a new process unless it is a thread of the one to which ``core`` belongs."""
        task = Task(greenlet(lambda: work(), self._hub), core or Core())
        self._tasks[task] = None
        self._push(self.now + after_ms, task, 0)
        return task

    def is_alive(self, task: Task) -> bool:
        return task in self._tasks

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Makes a call, which must not sleep, at a time."""
        self._push(max(when, self.now), call, 0)

    def run(self, seconds: float) -> None:
        """Lets time pass. Raises the first error that a task does not contain."""
        end = self.now + seconds * 1_000
        while self._due and self._due[0][0] <= end:
            self.now, _, entry, turn = heapq.heappop(self._due)
            if not isinstance(entry, Task):
                entry()
            elif entry.turn == turn and entry in self._tasks:
                self._switch(entry, entry.thread.switch)
        self.now = end

    def end(self, task: Task) -> bool:
        """Ends a task where it sleeps; returns whether it had not ended before. Not to be called in a task."""
        if task not in self._tasks:
            return False
        self._switch(task, lambda: task.thread.throw(Stopped))
        return True

    def end_all(self) -> None:
        for task in list(self._tasks):
            self.end(task)

    def _switch(self, task: Task, switch: Callable[[], object]) -> None:
        task.turn += 1
        outer, self.current = self.current, task
        try:
            switch()
        except Stopped:
            pass
        finally:
            self.current = outer
            if task.thread.dead:
                self._tasks.pop(task, None)

    def _push(self, when: float, entry: "Task | Callable[[], None]", turn: int) -> None:
        self._events += 1
        heapq.heappush(self._due, (when, self._events, entry, turn))


class MachineThread:
    """``threading.Thread`` of the process whose task runs now. Without a task it works within ``start``."""

    def __init__(self, machine: Machine, *, target: Callable[[], object], name: str, daemon: bool) -> None:
        self._machine = machine
        self._work = target
        self._parent = machine.current
        self._task: Task | None = None
        self._awaited = False

    def start(self) -> None:
        if self._parent is None:
            self._work()
        else:
            self._task = self._machine.spawn(self._live, core=self._parent.core)

    def join(self) -> None:
        while self._task is not None and self._machine.is_alive(self._task):
            self._awaited = True
            self._machine.wait(_FOREVER_MS)

    def _live(self) -> None:
        try:
            self._work()
        finally:
            if self._awaited and self._parent is not None:
                self._machine.wake(self._parent)


@contextmanager
def threads_of(machine: Machine) -> Iterator[None]:
    """Runs the threads of sweeps and wheels as tasks of the machine."""
    simulated = SimpleNamespace(Thread=partial(MachineThread, machine))
    with patch.object(call_workers, "threading", simulated):
        yield
