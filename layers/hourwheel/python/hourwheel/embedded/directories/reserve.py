"""Keeps a reserve of free space on each volume of a server: new messages are refused before the volume is full, so that
it can be drained. Pulls, settlements and deletions write too, and go on in the reserve.

spare    a file of 40 MB in each data directory, which a start on a full volume removes: SQLite opens no database there

The server makes the spare once a volume has room for it beyond the reserve.
"""

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from hourwheel.cells.cell_storage import nearly_full
from hourwheel.errors import Broken, StorageFull
from hourwheel.model.log_names import HOME
from hourwheel.ports.storage import VolumeSpace

_LOW = 2  # times the reserve: operators hear of it while sends still work

MEGABYTE = 1 << 20

SPARE_BYTES = 40 * MEGABYTE
"""The write-ahead log takes 16 MB, and as much again while it is copied into the database."""

_HOME = "home"
_STORED = "batches"  # the folder that takes new messages, if they are large
_FOLDERS = (_STORED, "archive", "lake")
"""Folders of a data directory that may be on volumes of their own."""

_logger = logging.getLogger("hourwheel")


def free_bytes(path: Path) -> int:
    """Returns the free bytes of the volume of a directory that the server may use. Raises ``Broken``."""
    try:
        return shutil.disk_usage(path).free
    except OSError as error:
        raise Broken(f"the free space of {path} cannot be read: {error.strerror}") from error


def release_spare(data: Path, free: Callable[[Path], int] = free_bytes) -> None:
    """Removes the spare of a data directory whose volume has less room than the start and the draining of a server
    take. Raises ``OSError`` and ``Broken``."""
    spare = data / "spare"
    if spare.exists() and free(data) < SPARE_BYTES:
        spare.unlink()
        _logger.warning("the volume of %s is full: removed the spare file to drain its queues", data)


def keep_spare(data: Path, reserve: int, free: Callable[[Path], int] = free_bytes) -> None:
    """Makes the spare of a data directory, if its volume has room for it beyond twice the reserve."""
    spare = data / "spare"
    with suppress(OSError, Broken):  # the room is gone again, or the volume: the next call tries it again
        if reserve and not _is_whole(spare) and free(data) >= _LOW * reserve + SPARE_BYTES:
            _allocate(spare)


def _is_whole(spare: Path) -> bool:
    """Returns whether the file exists with all its bytes, which a process that is killed may not have allocated."""
    return spare.exists() and spare.stat().st_size >= SPARE_BYTES


def _allocate(spare: Path) -> None:
    """Makes a file whose bytes the volume has given away. Leaves none after an error."""
    descriptor = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, SPARE_BYTES)
        else:
            _fill(descriptor)
    except OSError:
        spare.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _fill(descriptor: int) -> None:
    """Writes the bytes of a spare, where the system cannot allocate them unwritten: macOS."""
    zeros = bytes(MEGABYTE)
    size = 0
    while size < SPARE_BYTES:
        size += os.pwrite(descriptor, zeros[: SPARE_BYTES - size], size)


class DirectoryReserve:
    """The reserve of one directory, in bytes; 0: none. ``free`` returns the free bytes of its volume."""

    def __init__(self, path: Path, size: int, free: Callable[[Path], int] = free_bytes) -> None:
        self._path = path
        self._free = free
        self.size = size

    @property
    def free(self) -> int | None:
        """The free bytes of the volume, the reserve included; None for a volume that cannot be read, of which each
        write tells."""
        try:
            return self._free(self._path)
        except Broken:
            return None

    @property
    def is_low(self) -> bool:
        """Whether the volume has less than twice the reserve left."""
        return self.has_less_than(_LOW * self.size)

    @property
    def is_reached(self) -> bool:
        """Whether the volume has less than the reserve left."""
        return self.has_less_than(self.size)

    def has_less_than(self, size: int) -> bool:
        free = self.free if size else None
        return free is not None and free < size


class Reserves:
    """The reserves of a server, as ``Reserve``: of its home, of the cells in other directories, and of their folders on
    volumes of their own. ``by_volume`` names them: ``home``, ``home/archive``, ``fast``."""

    def __init__(
        self, data: Path, cells: Mapping[str, Path], size: int, free: Callable[[Path], int] = free_bytes
    ) -> None:
        self.size = size
        self._free = free
        self._directories = [data, *cells.values()]
        self.by_volume: dict[str, DirectoryReserve] = {}
        self._of_cell: dict[str, list[DirectoryReserve]] = {}
        for cell, directory in ((HOME, data), *cells.items()):
            name = cell or _HOME
            folders = {
                f"{name}/{folder}": directory / folder for folder in _FOLDERS if _is_elsewhere(directory, folder)
            }
            self.by_volume |= {name: DirectoryReserve(directory, size, free)}
            self.by_volume |= {volume: DirectoryReserve(path, size, free) for volume, path in folders.items()}
            stored = [name, f"{name}/{_STORED}"]
            self._of_cell[cell] = [reserve for volume, reserve in self.by_volume.items() if volume in stored]

    def check(self, cell: str) -> None:
        """Raises ``StorageFull`` if the home keeps the space that it has left, and ``CellFull`` for another cell."""
        if not any(reserve.is_reached for reserve in self._of_cell.get(cell, ())):
            return
        if cell == HOME:
            raise StorageFull(f"less than {self.size // MEGABYTE} MB are left, which are kept to drain the queues")
        raise nearly_full(cell)

    def volumes(self) -> list[VolumeSpace]:
        """Returns the space of each volume that can be read."""
        read = ((name, reserve.free) for name, reserve in self.by_volume.items())
        return [VolumeSpace(name, free, self.size) for name, free in read if free is not None]

    def low(self) -> list[str]:
        """Returns the names of the volumes that have less than twice the reserve left."""
        return [volume for volume, reserve in self.by_volume.items() if reserve.is_low]

    def keep_spares(self) -> None:
        """Makes the spare of each directory that has none and has room."""
        for directory in self._directories:
            keep_spare(directory, self.size, self._free)


def _is_elsewhere(directory: Path, folder: str) -> bool:
    """Returns whether a folder is on another volume than its directory."""
    path = directory / folder
    return path.is_dir() and path.stat().st_dev != directory.stat().st_dev
