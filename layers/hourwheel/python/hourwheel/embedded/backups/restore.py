"""Makes data directories from a backup."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from hourwheel.embedded.backups.copies import (
    RECORD,
    Backup,
    StoreCopy,
    check_cells,
    check_new,
    copy_file,
    kept_objects,
    made_at,
    place_of,
)
from hourwheel.embedded.directories.directory import database
from hourwheel.errors import UNDECODABLE, Broken, Corrupt
from hourwheel.logs.formats import StoreFormat, check
from hourwheel.model.log_names import HOME

_decoder = msgspec.json.Decoder(Backup)


def restore(source: Path, data: Path, cells: Mapping[str, Path]) -> Backup:
    """Makes new data directories from a backup: one for the home, and one for each other cell. They appear once all of
    them are complete. Raises ``Broken`` for what is no whole backup, for a directory that exists, and for other cells
    than those of the backup. Raises ``StorageFull``, and ``DataVersion`` for a backup that this version must not use.
    """
    backup = read_backup(source)
    targets = {HOME: data, **cells}
    check_cells(backup.stores, targets)
    for target in targets.values():
        check_new(target)
    with ExitStack() as made:
        # Closed in the opposite order: the home appears last, and nobody starts a server without it.
        for name, target in targets.items():
            unfinished = made.enter_context(made_at(target))
            _copy_store(place_of(source, name), unfinished, backup.stores[name])
    return backup


def read_backup(source: Path) -> Backup:
    """Returns what a backup holds. Raises ``Broken`` for a directory that is no whole backup, and ``DataVersion``."""
    try:
        backup = _decoder.decode((source / RECORD).read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise Broken(f"{source} is no backup, or an unfinished one: it has no {RECORD}") from error
    except UNDECODABLE as error:
        raise Corrupt(f"{source / RECORD} does not describe a backup: {error}") from error
    stated = StoreFormat(format=backup.format, least_reader=backup.least_reader, written_by=backup.written_by)
    check(stated, f"the backup {source}")
    return backup


def _copy_store(folder: Path, target: Path, copied: StoreCopy) -> None:
    if not folder.is_dir():
        raise Corrupt(f"{folder} is missing: the backup is damaged")
    for file in sorted(folder.iterdir()):
        if file.is_file() and file != database(folder):
            copy_file(file, target / file.name)
    objects = []
    for _, path in kept_objects(folder):
        copy = target / path.relative_to(folder)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy_file(path, copy)
        objects.append(copy.stat().st_size)
    if (len(objects), sum(objects)) != (copied.objects, copied.object_bytes):
        raise Corrupt(f"{folder} has {len(objects)} objects of {copied.objects}, or others: the backup is damaged")
    if not database(folder).exists() or copy_file(database(folder), database(target)) != copied.digest:
        raise Corrupt(f"{database(folder)} is not the file that was copied: the backup is damaged")
