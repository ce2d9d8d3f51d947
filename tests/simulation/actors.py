"""Implements the common part of the actors, which use the queue. Each kind of actor has a module of its own.

The attributes of an actor, such as its outbox and its receipts, survive its crashes; the cell with its caches does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, TypeVar, cast

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.adapters.retrying import RetryingStore
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.context import Context, Settings
from hourwheel.delay.lists.pending_counts import PendingCounts
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import CellUnavailable, HourwheelError, Rejected, Unavailable
from hourwheel.ports.storage import CellStorage, Store
from hourwheel.ports.waking import WakeupQueues
from hourwheel.settling.leases import Leases
from tests.simulation.blobs import SimulatedBlobs
from tests.simulation.couriers import Couriers, SimulatedPushes, SimulatedTargets
from tests.simulation.dates import Dates
from tests.simulation.engines import Engine
from tests.simulation.history import History
from tests.simulation.outages import CallsOfCell, CellStore
from tests.simulation.state import State
from tests.simulation.store import SimulatedStore, TransactionalStore
from tests.simulation.timers import Alarms, Announcements, SimulatedPreciseTimers, SimulatedTimers
from tests.simulation.world import Crashed, Process, Silence, SimulatedIds, Turns, Verb, Violation, World

T = TypeVar("T")


class Watches(dict[str, Any]):
    """``Leases`` whose locks let other actors run while an actor waits for them."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def setdefault(self, partition: str, watch: Any = None) -> Any:
        if partition not in self:
            watch.lock = Turns(self._world)
        return super().setdefault(partition, watch)


_BRIEF_SECONDS = 0.3


@dataclass
class Machine:
    """The objects that all actors of a run share."""

    world: World
    state: State
    blobs: MemoryBlobs
    history: History
    settings: Settings
    alarms: Alarms
    dates: Dates | None
    couriers: Couriers
    announcements: Announcements
    archive: MemoryBlobs = field(default_factory=MemoryBlobs)
    engine: Engine | None = None
    """The real store that runs beside the simulated one, if the plan names one."""
    queues: WakeupQueues | None = None
    """The wake-up queues of a run in which groups doze."""
    shared: Deployment | None = None
    """The cell of the one process of which all actors are requests; None where each actor is a process."""


class _WatchedCells(GuardedCells):
    """Notes of which cells a verb got nothing because a call had failed shortly before."""

    def _check_answers(self, cell: str) -> None:
        try:
            super()._check_answers(cell)
        except CellUnavailable:
            cast("Process", self.clock).verb.unread.add(cell)
            raise


@dataclass
class SimulatedCells:
    """``Cells`` over the one state of the run: the names of logs keep the cells apart, and each connection refuses
    those of another cell."""

    machine: Machine
    process: Process
    cells: list[str]

    def guarded(self, home: Store) -> GuardedCells:
        seconds = self.machine.settings.registry_seconds
        return _WatchedCells(self, home, self.process, SimulatedIds(self.machine.world.rng), seconds)

    def storage(self, cell: str) -> CellStorage:
        plan, world = self.machine.world.plan, self.machine.world
        if plan.transactional:
            store: Any = CellStore(self.process, self.machine.state, cell)
        else:
            direct = CallsOfCell(self.process, self.machine.state, cell)
            store = RetryingStore(direct, self.process, SimulatedIds(world.rng), budget_seconds=plan.budget_seconds)
        return CellStorage(store, SimulatedBlobs(self.process, self.machine.blobs, cell))

    def location(self, cell: str) -> str | None:
        return cell if cell in self.cells else None

    def names(self) -> list[str]:
        return self.cells

    def kinds(self, cell: str) -> None:
        return None

    def claim(self, cell: str, *, new: bool) -> None:
        pass

    def forget(self, cell: str) -> None:
        pass


