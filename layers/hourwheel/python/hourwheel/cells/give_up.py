"""Gives up a lost cell: a cell whose storage is gone for good, with the messages in it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.cells.cells import cell_record, cells_beside, changed_meanwhile, load_cell, shown
from hourwheel.cells.lost_cells import foreseen_subject, give_up_parts, holds_parts
from hourwheel.context import Context
from hourwheel.errors import Broken, Conflict, Unavailable
from hourwheel.logs.cas import Versioned
from hourwheel.model.route_records import LostPart
from hourwheel.model.routes import CellRecord, Mapping
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Key, Table
from hourwheel.registry.registry import Registry


@dataclass(frozen=True)
class LostCells:
    """Gives up cells. A call that is cut off may be repeated: the next one finishes it."""

    registry: Registry

    @property
    def context(self) -> Context:
        return self.registry.context

    def give_up(self, cell: str, *, dry_run: bool = False) -> tuple[CellRecord, list[LostPart]]:
        """Marks every part of a queue in the cell as lost, continues the queues that sent their messages there in other
        cells, and removes the cell for good. Returns the cell and the lost parts; the same again for a cell that was
        given up before. Raises ``NotFound`` for an unknown cell, and ``Conflict`` for one that is not off line or whose
        storage can be read. Raises ``Conflict`` also for a queue that has no offsets left, and if another process
        changes or removes the cell meanwhile."""
        stored = cell_record(self.context, cell).load()
        if stored is not None and stored.value.removed and stored.value.lost_ms:
            return stored.value, self._lost_parts(cell)
        record = load_cell(self.context, cell)
        self._check_offline(record)
        if not record.lost_ms:
            self._check_unreadable(cell)
        cells = cells_beside(self.context, cell)
        # Also before the first write: it finds a queue that cannot go on while the state of the cell can still be set.
        foreseen = [part for subject in self.registry.all_subjects() for part in self._foreseen(subject, cell, cells)]
        if dry_run:
            return record, foreseen
        began = self._begin(cell)
        for subject in self._subjects(cell):
            give_up_parts(self.registry, subject.name, cell, cells)
        # After every route: a caller that finds the cell removed finds nothing in it.
        self._swap(cell, began, msgspec.structs.replace(began.value, state="removed"))
        return record, self._lost_parts(cell)

    def _lost_parts(self, cell: str) -> list[LostPart]:
        return [part for subject in self.registry.all_subjects() for part in lost_parts(subject, cell)]

    def _foreseen(self, subject: Subject, cell: str, cells: list[str]) -> Iterable[LostPart]:
        """Returns the parts of the subject that are lost after the cell is given up, those too that are lost by now."""
        if not holds_parts(subject, cell):
            return lost_parts(subject, cell)
        return lost_parts(foreseen_subject(self.context, subject, cell, cells), cell)

    def _begin(self, cell: str) -> Versioned[CellRecord]:
        """Marks the cell as one that is given up, unless it is marked: nobody may set its state from now on."""
        current = cell_record(self.context, cell).load()
        if current is None or current.value.removed:
            raise changed_meanwhile(cell)
        self._check_offline(current.value)
        if current.value.lost_ms:
            return current
        lost = msgspec.structs.replace(current.value, lost_ms=self.context.clock.now_ms())
        return self._swap(cell, current, lost)

    def _swap(self, cell: str, current: Versioned[CellRecord], value: CellRecord) -> Versioned[CellRecord]:
        outcome = cell_record(self.context, cell).swap(current, value)
        if self.context.cells is not None:
            self.context.cells.forget(cell)
        if not outcome.stored or outcome.current is None:
            raise changed_meanwhile(cell)
        return outcome.current

    @staticmethod
    def _check_offline(record: CellRecord) -> None:
        if record.state != "offline":
            detail = (
                f"cell {record.name!r} is {record.state}: if its storage is gone for good, set its state to offline, so"
                " that no process sends messages there, then give it up"
            )
            raise Conflict("cell-state", detail, field="cell")

    def _check_unreadable(self, cell: str) -> None:
        """Raises ``Conflict`` if this process can open and read the storage of the cell, whatever the cell's state."""
        cells = self.context.cells
        if cells is None:
            return
        try:
            # The guard keeps reads away from a cell that is off line.
            store = (cells.inner if isinstance(cells, GuardedCells) else cells).storage(cell).store
            probe = f"{cell}:probe"
            store.counter(probe)
            for table in (Table.META, Table.CONSUME, Table.PULL):
                store.get(Key(table, probe, probe))
        except (Unavailable, Broken):
            return
        detail = (
            f"cell {cell!r} is offline, but its storage can be read: set its state to normal and drain it, or wait"
            " until its messages expire; nothing needs to be given up"
        )
        raise Conflict("cell-state", detail, field="cell")

    def _subjects(self, cell: str) -> Iterator[Subject]:
        return (subject for subject in self.registry.all_subjects() if holds_parts(subject, cell))


def lost_parts(subject: Subject, cell: str) -> Iterable[LostPart]:
    """Yields the parts of the subject that were lost with the cell."""
    for queue, route in enumerate(() if subject.erased else subject.all_routes()):
        pairs = zip(route.mappings, (*route.mappings[1:], None), strict=True)
        lost = ((part, following) for part, following in pairs if part.cell == cell and part.state == "lost")
        yield from (_lost_part(subject, queue, part, following) for part, following in lost)


def _lost_part(subject: Subject, queue: int, mapping: Mapping, following: Mapping | None) -> LostPart:
    next_part = following if mapping.known_end is None else None
    return LostPart(
        subject=subject.name,
        queue=queue,
        log=subject.log_of(queue, mapping),
        start=mapping.start,
        end=mapping.known_end,
        next_start=next_part.start if next_part else None,
        next_cell=shown(next_part.cell) if next_part else None,
    )
