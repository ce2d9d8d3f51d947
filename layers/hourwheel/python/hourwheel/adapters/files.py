"""Implements ``Blobs`` as files of a folder.

{root}/{all parts of the key but the last}/{last part}=
{root}/…/~{random}                                         being written
"""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hourwheel.adapters.limits import check_blob_key, check_range, is_blob_key
from hourwheel.errors import Broken, Corrupt, NotFound, StorageFull

# No key has these characters. So the file of the key "a" differs from the folder of the key "a/b", and a file that is
# being written is no object.
_OBJECT = "="
_UNFINISHED = "~"

_MOST_FOLDERS = 1_000
"""Bounds the memory: beyond this many folders, the object forgets which ones are durable and syncs them again."""

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


class FileBlobs:
    """Implements ``Blobs`` with a file for each object, below ``root``. Several threads and processes may use a folder.

    The file system must distinguish upper from lower case if the keys do. A crash may leave a file whose name begins
    with ``~``, which is no object and may be removed. A folder stays when its last object is deleted.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)
        self._durable_folders: set[Path] = set()

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with _translating(key):
            self._make_folder(path.parent)
            if not path.exists():
                _write_once(path, data)
            # Also if another writer has created the file: that writer may not have synced the folder yet.
            sync_folder(path.parent)

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        path = self._path(key)
        check_range(offset, length)
        try:
            with _translating(key), path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                end = offset + length if length is not None else max(offset, size)
                if end > size:
                    raise Corrupt(f"object {key} ends at {size}, before {end}")
                file.seek(offset)
                return file.read(end - offset)
        except FileNotFoundError as error:
            raise NotFound("blob-not-found", f"there is no object {key}") from error

    def list(self, prefix: str) -> list[str]:
        folder = prefix.rpartition("/")[0]
        if folder and not is_blob_key(folder):
            return []
        with _translating(prefix):
            return sorted(key for key in self._keys_below(folder) if key.startswith(prefix))

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _translating(key), suppress(FileNotFoundError):
            path.unlink()

    def _path(self, key: str) -> Path:
        check_blob_key(key)  # no valid key leads out of the root
        return self._root / (key + _OBJECT)

    def _keys_below(self, folder: str) -> Iterator[str]:
        for parent, _, names in os.walk(self._root / folder, onerror=_raise_unless_missing):
            below = Path(parent).relative_to(self._root)
            start = "" if below == Path() else f"{below.as_posix()}/"
            for name in names:
                if name.endswith(_OBJECT):
                    yield start + name.removesuffix(_OBJECT)

    def _make_folder(self, folder: Path) -> None:
        """Creates the folder and its parents up to the root, and makes their names durable. Syncs each folder once in
        the life of this object (more often beyond ``_MOST_FOLDERS``), also one that exists: another process may have
        created it a moment ago and not synced it yet."""
        if folder in self._durable_folders:
            return
        if folder != self._root:
            self._make_folder(folder.parent)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)
        if len(self._durable_folders) >= _MOST_FOLDERS:
            self._durable_folders.clear()
        self._durable_folders.add(folder)


def key_of_file(path: str) -> str | None:
    """Returns the key of the object in a file, by the path of the file below the root; None if the file is no
    object."""
    return path.removesuffix(_OBJECT) if path.endswith(_OBJECT) else None


def _write_once(path: Path, data: bytes) -> None:
    """Writes a file that appears under its name only when it is complete. Changes nothing if the file exists."""
    descriptor, unfinished = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(unfinished, path)
    finally:
        os.unlink(unfinished)


def sync_folder(folder: Path) -> None:
    """Makes the names of the files in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


@contextmanager
def _translating(key: str) -> Iterator[None]:
    """Raises the library's errors in place of the system's, except ``FileNotFoundError``: ``get`` and ``delete`` handle
    a missing file themselves."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StorageFull(f"no room for object {key}: {error.strerror}") from error
        raise Broken(f"object {key}: {error}") from error
