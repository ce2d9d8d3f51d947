"""Opens the storage of cells for a context, and keeps work away from cells that are off line.

An error of a cell's storage says which cell it is: work on other cells goes on.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from hourwheel.context import record_of_cell
from hourwheel.errors import CellUnavailable, NoAccess, Unavailable
from hourwheel.ports import Blobs, Cells, CellStorage, Clock, Ids, Store
from hourwheel.route_records import CellKind
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


@dataclass
class GuardedCells:
    """Implements ``Cells`` by the ``inner`` ones, without those that are off line or do not answer. Reads the state of
    a cell from the ``home`` store, at most every ``seconds``. Makes no call to a cell for ``rest_seconds`` after a call
    that it did not answer: that call may have waited for this long, and work on other cells shall not wait again.
    Thread-safe: a race opens nothing twice, and at worst reads a state twice."""

    inner: Cells
    home: Store
    clock: Clock
    ids: Ids
    seconds: float = 2.0
    rest_seconds: float = 5.0
    _opened: dict[str, CellStorage] = field(default_factory=dict)
    _states: dict[str, tuple[int, str]] = field(default_factory=dict)
    _failures: dict[str, tuple[int, CellUnavailable]] = field(default_factory=dict)

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
            except CellUnavailable as error:
                raise self._failed(cell, error) from error
            opened = self._opened[cell] = CellStorage(
                cast("Store", self._with_calls(cell, inner.store, _store_calls(inner.store))),
                cast("Blobs", self._with_calls(cell, inner.blobs, _BLOB_CALLS)),
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

    def _with_calls(self, cell: str, inner: object, names: Sequence[str]) -> "_Guarded":
        guarded = _Guarded()
        guarded.__dict__.update({name: self._guarded(cell, getattr(inner, name)) for name in names})
        return guarded

    def _guarded(self, cell: str, call: Callable[P, R]) -> Callable[P, R]:
        # Not a context manager: it would cost as much as a call of the memory store.
        @wraps(call)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            self._check_answers(cell)
            try:
                return call(*args, **kwargs)
            except (Unavailable, NoAccess) as error:
                raise self._failed(cell, error) from error

        return guarded

    def _check_answers(self, cell: str) -> None:
        """Raises ``CellUnavailable`` for a cell that failed lately."""
        # A cell that is out of reach would otherwise cost every pull its time-out.
        failure = self._failures.get(cell)
        if failure is not None:
            if within(failure[0], self.clock.now_ms(), round(self.rest_seconds * 1_000)):
                raise CellUnavailable(str(failure[1]), is_logged=failure[1].is_logged, is_lasting=failure[1].is_lasting)
            self._failures.pop(cell, None)

    def _failed(self, cell: str, error: Unavailable | NoAccess) -> CellUnavailable:
        named = unavailable(cell, error)
        # A client learns that the cell does not answer. The reason goes to the operator, who can grant missing rights.
        line = str(named) if named is error else f"{named}: {error}"
        _logger.log(logging.ERROR if isinstance(error, NoAccess) else logging.WARNING, "%s", line)
        self._failures[cell] = self.clock.now_ms(), named
        return named


def unavailable(cell: str, error: Unavailable | NoAccess) -> CellUnavailable:
    """Returns the error as one that names the cell whose storage cannot be used."""
    if isinstance(error, CellUnavailable):
        return error
    return CellUnavailable(f"the storage of cell {cell} does not answer", is_logged=True)


class _Guarded:
    """Has the calls of another object as its own; their errors name the cell."""


def _store_calls(store: Store) -> Sequence[str]:
    # ``transactional`` tells a store without transactions by the missing attribute.
    return (*_STORE_CALLS, "transact") if hasattr(store, "transact") else _STORE_CALLS
