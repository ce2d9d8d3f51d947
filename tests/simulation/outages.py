"""Lets cells be out of reach: their stores and objects raise the errors of an outage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from hourwheel.errors import Broken, StorageFull, Throttled
from tests.simulation.state import State
from tests.simulation.store import SimulatedStore, TransactionalStore
from tests.simulation.world import Process, Violation, World

T = TypeVar("T")

WRITES = frozenset({"add", "begin", "seal", "put", "delete", "trim", "collect", "transact", "blob put", "blob delete"})
"""The calls that a full cell refuses."""


@contextmanager
def cut_off(world: World, cell: str, call: str) -> Iterator[None]:
    """Raises the error of a call to a cell that is out of reach: before the effect of the call, or behind it."""
    kind = world.outage(cell)
    if kind == "away":
        raise Throttled(f"simulated: cell {cell} does not answer")
    if kind == "full" and call in WRITES:
        raise StorageFull(f"simulated: cell {cell} is full")
    fails = kind == "failing" and world.rng.random() < 0.5
    if fails and world.rng.random() < 0.5:
        raise Broken(f"simulated: cell {cell} fails")
    yield
    if fails:
        raise Broken(f"simulated: cell {cell} fails after the call took effect")


class CallsOfCell(SimulatedStore):
    """The store of another cell: it contains only logs whose names have the cell."""

    def __init__(self, process: Process, state: State, cell: str) -> None:
        super().__init__(process, state)
        self.cell = cell

    def call(self, name: str, about: object, effect: Callable[[], T]) -> T:
        if name not in ("transact", "collect") and f"{self.cell}:" not in str(about):
            raise Violation("10", f"{name} {about} in cell {self.cell}: that is not its log")
        with cut_off(self.world, self.cell, name):
            return super().call(name, about, effect)


class CellStore(CallsOfCell, TransactionalStore):
    """The store of another cell, with transactions."""