def open_deployment(machine: Machine, process: Process) -> Deployment:
    """Makes a new process of the library: real code with empty caches."""
    plan, ids = machine.world.plan, SimulatedIds(machine.world.rng)
    state = machine.state if machine.engine is None else machine.engine.connect(process.name, machine.state)
    if plan.transactional:
        store: Any = TransactionalStore(process, state)
        brief = None
    else:
        direct = SimulatedStore(process, state)
        store = RetryingStore(direct, process, ids, budget_seconds=plan.budget_seconds)
        brief = RetryingStore(direct, process, ids, budget_seconds=min(plan.budget_seconds, _BRIEF_SECONDS))
    silence = Silence(process)
    names = [f"c{number}" for number in range(plan.cells)]
    return Deployment(
        Context(
            store=store,
            brief_store=brief,
            threads=1 + plan.seed % 3,
            cells=SimulatedCells(machine, process, names).guarded(store) if names else None,
            blobs=SimulatedBlobs(process, machine.blobs),
            clock=process,
            ids=ids,
            wakeups=silence,
            meter=silence,
            timers=SimulatedTimers(process, machine.alarms),
            precise_timers=SimulatedPreciseTimers(process, machine.alarms)
            if plan.delays is not None and plan.delays.precise
            else None,
            wakeup_queues=machine.queues,
            wheel_wakeups=machine.announcements,
            pushes=SimulatedPushes(process, machine.couriers),
            settings=machine.settings,
        ),
        SimulatedTargets(process, machine.history),
        Leases(_watches=Watches(machine.world)),
        pending_counts=PendingCounts(_lock=Turns(machine.world)),
    )


def share(mine: Deployment, theirs: Deployment) -> None:
    """Makes the two cells share their caches, as two requests of one process do."""
    mine.context = replace(mine.context, buckets=theirs.context.buckets)
    mine.leases, mine.ends, mine.pending_counts = theirs.leases, theirs.ends, theirs.pending_counts
    mine.key_states, mine.opener = theirs.key_states, theirs.opener
    mine.registry = replace(theirs.registry, context=mine.context)
    mine.sweeper = replace(theirs.sweeper, context=mine.context, registry=mine.registry)


@dataclass
class Actor:
    """Works until the run is over. Starts again after each crash."""

    machine: Machine
    process: Process
    deployment: Deployment = field(init=False)
    paced: ClassVar[bool] = True
    """True if the actor sleeps longer: its plan is about delayed messages, and the actor is not."""

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Begins a process with empty caches, or joins the process that all actors share."""
        self.deployment = open_deployment(self.machine, self.process)
        if not self.world.plan.together:
            return
        if self.machine.shared is None:
            self.machine.shared = self.deployment
        else:
            share(self.deployment, self.machine.shared)

    @property
    def world(self) -> World:
        return self.machine.world

    @property
    def rng(self) -> Random:
        return self.machine.world.rng

    @property
    def history(self) -> History:
        return self.machine.history

    @property
    def dates(self) -> Dates:
        assert self.machine.dates is not None
        return self.machine.dates

    def live(self) -> None:
        while not self.world.over:
            try:
                self.work()
            except Crashed:
                self.process.atomic = False
                self._crashed()
                if not self.world.over:
                    self.nap(1_500)

    def _crashed(self) -> None:
        shared = self.machine.shared
        if shared is not None and self.deployment.leases is shared.leases:
            # In a shared process, the first crash ends all actors.
            self.machine.shared = None
            self.world.crash_others(self.process)
        self.open()

    def work(self) -> None:
        raise NotImplementedError

    def nap(self, longest_ms: int) -> None:
        delays = self.world.plan.delays
        if delays is not None and self.rng.random() < delays.patience:
            self.process.sleep(self.dates.wait_ms(self.world.now_ms) / 1_000)
        else:
            pace = 1 if delays is None or not self.paced else delays.pace
            self.process.sleep(self.rng.random() * longest_ms * pace / 1_000)

    def earliest_ms(self) -> int:
        """Returns the earliest time that the actor's clock may show from now on."""
        world = self.world
        return world.now_ms - world.plan.skew_ms if world.plan.clocks_change else self.process.now_ms()

    def latest_ms(self) -> int:
        """Returns the latest time that the actor's clock may have shown until now."""
        world = self.world
        return world.now_ms + world.plan.skew_ms if world.plan.clocks_change else self.process.now_ms()

    def wait(self, seconds: float) -> bool:
        """Implements ``Pause`` for a wheel that runs alone: its ticks lie far apart."""
        self.process.sleep(max(seconds, 20 + 20 * self.rng.random()))
        return True

    def ask(self, name: str, call: Callable[[], T], **details: Any) -> tuple[Verb, T | None]:
        """Makes a call into the library, and returns its answer; None if the call failed with an error that the plan
        allows."""
        verb = self.process.verb = Verb(name, self.process.name, self.world.calls, details, self.world.now_ms)
        try:
            result = call()
        except (Rejected, Unavailable) as error:
            verb.error = error
            self.world.record(self.process.name, name, details, "failed:", error)
            return verb, None
        except HourwheelError as error:
            raise Violation("errors", f"{name} raised {type(error).__name__}: {error}") from error
        self.world.record(self.process.name, name, details, "answered", result)
        return verb, result
