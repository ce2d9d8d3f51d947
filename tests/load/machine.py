"""Simulates time for thousands of tasks: greenlets of which one runs at a time, in the order in which they wake.

``tests/simulation/world.py`` draws who runs next among all that could, and looks at each of them for that. Here the
time alone decides, so that a wake-up costs the same whatever the number of tasks.
"""

import heapq
from collections.abc import Callable
from random import Random

from greenlet import getcurrent, greenlet

START_MS = 1_800_000_000_000


class Stopped(BaseException):
    """Raised in a task that is ended from outside. The library never contains it."""


class Task:
    """A greenlet that sleeps or runs. ``call_ms``: the CPU time that each of its calls of the store takes."""

    __slots__ = ("call_ms", "thread", "turn")

    def __init__(self, thread: greenlet) -> None:
        self.thread = thread
        self.turn = 0
        self.call_ms = 0.0


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

    def wake(self, task: Task) -> None:
        """Wakes a task that sleeps, now."""
        self._push(self.now, task, task.turn)

    def spawn(self, work: Callable[[], object], after_ms: float = 0.0) -> Task:
        task = Task(greenlet(lambda: work(), self._hub))
        self._tasks[task] = None
        self._push(self.now + after_ms, task, 0)
        return task

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
