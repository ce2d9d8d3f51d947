"""Checks the owner and the permissions of a data directory.

Another user who may write there could place a link, and make the server overwrite any file of the server's user. A user
who may read there sees every message. Therefore the directory and its files must belong to the server's user, and
others must not write to them. Parent folders are not checked: a user who may rename them can swap the directory, but
cannot create one that belongs to the server's user.
"""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hourwheel.errors import Broken

_FILES = ("format", "hourwheel.db", "hourwheel.db-wal", "hourwheel.db-shm", "synced", "servers", "cell", "spare")
_FOLDERS = ("batches", "archive", "lake", "scratch", "live")
_OWN = frozenset({*_FILES, *_FOLDERS})

_WRITTEN_IN_PLACE = frozenset(_FILES) - {"format", "cell"}
"""Files that the server overwrites in place. If one of them were a hard link, the server would destroy the other file.
``format`` and ``cell`` are written once, and may have two names after a crash."""

_GROUP_AND_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def check_directory(data: Path) -> None:
    """Takes the rights of others from a directory that is empty, or that is a data directory which others may only
    read. A group keeps the right to read it.

    Raises ``Broken`` for a directory of another user, for one to which others may have written, and for links within
    it. Raises ``OSError`` if this process cannot check.
    """
    with _opened(data) as folder:
        _check_folder(data, folder)
        for name in _FILES:
            _check_entry(data / name, folder, stat.S_ISREG)
        for name in _FOLDERS:
            _check_entry(data / name, folder, stat.S_ISDIR)


@contextmanager
def _opened(data: Path) -> Iterator[int]:
    """Opens the folder, so that no other user can swap it between two checks. The path itself may be a link, such as to
    a larger disk."""
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def _check_folder(data: Path, folder: int) -> None:
    status = os.fstat(folder)
    _check_owner(data, status)
    mode = stat.S_IMODE(status.st_mode)
    names = set(os.listdir(folder))
    if not mode & (_GROUP_AND_OTHERS_WRITE | stat.S_IRWXO):
        return
    if names and mode & _GROUP_AND_OTHERS_WRITE:
        raise Broken(f"others may write to {data} (mode {mode:04o}): check what is in it, then chmod 700 {data}")
    if names and names.isdisjoint(_OWN):
        raise Broken(
            f"{data} holds other things and is open to others (mode {mode:04o}): name a directory of its own, or "
            f"chmod 700 {data}"
        )
    os.fchmod(folder, mode & ~(_GROUP_AND_OTHERS_WRITE | stat.S_IRWXO))


def _check_entry(path: Path, folder: int, is_kind: Callable[[int], bool]) -> None:
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(status.st_mode):
        raise Broken(f"{path} is a symbolic link, which is not followed: put its target there, or mount it there")
    if not is_kind(status.st_mode):
        raise Broken(f"{path} is no {'folder' if path.name in _FOLDERS else 'file'}: is this a data directory?")
    _check_owner(path, status)
    if status.st_mode & _GROUP_AND_OTHERS_WRITE:
        raise Broken(f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):04o}): chmod go-w {path}")
    if path.name in _WRITTEN_IN_PLACE and status.st_nlink > 1:
        raise Broken(f"{path} has another name, by a hard link: copy it, and put the copy in its place")


def _check_owner(path: Path, status: os.stat_result) -> None:
    """Raises ``Broken`` for a file of another user. Root is refused too: a link of that user could make it write
    anywhere."""
    if status.st_uid != os.geteuid():
        raise Broken(
            f"{path} belongs to user {status.st_uid}, and this is user {os.geteuid()}: run as its owner, or chown it"
        )
