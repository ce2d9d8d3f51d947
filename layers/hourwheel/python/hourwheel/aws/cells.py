"""Opens the tables and buckets of other cells for a function: each when the first call needs it."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from hourwheel.cells.cell_marks import CellMark, check_mark, claim, home_id
from hourwheel.cells.cell_storage import OUT_OF_REACH, not_opened, unavailable
from hourwheel.cells.store_formats import check_format, keep_format
from hourwheel.model.route_records import CellKind
from hourwheel.ports.machine import Clock, Ids
from hourwheel.ports.storage import CellStorage, Store


class CellLocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Says where the storage of a cell is. The names of its tables begin with ``prefix``. The cell is added with
    ``kinds`` unless the request to add it names others."""

    # A name of DynamoDB has 3 to 255 characters; the table's own name follows the prefix.
    prefix: Annotated[str, Meta(min_length=3, max_length=200)]
    bucket: Annotated[str, Meta(min_length=3, max_length=63)]  # the bounds of S3
    kinds: tuple[CellKind, ...] | None = None


class AwsCells:
    """Opens cells in tables of DynamoDB and buckets of S3, as ``Cells``. The first call for a cell also checks the mark
    in its storage and its format, which takes three reads, once in each process. Thread-safe."""

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
                    check_format(storage.store, self._ids, f"cell {cell}")
                except OUT_OF_REACH as error:
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

    def claim(self, cell: str, *, new: bool) -> None:
        storage, mark = self._open(cell), self._mark(cell)
        try:
            claim(storage.store, self._ids, mark, new=new)
            keep_format(storage.store, self._ids, f"cell {cell}")
        except OUT_OF_REACH as error:
            raise unavailable(cell, error) from error

    def forget(self, cell: str) -> None:
        pass  # ``GuardedCells`` around this object remembers the state, not this one

    def _open(self, cell: str) -> CellStorage:
        location = self._locations.get(cell)
        if location is None:
            raise not_opened(cell, "name its storage in the setting hourwheel:cells, and deploy")
        return self._open_storage(location)

    def _mark(self, cell: str) -> CellMark:
        return CellMark(home_id(self._home, self._ids, self._clock.now_ms()), cell)
