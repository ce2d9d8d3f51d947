"""Opens the tables and buckets of other cells for a function: each when the first call needs it."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from hourwheel.errors import CellUnavailable, NoAccess, Unavailable
from hourwheel.ports import CellStorage, Clock, Ids, Store
from hourwheel.registry.cell_marks import CellMark, check_mark, claim, home_id
from hourwheel.registry.cell_storage import unavailable
from hourwheel.route_records import CellKind


class CellLocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The storage of a cell. ``prefix``: the first part of its tables' names. ``kinds``: those with which it is added
    unless the request names others."""

    prefix: Annotated[str, Meta(min_length=3, max_length=200)]
    bucket: Annotated[str, Meta(min_length=3, max_length=63)]
    kinds: tuple[CellKind, ...] | None = None


class AwsCells:
    """``Cells`` in tables and buckets. The first call for a cell reads its mark: two reads more, once in each process.
    Thread-safe."""

    def __init__(
        self,
        locations: Mapping[str, CellLocation],
        open_storage: Callable[[CellLocation], CellStorage],
        home: Store,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._locations = dict(locations)
        self._open_storage = open_storage
        self._home, self._clock, self._ids = home, clock, ids
        self._opened: dict[str, CellStorage] = {}
        self._opening = threading.Lock()

    def storage(self, cell: str) -> CellStorage:
        with self._opening:
            storage = self._opened.get(cell)
            if storage is None:
                storage, mark = self._open(cell), self._mark(cell)
                try:
                    check_mark(storage.store, self._ids, mark)
                except (Unavailable, NoAccess) as error:
                    raise unavailable(cell, error) from error
                self._opened[cell] = storage
            return storage

    def location(self, cell: str) -> str | None:
        location = self._locations.get(cell)
        return None if location is None else f"dynamodb:{location.prefix}, s3://{location.bucket}"

    def names(self) -> Sequence[str]:
        return sorted(self._locations)

    def kinds(self, cell: str) -> tuple[CellKind, ...] | None:
        location = self._locations.get(cell)
        return None if location is None else location.kinds

    def claim(self, cell: str) -> None:
        storage, mark = self._open(cell), self._mark(cell)
        try:
            claim(storage.store, self._ids, mark)
        except (Unavailable, NoAccess) as error:
            raise unavailable(cell, error) from error

    def forget(self, cell: str) -> None:
        pass

    def _open(self, cell: str) -> CellStorage:
        location = self._locations.get(cell)
        if location is None:
            raise CellUnavailable(f"cell {cell} is not opened here: name it in the setting hourwheel:cells, and deploy")
        return self._open_storage(location)

    def _mark(self, cell: str) -> CellMark:
        return CellMark(home_id(self._home, self._ids, self._clock.now_ms()), cell)
