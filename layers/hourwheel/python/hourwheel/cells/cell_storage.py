"""Opens the storage of cells for a context, and keeps work away from cells that are out of reach.

This module alone decides which errors of a storage put its cell out of reach: those of a storage that does not answer,
that fails or that has no room. Each becomes a ``CellUnavailable`` that says which cell it is, and work on other cells
goes on. Errors of the work inside a transaction stay as they are, and so do objects that are missing or damaged.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from hourwheel.context import record_of_cell
from hourwheel.errors import (
    Broken,
    CellFull,
    CellUnavailable,
    Corrupt,
    DataVersion,
    HourwheelError,
    NoAccess,
    StorageFull,
    Unavailable,
)
from hourwheel.model.route_records import CellKind
from hourwheel.ports.machine import Clock, Ids
from hourwheel.ports.storage import Blobs, Cells, CellStorage, Store
from hourwheel.times import within

_logger = logging.getLogger("hourwheel")

P = ParamSpec("P")
R = TypeVar("R")

_STORE_CALLS = (
    "add",
    "begin",
    "seal",
    "counter",
    "counters",
    "get",
    "get_many",
    "put",
    "delete",
    "scan",
    "trim",
    "collect",
)
_BLOB_CALLS = ("put", "get", "list", "delete")

OUT_OF_REACH = (Unavailable, Broken)
"""The errors of a storage that put its cell out of reach."""


@dataclass
class GuardedCells:
    """Implements ``Cells`` by the ``inner`` ones, without those that are off line or out of reach. Reads the state of a
    cell from the ``home`` store, at most every ``seconds``. Makes no call to a cell for ``rest_seconds`` after a call
    that it did not answer: that call may have waited for this long, and work on other cells shall not wait again. A
    cell that has no room is called at once: it can be read. Thread-safe: a race opens nothing twice, and at worst reads
    a state twice."""

    inner: Cells
    home: Store
    clock: Clock
    ids: Ids
    seconds: float = 2.0
    rest_seconds: float = 5.0
    _opened: dict[str, CellStorage] = field(default_factory=dict)
    _states: dict[str, tuple[int, str]] = field(default_factory=dict)
    _failures: dict[str, tuple[int, CellUnavailable]] = field(default_factory=dict)
    _logged: dict[str, tuple[int, str]] = field(default_factory=dict)

    def storage(self, cell: str) -> CellStorage:
        state = self._state(cell)
        if state == "offline":
            how = f"hourwheel cell set-state {cell} normal brings it back if its storage can be reached"
            raise CellUnavailable(f"cell {cell} is offline: {how}")
        if state == "lost":
            raise CellUnavailable(f"cell {cell} was given up: what it held is lost")
        opened = self._opened.get(cell)
        if opened is None:
            self._check_answers(cell)
            try:
                inner = self.inner.storage(cell)
            except OUT_OF_REACH as error:
                raise self._failed(cell, error) from error
            opened = self._opened[cell] = CellStorage(
                cast("Store", self._with_calls(cell, inner.store, _STORE_CALLS)),
                cast("Blobs", self._with_calls(cell, inner.blobs, _BLOB_CALLS, passes=Corrupt)),
            )
        return opened

    def location(self, cell: str) -> str | None:
        return self.inner.location(cell)

    def names(self) -> Sequence[str]:
        return self.inner.names()

    def kinds(self, cell: str) -> tuple[CellKind, ...] | None:
        return self.inner.kinds(cell)

    def claim(self, cell: str, *, new: bool) -> None:
        self.inner.claim(cell, new=new)

    def forget(self, cell: str) -> None:
        """Drops the remembered state and failure of a cell."""
        self._states.pop(cell, None)
        self._failures.pop(cell, None)

    def _state(self, cell: str) -> str:
        cached = self._states.get(cell)
        now_ms = self.clock.now_ms()
        if cached is not None and 0 <= now_ms - cached[0] < self.seconds * 1_000:
            return cached[1]
        current = record_of_cell(self.home, self.ids, cell).load(consistent=False)
        state = "normal"
        if current is not None:
            state = "lost" if current.value.lost_ms else current.value.state
        self._states[cell] = now_ms, state
        return state

    def _with_calls(
        self, cell: str, inner: object, names: Sequence[str], *, passes: type[Corrupt] | tuple[()] = ()
    ) -> "_Guarded":
        guarded = _Guarded()
        guarded.__dict__.update({name: self._guarded(cell, getattr(inner, name), passes) for name in names})
        if hasattr(inner, "transact"):  # ``transactional`` tells a store without transactions by the missing attribute
            guarded.__dict__["transact"] = self._transacting(cell, inner.transact)
        return guarded

    def _guarded(self, cell: str, call: Callable[P, R], passes: type[Corrupt] | tuple[()]) -> Callable[P, R]:
        # Not a context manager: it would cost as much as a call of the memory store.
        @wraps(call)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            self._check_answers(cell)
            try:
                return call(*args, **kwargs)
            except passes:
                raise
            except OUT_OF_REACH as error:
                raise self._failed(cell, error) from error

        return guarded

    def _transacting(self, cell: str, transact: Callable[..., R]) -> Callable[..., R]:
        def guarded(work: Callable[[Store], R]) -> R:
            of_work: list[HourwheelError] = []

            def watched(store: Store) -> R:
                try:
                    return work(store)
                except HourwheelError as error:
                    of_work.append(error)
                    raise

            self._check_answers(cell)
            try:
                return transact(watched)
            except OUT_OF_REACH as error:
                if any(error is raised for raised in of_work):
                    raise
                raise self._failed(cell, error) from error

        return guarded

    def _check_answers(self, cell: str) -> None:
        """Raises ``CellUnavailable`` for a cell that failed lately."""
        # A cell that is out of reach would otherwise cost every pull its time-out.
        failure = self._failures.get(cell)
        if failure is not None:
            if within(failure[0], self.clock.now_ms(), round(self.rest_seconds * 1_000)):
                raise failure[1].reworded(str(failure[1]))
            self._failures.pop(cell, None)

    def _failed(self, cell: str, error: Unavailable | Broken) -> CellUnavailable:
        named = unavailable(cell, error)
        # A client learns that the cell does not answer. The reason goes to the operator, who can grant missing rights.
        self._log(cell, error, str(named) if named is error else f"{named}: {error}")
        # These concern the call alone: the next one may need no room, or another record.
        if not isinstance(error, (StorageFull, Corrupt)):
            self._failures[cell] = self.clock.now_ms(), named
        return named

    def _log(self, cell: str, error: Unavailable | Broken, line: str) -> None:
        """Logs a failure, one that repeats the last one of the cell at most every ``rest_seconds``."""
        now_ms, logged = self.clock.now_ms(), self._logged.get(cell)
        if logged is None or logged[1] != line or not within(logged[0], now_ms, round(self.rest_seconds * 1_000)):
            self._logged[cell] = now_ms, line
            _logger.log(logging.ERROR if isinstance(error, Broken) else logging.WARNING, "%s", line)


def unavailable(cell: str, error: Unavailable | Broken) -> CellUnavailable:
    """Returns the error as one that says that the cell is out of reach."""
    if isinstance(error, CellUnavailable):
        return error
    if isinstance(error, StorageFull):
        return CellFull(f"the volume of cell {cell} is full")
    if isinstance(error, DataVersion):
        return CellUnavailable(str(error), is_lasting=True)
    how = "fails" if isinstance(error, Broken) and not isinstance(error, NoAccess) else "does not answer"
    return CellUnavailable(f"the storage of cell {cell} {how}", is_logged=True)


def not_opened(cell: str, advice: str) -> CellUnavailable:
    """Returns the error about a cell that this process does not open: no repetition helps before it does."""
    return CellUnavailable(f"cell {cell} is not opened here: {advice}", is_lasting=True)


def nearly_full(cell: str) -> CellFull:
    """Returns the error about a cell whose volume keeps the space that it has left."""
    return CellFull(f"the volume of cell {cell} is nearly full")


class _Guarded:
    """Has the calls of another object as its own; their errors name the cell."""
