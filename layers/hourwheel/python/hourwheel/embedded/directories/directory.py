"""Prepares the data directory, and watches other processes that use it.

format            the format of its files and records, who wrote it and who may read it: ``StoreFormat`` in JSON
hourwheel.db      the store, and beside it SQLite's own -wal and -shm
batches/          batches too large for a row
archive/          the archive
lake/             the lake, which jobs of the pipeline keep
scratch/          temporary files of Spark while a job of the pipeline runs
live/             a file for each server that has the directory open
synced            the number of the last transaction of hourwheel.db
spare             40 MB that a start on a full volume removes (``reserve.py``)
raising           locked by a process that raises the format
servers           locked by each process that has the directory open
cell              the home and the name of the cell to which the directory belongs; absent in a home
"""

import fcntl
import os
import sqlite3
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from hourwheel.adapters.files import sync_folder
from hourwheel.cells.cell_storage import not_opened
from hourwheel.embedded.directories.ownership import check_directory
from hourwheel.embedded.directories.reserve import release_spare
from hourwheel.errors import UNDECODABLE, Broken, Corrupt
from hourwheel.logs.formats import CURRENT, FORMAT, StoreFormat, check, raised
from hourwheel.model.route_records import CellKind
from hourwheel.ports.storage import CellStorage

_decoder = msgspec.json.Decoder(StoreFormat)

INLINE_BYTES = 300 * 1024
"""The largest batch within a row. A file of its own would take two more syncs than a row."""


def check_cell(data: Path, home: str, cell: str, *, new: bool) -> None:
    """Raises ``Broken`` for the directory of another cell or another home, for one without a mark, and for a missing or
    empty one of a cell that was added before. ``home`` is "" for a home that does not exist yet. Changes nothing."""
    marker = data / "cell"
    if _is_missing_or_empty(data):
        if not new:
            # An empty one would give out again the offsets of the messages that are in the missing one.
            raise Broken(
                f"{data} is missing or empty, and cell {cell} was added before: put its directory back (is its disk"
                f" mounted?), or start without --cell {cell}={data}; if it is gone for good, give the cell up then"
                f" (hourwheel cell set-state {cell} offline, hourwheel cell remove {cell} --lost)"
            )
        return
    if not marker.exists() and (data / "format").exists():
        raise Broken(
            f"{data} is the data directory of a home, which is a cell itself: name another directory for cell {cell}"
        )
    if not marker.exists():
        raise Broken(f"{data} is no directory of a cell: name an empty one for cell {cell}")
    owner, _, name = marker.read_text().strip().partition(" ")
    if owner != home:
        raise Broken(f"{data} belongs to cell {name} of another home: name the directory of cell {cell}")
    if name != cell:
        raise Broken(f"{data} belongs to cell {name}: start with --cell {name}={data}")


def check_cells_of_new_home(data: Path, cells: Mapping[str, Path]) -> None:
    """Raises what ``mark_cells`` raises, if the data directory of the home is yet to be made: a server that is refused
    because of a cell shall leave no directory behind."""
    if _is_missing_or_empty(data):
        _check_cells(cells, "", added=())


