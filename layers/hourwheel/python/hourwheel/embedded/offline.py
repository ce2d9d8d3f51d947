"""Opens a data directory for a command of the command line; a server may have it open at the same time."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.metrics import CountingMeter
from hourwheel.adapters.polling import PollingWakeups
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.adapters.sqlite.synced_mark import SyncedMark
from hourwheel.cells.cell_marks import home_id
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.cells.cells import given_up_names, registered_cells
from hourwheel.context import Context, Settings
from hourwheel.embedded.directories.directory import (
    INLINE_BYTES,
    DirectoryCells,
    check_cells_of_new_home,
    check_not_given_up,
    database,
    mark_cells,
    prepare,
    synced,
)
from hourwheel.embedded.directories.loss import check_complete
from hourwheel.ports.storage import CellStorage
from hourwheel.system import SystemClock, SystemIds


class ServerTimers:
    """Ignores timers, because a command turns no wheels. A server finds the wheels that are due, at its start and each
    minute."""

    def at(self, when_ms: int, bucket: str) -> None:
        pass


@contextmanager
def opened(data: Path, *, cells: Mapping[str, Path] | None = None, accept_loss: bool = False) -> Iterator[Context]:
    """Opens a data directory, and those of other cells, for a block. Raises the errors of the store, ``OSError``, and
    without ``accept_loss`` also ``Lost``."""
    check_cells_of_new_home(data, cells or {})
    prepare(data)
    clock, ids = SystemClock(), SystemIds()
    with ExitStack() as opening:
        store = _store(data, opening, accept_loss)
        others = None
        if cells:
            check_not_given_up(cells, given_up_names(store, ids))
            home = home_id(store, ids, clock.now_ms())
            added, storages = [cell.name for cell in registered_cells(store, ids)], {}
            mark_cells(cells, home, added=added)
            for name, directory in cells.items():
                prepare(directory, cell=name)
                storages[name] = CellStorage(_store(directory, opening, accept_loss), FileBlobs(directory))
            others = GuardedCells(DirectoryCells(cells, storages, "name it with"), store, clock, ids)
        yield Context(
            store=store,
            blobs=FileBlobs(data),
            cells=others,
            clock=clock,
            ids=ids,
            wakeups=PollingWakeups(clock),
            meter=CountingMeter(),
            timers=ServerTimers(),
            settings=Settings(inline_bytes=INLINE_BYTES),
        )


def _store(data: Path, opening: ExitStack, accept_loss: bool) -> SqliteStore:
    mark = opening.enter_context(closing(SyncedMark(synced(data))))
    check_complete(database(data), mark, accept_loss=accept_loss)
    return opening.enter_context(closing(SqliteStore(database(data), mark=mark)))
