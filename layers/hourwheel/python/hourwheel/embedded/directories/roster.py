"""Lists the servers that have a data directory open.

live/{name}       locked by the server of that name while its process lives; contains its process id

The kernel releases the lock when the process ends, however it ends. A process that is only stopped (SIGSTOP) keeps it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Roster:
    """The roster of a data directory. The constructor adds this server as ``name``, a file name that no other server
    has. Thread-safe."""

    def __init__(self, data: Path, name: str) -> None:
        self._folder = data / "live"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._name = name
        self._file = self._enter()

    def living(self) -> frozenset[str]:
        """Returns the names of the servers that live, this one included, and removes the others from the roster."""
        return frozenset(name for name in self._names() if name == self._name or self._lives(name))

    def processes(self) -> list[int]:
        """Returns the process ids of the other servers that live."""
        ids = []
        for name in sorted(self.living() - {self._name}):
            with _opened(self._folder / name) as file:
                text = b"" if file is None else os.read(file, 20)
            if text.isdigit():
                ids.append(int(text))
        return ids

    def close(self) -> None:
        """Removes this server from the roster."""
        self._path(self._name).unlink(missing_ok=True)
        os.close(self._file)

    def _enter(self) -> int:
        path = self._path(self._name)
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # Another server that found the file unlocked may have removed it before this one locked it: try again.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                os.ftruncate(file, 0)
                os.write(file, b"%d" % os.getpid())
                return file
            os.close(file)

    def _lives(self, name: str) -> bool:
        with _opened(self._path(name)) as file:
            if file is None:
                return False
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            self._path(name).unlink(missing_ok=True)
            return False

    def _names(self) -> list[str]:
        return os.listdir(self._folder)

    def _path(self, name: str) -> Path:
        return self._folder / name


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Opens the file for the block; None if the file does not exist."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)
