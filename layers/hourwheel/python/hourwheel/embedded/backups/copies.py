"""Copies files of stores, and makes directories that appear under their names only when they are complete."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Self

import msgspec

from hourwheel.adapters.files import key_of_file, sync_folder
from hourwheel.errors import Broken, StorageFull
from hourwheel.logs.formats import CURRENT

RECORD = "backup.json"

_CHUNK = 1 << 20
_UNFINISHED = ".unfinished"
_LOCK = "lock"
"""Locked by the process that makes the directory, and in it until it has its name."""


class StoreCopy(msgspec.Struct, frozen=True, kw_only=True):
    """The copy of one store. ``transaction``: the number of the last transaction in its database. ``digest``: that of
    the file of the database."""

    transaction: int
    database_bytes: int
    digest: str
    objects: int
    object_bytes: int


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds. ``stores``: the copy of each cell, by name; that of the home has the name "". The format is
    that of the version that made the backup: see ``logs/formats.py``."""

    format: int
    least_reader: int
    written_by: str
    taken_ms: int
    stores: dict[str, StoreCopy]

    @classmethod
    def of(cls, taken_ms: int, stores: dict[str, StoreCopy]) -> Self:
        return cls(
            format=CURRENT.format,
            least_reader=CURRENT.least_reader,
            written_by=CURRENT.written_by,
            taken_ms=taken_ms,
            stores=stores,
        )


def place_of(backup: Path, cell: str) -> Path:
    """Returns the folder of a cell, or of the home, in a backup."""
    return backup / "cells" / cell if cell else backup / "home"


def check_new(target: Path) -> None:
    """Raises ``Broken`` unless the directory does not exist, or is empty."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Broken(f"{target} exists and is not empty: name a new directory")


@contextmanager
def made_at(target: Path) -> Iterator[Path]:
    """Yields an empty directory that gets the name ``target`` at the end of the block, once all its files are on the
    disk. Removes it after an error. A process that is killed leaves it under another name, which the next one
    removes. Raises ``StorageFull`` where the volume is full, and ``Broken`` for all other errors of the system, and
    while another process makes the directory."""
    unfinished = target.with_name(target.name + _UNFINISHED)
    try:
        unfinished.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(unfinished, target):
            yield unfinished
            for path in unfinished.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
            os.sync()
            os.rename(unfinished, target)
            # Only now: without it another process could take the directory for one that was left behind.
            (target / _LOCK).unlink()
            sync_folder(target.parent)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"no room is left on the volume of {target}") from error
        raise Broken(f"{target} cannot be written: {error}") from error


@contextmanager
def _locked(unfinished: Path, target: Path) -> Iterator[None]:
    """Keeps other processes from the directory during the block, which finds it empty but for the lock, and removes the
    directory afterwards."""
    with (unfinished / _LOCK).open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Broken(f"another process makes {target}: wait until it has ended") from error
        try:
            for path in unfinished.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name != _LOCK:
                    path.unlink()
            yield
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def copy_file(source: Path, target: Path) -> str:
    """Copies a file, for its owner alone, and returns its digest."""
    digest = blake2b(digest_size=16)
    with (
        source.open("rb") as read,
        os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
    ):
        while chunk := read.read(_CHUNK):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """Returns the digest of a file."""
    digest = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def copy_objects(source: Path, target: Path) -> None:
    """Copies the objects of a folder that the target lacks. Leaves out those that are removed meanwhile."""
    for _, path in kept_objects(source):
        copy = target / path.relative_to(source)
        if copy.exists():
            continue
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            copy_file(path, copy)


def kept_objects(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yields the key of each object of a folder, and its file. Leaves out files that are being written."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent) / name
            key = key_of_file(path.relative_to(folder).as_posix())
            if key is not None:
                yield key, path


def check_cells(stores: Mapping[str, object], named: Mapping[str, object]) -> None:
    """Raises ``Broken`` unless the operator names a directory for each cell of the backup, and for no other."""
    missing, unknown = sorted(stores.keys() - named.keys()), sorted(named.keys() - stores.keys())
    if missing:
        raise Broken(f"the backup has cell {missing[0]}: name a new directory for it, --cell {missing[0]}=DIRECTORY")
    if unknown:
        raise Broken(f"the backup has no cell {unknown[0]}: leave out --cell {unknown[0]}=…")
