"""Opens the data directories of other cells.

The file ``cell`` in each directory names the home and the cell to which the directory belongs. A server refuses the
directory of another cell, because the rows that it would write there would be lost.
"""

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.adapters.sqlite.synced_mark import SyncedMark
from hourwheel.adapters.sqlite.writer import Synchronous
from hourwheel.embedded.directories.directory import DirectoryCells, Neighbours, database, mark_cells, prepare, synced
from hourwheel.embedded.directories.loss import check_complete
from hourwheel.embedded.directories.reserve import release_spare
from hourwheel.embedded.greenlets import GreenletBlobs, GreenletRunner, GreenletStore
from hourwheel.ports.storage import CellStorage


class EmbeddedCells(DirectoryCells):
    """Opens cells in data directories, as ``Cells``. The constructor opens all of them, and raises ``Broken`` for a
    directory that belongs to another cell. ``added``: the names of the cells that the home has registered."""

    def __init__(
        self,
        directories: Mapping[str, Path],
        home: str,
        *,
        added: Collection[str],
        synchronous: Synchronous,
        accept_loss: bool,
        greenlets: GreenletRunner,
        threads: ThreadPoolExecutor,
    ) -> None:
        storages: dict[str, CellStorage] = {}
        super().__init__(dict(directories), storages, "start the server with")
        self._stores: list[SqliteStore] = []
        self._marks: list[SyncedMark] = []
        self._neighbours: list[Neighbours] = []
        with ExitStack() as opened:
            mark_cells(directories, home, added=added)
            for name, directory in directories.items():
                prepare(directory, cell=name)
                release_spare(directory)
                mark = SyncedMark(synced(directory))
                opened.callback(mark.close)
                check_complete(database(directory), mark, accept_loss=accept_loss)
                store = SqliteStore(database(directory), synchronous=synchronous, mark=mark)
                opened.callback(store.close)
                neighbours = Neighbours(directory)
                opened.callback(neighbours.close)
                self._stores.append(store)
                self._marks.append(mark)
                self._neighbours.append(neighbours)
                blobs = GreenletBlobs(FileBlobs(directory), greenlets, threads)
                storages[name] = CellStorage(GreenletStore(store, greenlets), blobs)
            self._closing = opened.pop_all()

    def wrote(self) -> bool:
        """Returns whether other processes may have written to a cell since the last call."""
        # ``any`` of a generator would skip the cells behind one with a change, whose change would be told next time.
        wrote = [neighbours.wrote() for neighbours in self._neighbours]
        return any(wrote)

    def flush_marks(self) -> None:
        for mark in self._marks:
            mark.flush()

    def uninvite(self) -> None:
        for store in self._stores:
            store.uninvite()

    def close(self) -> None:
        self._closing.close()
