"""Copies data directories while servers write to them.

backup.json          what the backup holds: ``Backup`` in JSON, written last
home/                format, hourwheel.db, batches/, scheduled/, archive/ of the home
cells/{name}/        format, cell, hourwheel.db, batches/ of another cell

The databases are copied as they are at one moment, which comes after the start of the backup: everything that was
acknowledged before is in it. Where there are several, no server writes to any of them at that moment, for a few
milliseconds. So a backup is what a loss of power at that moment would leave, from which the protocol goes on.

Objects are written once, before the row or manifest that names them. Those that are there before the moment are copied
first, as some may be removed during the backup, and the others afterwards. Of the archive a backup has the manifests
that its database knows: a store must not lack rows that its archive has.
"""

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from hourwheel.adapters.sqlite.session import SqliteSession
from hourwheel.adapters.sqlite.writer import connect, translated
from hourwheel.cells.cells import registered_cells
from hourwheel.embedded.backups.copies import (
    RECORD,
    Backup,
    StoreCopy,
    check_new,
    copy_file,
    copy_objects,
    digest_of,
    kept_objects,
    made_at,
    place_of,
)
from hourwheel.embedded.directories.directory import archive_of, database, stored_format
from hourwheel.errors import Broken
from hourwheel.model.log_names import HOME
from hourwheel.retention.bundles import EVERY
from hourwheel.retention.bundles import PREFIX as BUNDLES
from hourwheel.retention.manifests import PREFIX as MANIFESTS
from hourwheel.retention.watermarks import HEAD_KEY, ArchiveHead
from hourwheel.system import SystemIds

_FOLDERS = ("batches", "scheduled")
_SMALL_FILES = ("format", "cell")


def back_up(target: Path, data: Path, cells: Mapping[str, Path], now_ms: int) -> Backup:
    """Copies the directory of a home and those of its other cells to the new directory ``target``. Raises ``Broken``,
    and leaves nothing there, if the target exists, if a directory is none of a store, if a cell is not named, or if the
    volume is full."""
    directories = {HOME: data, **cells}
    for name, directory in directories.items():
        _check_directory(name, directory)
    _check_all_named(data, cells)
    check_new(target)
    with made_at(target) as unfinished:
        copies = {name: place_of(unfinished, name) for name in directories}
        for name, directory in directories.items():
            copies[name].mkdir(parents=True)
            _copy_objects(directory, copies[name])
        with _one_moment(directories) as readers:
            heads = {name: _manifests_of(reader) for name, reader in readers.items()}
            for name, reader in readers.items():
                _copy_database(reader, database(copies[name]))
        for name, directory in directories.items():
            _copy_objects(directory, copies[name])
            _drop_later_manifests(copies[name], heads[name])
            for file in _SMALL_FILES:
                if (directory / file).exists():
                    copy_file(directory / file, copies[name] / file)
        backup = Backup.of(now_ms, {name: _copied(copy) for name, copy in copies.items()})
        (unfinished / RECORD).write_bytes(msgspec.json.encode(backup))
    return backup


def _check_directory(name: str, directory: Path) -> None:
    if not database(directory).exists() or stored_format(directory) is None:
        raise Broken(f"{directory} is no data directory: name that of hourwheel serve")
    if (directory / "cell").exists() != bool(name):
        raise Broken(f"{directory} is the directory of a " + ("home" if name else "cell: name it with --cell"))
    if name and (directory / "cell").read_text().split()[-1] != name:
        raise Broken(f"{directory} is not the directory of cell {name}")


def _check_all_named(data: Path, cells: Mapping[str, Path]) -> None:
    """Raises ``Broken`` for a cell that serves and is not named: without it the backup would lack its messages."""
    try:
        with closing(connect(database(data))) as connection:
            registered = registered_cells(SqliteSession(connection), SystemIds())
    except sqlite3.Error as error:
        raise translated(error) from error
    for record in registered:
        if record.serves and record.name not in cells:
            raise Broken(
                f"{data} has cell {record.name}: name its directory, --cell {record.name}=DIRECTORY; if it is out of"
                f" reach, hourwheel cell set-state {record.name} offline leaves it out"
            )


def _copy_objects(directory: Path, copy: Path) -> None:
    for folder in _FOLDERS:
        copy_objects(directory / folder, copy / folder)
    copy_objects(archive_of(directory), archive_of(copy))


@contextmanager
def _one_moment(directories: Mapping[str, Path]) -> Iterator[dict[str, sqlite3.Connection]]:
    """Yields a connection for each database, on which all of them are read as they were at one moment."""
    with ExitStack() as opened:

        def connected(name: str) -> sqlite3.Connection:
            return opened.enter_context(closing(connect(database(directories[name]))))

        try:
            readers = {name: connected(name) for name in directories}
            # A transaction in one database may follow from one in another.
            writers = [connected(name) for name in sorted(directories)] if len(directories) > 1 else []
            for writer in writers:
                writer.execute("BEGIN IMMEDIATE")
            for reader in readers.values():
                reader.execute("BEGIN")
                reader.execute("SELECT number FROM commits").fetchone()
            for writer in writers:
                writer.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise translated(error) from error
        yield readers


def _copy_database(reader: sqlite3.Connection, path: Path) -> None:
    try:
        with closing(sqlite3.connect(path)) as target:
            reader.backup(target)  # in one step, as the reader's transaction sees it
            # Without a log beside it, the copy can be read where nothing can be written. A server sets the mode anew.
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise translated(error) from error


def _manifests_of(reader: sqlite3.Connection) -> int:
    """Returns the number of manifests that the database knows."""
    where = (HEAD_KEY.partition, HEAD_KEY.sort)
    row = reader.execute("SELECT value FROM meta WHERE partition = ? AND sort = ?", where).fetchone()
    return 0 if row is None else msgspec.msgpack.decode(row[0], type=ArchiveHead).number


def _drop_later_manifests(copy: Path, manifests: int) -> None:
    """Removes the manifests that the database does not know, and the bundles that may hold one of them."""
    for key, path in kept_objects(archive_of(copy)):
        if key.startswith(MANIFESTS):
            later = int(key.removeprefix(MANIFESTS).replace("/", "")) >= manifests
        elif key.startswith(BUNDLES):
            later = (int(key.removeprefix(BUNDLES)) // EVERY + 1) * EVERY > manifests
        else:
            later = False
        if later:
            os.unlink(path)


def _copied(copy: Path) -> StoreCopy:
    path = database(copy)
    objects = [file.stat().st_size for folder in (*_FOLDERS, "archive") for _, file in kept_objects(copy / folder)]
    with closing(connect(path)) as connection:
        (number,) = connection.execute("SELECT number FROM commits").fetchone()
    return StoreCopy(
        transaction=number,
        database_bytes=path.stat().st_size,
        digest=digest_of(path),
        objects=len(objects),
        object_bytes=sum(objects),
    )
