"""Opens the storage of cells for a context, and keeps work away from cells that are off line.

An error of a cell's storage says which cell it is: work on other cells goes on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec, TypeVar, cast

from hourwheel.errors import CellUnavailable, Unavailable
from hourwheel.logs.cas import CasRecord
from hourwheel.ports import Blobs, Cells, CellStorage, Clock, Ids, Key, Store, Table
from hourwheel.registry.cells import CellRecord

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
    """``Cells`` over others. Reads the state of a cell from the ``home`` store, at most every ``seconds``. Thread-safe:
    a race opens nothing twice, and at worst reads a state twice."""

    inner: Cells
    home: Store
    clock: Clock
    ids: Ids
    seconds: float = 2.0
    _opened: dict[str, CellStorage] = field(default_factory=dict)
    _states: dict[str, tuple[int, str]] = field(default_factory=dict)

    def storage(self, cell: str) -> CellStorage:
        if self._state(cell) == "offline":
            raise CellUnavailable(f"cell {cell} is off line")
        opened = self._opened.get(cell)
        if opened is None:
            inner = self.inner.storage(cell)
            opened = self._opened[cell] = CellStorage(
                _guarded_store(cell, inner.store), _guarded_blobs(cell, inner.blobs)
            )
        return opened

    def location(self, cell: str) -> str | None:
        return self.inner.location(cell)

    def names(self) -> Sequence[str]:
        return self.inner.names()

    def forget(self, cell: str) -> None:
        """Drops the remembered state of a cell."""
        self._states.pop(cell, None)

    def _state(self, cell: str) -> str:
        cached = self._states.get(cell)
        now_ms = self.clock.now_ms()
        if cached is not None and 0 <= now_ms - cached[0] < self.seconds * 1_000:
            return cached[1]
        current = CasRecord(self.home, self.ids, Key(Table.META, "cells", cell), CellRecord).load(consistent=False)
        state = "normal" if current is None else current.value.state
        self._states[cell] = now_ms, state
        return state


class _Guarded:
    """The calls of another object, whose errors name the cell."""


def _guarded_store(cell: str, store: Store) -> Store:
    names = (*_STORE_CALLS, "transact") if hasattr(store, "transact") else _STORE_CALLS
    return cast("Store", _with_calls(cell, store, names))


def _guarded_blobs(cell: str, blobs: Blobs) -> Blobs:
    return cast("Blobs", _with_calls(cell, blobs, _BLOB_CALLS))


def _with_calls(cell: str, inner: object, names: Sequence[str]) -> _Guarded:
    guarded = _Guarded()
    guarded.__dict__.update({name: _named(cell, getattr(inner, name)) for name in names})
    return guarded


def _named(cell: str, call: Callable[P, R]) -> Callable[P, R]:
    @wraps(call)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except CellUnavailable:
            raise
        except Unavailable as error:
            raise CellUnavailable(f"cell {cell} does not answer: {error}") from error

    return named
