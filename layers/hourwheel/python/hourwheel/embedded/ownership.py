"""Whose a data directory is, and who else may look into it or write there.

Another user who may write there could have the server write into any of its own files, by a link; one who may read
there sees every message. So the directory and what the server writes must be its own and closed to writing by others.
Directories above are not looked at: a user who may rename those can swap the directory, but cannot make one that is
ours.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hourwheel.errors import Broken

_FILES = ("format", "hourwheel.db", "hourwheel.db-wal", "hourwheel.db-shm", "synced", "servers")
_FOLDERS = ("segments", "archive", "scratch", "live")
_OWN = frozenset({*_FILES, *_FOLDERS})

_WRITTEN_IN_PLACE = frozenset(_FILES) - {"format"}
"""A hard link to another file of ours would have that one overwritten. ``format`` is written once, under a name that a
crash may leave beside it."""

_GROUP_AND_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_directory(data: Path) -> None:
    """Closes the directory to others, if it is new, empty or a data directory of ours that others may only read; a
    group may read it. Raises ``Broken`` for one that is not ours, or where others may have written, and for links;
    ``OSError`` where we cannot look."""
    with _opened(data) as folder:
        _check_folder(data, folder)
        for name in _FILES:
            _check_entry(data / name, folder, stat.S_ISREG)
        for name in _FOLDERS:
            _check_entry(data / name, folder, stat.S_ISDIR)


@contextmanager
def _opened(data: Path) -> Iterator[int]:
    """What is looked at cannot be swapped meanwhile. The path itself may be a link, to a larger disk."""
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def _check_folder(data: Path, folder: int) -> None:
    found = os.fstat(folder)
    _check_owner(data, found)
    mode = stat.S_IMODE(found.st_mode)
    names = set(os.listdir(folder))
    if not mode & (_GROUP_AND_OTHERS_WRITE | stat.S_IRWXO):
        return
    if names and mode & _GROUP_AND_OTHERS_WRITE:
        raise Broken(f"others may write to {data} (mode {mode:04o}): look what is in it, then chmod 700 {data}")
    if names and names.isdisjoint(_OWN):
        raise Broken(
            f"{data} holds other things and is open to others (mode {mode:04o}): name a directory of its own, or "
            f"chmod 700 {data}"
        )
    os.fchmod(folder, mode & ~(_GROUP_AND_OTHERS_WRITE | stat.S_IRWXO))


def _check_entry(path: Path, folder: int, is_kind: Callable[[int], bool]) -> None:
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise Broken(f"{path} is a symbolic link, which is not followed: put there what it leads to, or mount it there")
    if not is_kind(found.st_mode):
        raise Broken(f"{path} is no {'folder' if path.name in _FOLDERS else 'file'}: is this a data directory?")
    _check_owner(path, found)
    if found.st_mode & _GROUP_AND_OTHERS_WRITE:
        raise Broken(f"others may write to {path} (mode {stat.S_IMODE(found.st_mode):04o}): chmod go-w {path}")
    if path.name in _WRITTEN_IN_PLACE and found.st_nlink > 1:
        raise Broken(f"{path} has another name, by a hard link: copy it, and put the copy in its place")


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Root, too, writes to no directory of another user, who could lead it anywhere."""
    if found.st_uid != os.geteuid():
        raise Broken(
            f"{path} belongs to user {found.st_uid}, and this is user {os.geteuid()}: run as its owner, or chown it"
        )