def mark_cells(cells: Mapping[str, Path], home: str, *, added: Collection[str]) -> None:
    """Marks the empty directories of new cells, and creates those that do not exist. Raises what ``check_cell`` and
    ``check_directory`` raise, and creates nothing then. ``added``: the names of the cells that the home has
    registered."""
    _check_cells(cells, home, added=added)
    for name, directory in cells.items():
        if _is_missing_or_empty(directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(directory / "cell", f"{home} {name}\n")
    _check_cells(cells, home, added=added)  # another server may have marked a directory first


def _check_cells(cells: Mapping[str, Path], home: str, *, added: Collection[str]) -> None:
    for name, directory in cells.items():
        check_cell(directory, home, name, new=name not in added)
        if directory.exists():
            check_directory(directory)


def check_not_given_up(cells: Mapping[str, Path], given_up: Collection[str]) -> None:
    """Raises ``Broken`` if one of the cells was given up: its directory may hold messages that count as lost."""
    for cell, data in cells.items():
        if cell in given_up:
            raise Broken(
                f"cell {cell} was given up, and its name is not used again: start without --cell {cell}={data}"
            )


def prepare(data: Path, *, cell: str = "") -> None:
    """Creates a data directory that only its owner may read, or takes the rights of others from an existing one.
    ``cell`` is the cell to which the directory belongs (empty: it is a home).

    Raises ``DataVersion``, ``Corrupt`` or ``Broken``, and changes nothing, if this process must not write to the
    directory, and ``OSError`` if it cannot.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_directory(data)
    if not cell and (data / "cell").exists():
        raise Broken(f"{data} is the directory of a cell: start with the data directory of its home, and --cell")
    _keep_format(data)
    # Creates the database with a mode for the owner alone: SQLite gives its other files the mode of the database.
    os.close(_open_private(database(data)))


def stored_format(data: Path) -> StoreFormat | None:
    """Returns the format of a data directory; None where there is none yet. Raises ``DataVersion`` if this version must
    not use the directory, and ``Corrupt``."""
    path = data / "format"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        # Before the first release the file held the number alone.
        stated = (
            _decoder.decode(text)
            if text[:1] == b"{"
            else StoreFormat(format=int(text), least_reader=int(text), written_by="")
        )
    except UNDECODABLE as error:
        from shlex import quote  # a start that succeeds does not need it

        raise Corrupt(
            f"{path} does not hold a format: is this a data directory? Unless a later version has used it, repair it by"
            f" echo {FORMAT} > {quote(str(path))}"
        ) from error
    check(stated, f"the data directory {data}")
    return stated


def _keep_format(data: Path) -> None:
    """Raises what ``stored_format`` raises, and stores the format if none is stored, or an older one."""
    stated, text = stored_format(data), msgspec.json.encode(CURRENT).decode() + "\n"
    if stated is None:
        _write(data / "format", text)
        stored_format(data)  # another process may have created it first
    elif raised(stated) is not None:
        release_spare(data)
        with _raising(data):
            if raised(stored_format(data)) is not None:  # a later version may have raised it meanwhile
                _replace(data / "format", text)


@contextmanager
def _raising(data: Path) -> Iterator[None]:
    """Keeps other processes from raising the format during the block."""
    with os.fdopen(_open_private(data / "raising"), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def database(data: Path) -> Path:
    return data / "hourwheel.db"


def synced(data: Path) -> Path:
    return data / "synced"


def archive_of(data: Path) -> Path:
    return data / "archive"


def lake_of(data: Path) -> Path:
    return data / "lake"


def _is_missing_or_empty(data: Path) -> bool:
    return not data.exists() or not any(data.iterdir())


def _open_private(path: Path) -> int:
    """Opens a file, and creates one that only its owner may read. Returns the descriptor. Refuses links."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


def _write(path: Path, text: str) -> None:
    """Creates a file in one step, unless it exists: other processes find the whole file or none."""
    with _beside(path, text) as unfinished, suppress(FileExistsError):
        os.link(unfinished, path)


def _replace(path: Path, text: str) -> None:
    """Replaces a file in one step."""
    with _beside(path, text) as unfinished:
        os.replace(unfinished, path)


@contextmanager
def _beside(path: Path, text: str) -> Iterator[str]:
    """Yields the name of a synced file with the text beside ``path``. Removes that name after the block, and syncs what
    the block has made of it."""
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield unfinished
    finally:
        Path(unfinished).unlink(missing_ok=True)
    sync_folder(path.parent)


class Neighbours:
    """Watches the other processes that have the directory open. For one thread."""

    def __init__(self, data: Path) -> None:
        self._file = os.fdopen(_open_private(data / "servers"), "r+b")
        fcntl.lockf(self._file, fcntl.LOCK_SH)
        location = database(data).absolute().as_uri()
        self._connection = sqlite3.connect(f"{location}?mode=ro", uri=True, check_same_thread=False)
        self._was_alone = self._alone()
        self._seen = self._version()

    def wrote(self) -> bool:
        """Returns whether other processes may have written since the last call.

        The version of the database also changes with the writes of this process. So the result is False if this process
        has been alone, at the last call and now: a process that was there at the last call may have written since.
        """
        was_alone, self._was_alone = self._was_alone, self._alone()
        before, self._seen = self._seen, self._version()
        return before != self._seen and not (was_alone and self._was_alone)

    def close(self) -> None:
        self._connection.close()
        self._file.close()

    def _alone(self) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.lockf(self._file, fcntl.LOCK_SH)
        return True

    def _version(self) -> int:
        (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(version)


class DirectoryCells:
    """Gives access to cells in data directories, as ``Cells``. ``remedy`` begins the advice for a cell that is not
    among them."""

    def __init__(self, directories: Mapping[str, Path], storages: Mapping[str, CellStorage], remedy: str) -> None:
        self._directories, self._storages, self._remedy = directories, storages, remedy

    def storage(self, cell: str) -> CellStorage:
        storage = self._storages.get(cell)
        if storage is None:
            raise not_opened(cell, f"{self._remedy} --cell {cell}=DIRECTORY")
        return storage

    def location(self, cell: str) -> str | None:
        directory = self._directories.get(cell)
        return None if directory is None else str(directory.absolute())

    def names(self) -> Sequence[str]:
        return sorted(self._directories)

    def kinds(self, cell: str) -> tuple[CellKind, ...] | None:
        return None

    def claim(self, cell: str, *, new: bool) -> None:
        self.storage(cell)  # the directory was marked when it was opened

    def forget(self, cell: str) -> None:
        pass  # ``GuardedCells`` around this object remembers the state, not this one
