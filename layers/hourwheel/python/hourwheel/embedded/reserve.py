"""Keeps a reserve of free space on the volume of a server: new messages are refused before the volume is full, so that
it can be drained. Pulls, settlements and deletions write too, and go on in the reserve."""

import shutil
from collections.abc import Callable
from pathlib import Path

from hourwheel.api.events import Event, Function, Invocation, Response
from hourwheel.cell import Cell
from hourwheel.errors import Broken, StorageFull

_LOW = 2  # times the reserve: operators hear of it while sends still work

MEGABYTE = 1 << 20


def free_bytes(path: Path) -> int:
    """Returns the free bytes of the volume of a directory that the server may use. Raises ``Broken``."""
    try:
        return shutil.disk_usage(path).free
    except OSError as error:
        raise Broken(f"the free space of {path} cannot be read: {error.strerror}") from error


class Reserve:
    """The reserve of one directory, in bytes; 0: none. ``free`` returns the free bytes of its volume."""

    def __init__(self, path: Path, size: int, free: Callable[[Path], int] = free_bytes) -> None:
        self._path = path
        self._free = free
        self.size = size

    @property
    def free(self) -> int:
        """The free bytes of the volume, the reserve included."""
        return self._free(self._path)

    @property
    def is_low(self) -> bool:
        """Whether the volume has less than twice the reserve left."""
        return self.size > 0 and self.free < _LOW * self.size

    def check(self) -> None:
        """Raises ``StorageFull`` if the volume has less than the reserve left."""
        if self.size and self.free < self.size:
            raise StorageFull(f"less than {self.size // MEGABYTE} MB are left, which are kept to drain the queues")

    def guarding(self, function: Function) -> Function:
        """Returns the function, which stores new messages, with a check of the reserve before it."""

        def guarded(cell: Cell, event: Event, context: Invocation | None) -> Response:
            self.check()
            return function(cell, event, context)

        return guarded
