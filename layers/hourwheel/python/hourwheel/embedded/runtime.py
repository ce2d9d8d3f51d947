"""A data directory that is open and kept in order."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from aws_lambda_powertools import Logger

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.adapters.sqlite import SqliteStore
from hourwheel.adapters.system import SystemClock, SystemIds
from hourwheel.api.boundary import Boundary
from hourwheel.cell import Cell
from hourwheel.context import Context, Settings
from hourwheel.embedded.arrivals import EmbeddedArrivals
from hourwheel.embedded.directory import Neighbours, database, prepare
from hourwheel.embedded.fibres import FibreBlobs, Fibres, FibreStore
from hourwheel.embedded.housekeeping import Repeating
from hourwheel.embedded.options import ServeOptions
from hourwheel.logs.segments import drop_expired_segments

_LOOK_SECONDS = 0.25
_LEASES_SECONDS = 1.0
_SWEEP_SECONDS = 60.0


class Runtime:
    """Opens ``options.data``; several processes may have it open. Raises the store's errors, and ``OSError``."""

    def __init__(self, options: ServeOptions) -> None:
        prepare(options.data)
        with ExitStack() as opened:
            store = SqliteStore(database(options.data), synchronous=options.synchronous)
            opened.callback(store.close)
            self._store = store
            self._neighbours = Neighbours(options.data)
            opened.callback(self._neighbours.close)
            self._closing = opened.pop_all()
        self.meter = CountingMeter()
        self.fibres = Fibres()
        self.threads = ThreadPoolExecutor(options.threads, "request")
        self._closing.callback(self.threads.shutdown)
        self.arrivals = EmbeddedArrivals(max_waiting=options.max_waiting, fibres=self.fibres)
        context = Context(
            store=FibreStore(store, self.fibres),
            blobs=FibreBlobs(FileBlobs(options.data), self.fibres, self.threads),
            clock=SystemClock(),
            ids=SystemIds(),
            arrivals=self.arrivals,
            meter=self.meter,
            # A row in the same transaction is cheaper than a file of its own, which wants two syncs more.
            settings=Settings(inline_bytes=300 * 1024),
        )
        self.cell = Cell(context)
        self.cell.prepare()
        self.boundary = Boundary(self.cell, Logger(service="hourwheel", stream=sys.stderr))

    def start(self) -> None:
        """Begins to end leases, to sweep, and to look out for messages that other processes store."""
        sweeper = self.cell.sweeper
        self._repeat("waking", self._wake, _LOOK_SECONDS)
        self._repeat("ending leases", sweeper.end_busy_leases, _LEASES_SECONDS)
        self._repeat("sweeping", self._sweep, _SWEEP_SECONDS)

    def close(self) -> None:
        """Stops all of it, then closes the files. No call may be under way."""
        self.arrivals.close()
        self._store.uninvite()
        self._closing.close()

    def _repeat(self, name: str, work: Callable[[], object], seconds: float) -> None:
        self._closing.callback(Repeating(name, work, seconds=seconds, boundary=self.boundary).stop)

    def _wake(self) -> None:
        if self._neighbours.wrote():
            self.arrivals.announce_all()

    def _sweep(self) -> None:
        context = self.cell.context
        self.cell.sweep()
        drop_expired_segments(context.blobs, context.clock.now_ms())
