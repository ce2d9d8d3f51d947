"""Simulates the threads of a process: greenlets that share the clock, the connections and the crashes of the
process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from types import SimpleNamespace
from unittest.mock import patch

from hourwheel.delay import call_workers
from hourwheel.push import pusher
from tests.simulation.world import Crashed, Process, World

_LOOK_SECONDS = 0.02


class SimulatedThread:
    """``threading.Thread``, of the process that runs now. Where no other actor runs it has done its work when ``start``
    returns."""

    def __init__(self, world: World, *, target: Callable[[], None], name: str, daemon: bool) -> None:
        assert daemon
        self._world = world
        self._work = target
        self._name = name
        self._process: Process | None = None
        self._alive = False

    def start(self) -> None:
        world, parent = self._world, self._world.current
        if world.alone or parent is None:
            self._work()
            return
        name = f"{parent.name} {self._name} {world.calls}"
        self._process = Process(world, name, parent.offset_ms, parent.verb, parent.rate, parent=parent)
        self._alive = True
        world.spawn(self._process, self._live)

    def join(self) -> None:
        """Waits for the end of the thread. With the process that crashes its threads crash."""
        while self._process is not None and self._alive:
            if isinstance(sys.exception(), Crashed):
                self._world.crash_soon(self._process)
            parent = self._process.parent
            assert parent is not None
            parent.sleep(_LOOK_SECONDS)

    def _live(self) -> None:
        assert self._process is not None
        assert self._process.parent is not None
        try:
            self._work()
        except Crashed:
            self._world.crash_soon(self._process.parent)
        finally:
            self._alive = False


@contextmanager
def threads_of(world: World) -> Iterator[None]:
    """Runs the threads of pushers and wheels as greenlets of the world."""
    simulated = SimpleNamespace(Thread=partial(SimulatedThread, world), Lock=Lock)
    with patch.object(pusher, "threading", simulated), patch.object(call_workers, "threading", simulated):
        yield
