"""Makes the golden data of this version: ``python -m tests.golden.make``.

directory/       a data directory, whose database is packed
tables.jsonl     what the directory has stored, as any store has it: see ``stored.py``
archive/         the objects of the archive
batches/         the objects of large batches
told.json        what callers hold: receipts, ids, a token
continued.json   what they were told when they went on with the version that made the data
types.json       the bytes of a sample of each stored type, in base64, and the names of its fields
"""

import gzip
import json
import shutil
import sqlite3
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec

from hourwheel import __version__
from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.embedded.directories.directory import archive_of, database, prepare
from tests.golden.scene import SETTINGS, Told, continued, made
from tests.golden.stored import load_objects, load_tables, write_objects, write_tables
from tests.support import Bench
from tests.unit.logs.stored_types import sample, stored_types, structs_in

GOLDEN = Path(__file__).parent
NEWEST = GOLDEN / __version__


def main(folder: Path = NEWEST) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("directory", "archive", "batches"):
        (folder / part).mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        told = _made(Path(scratch) / "data", folder)
    (folder / "told.json").write_bytes(msgspec.json.format(msgspec.json.encode(told)) + b"\n")
    write_json(folder / "continued.json", continued_in_memory(folder, told))
    write_json(folder / "types.json", stored_forms())


def _made(data: Path, folder: Path) -> Told:
    prepare(data)
    store, blobs, archive = SqliteStore(database(data)), FileBlobs(data), FileBlobs(archive_of(data))
    told = made(Bench(store=store, blobs=blobs, settings=SETTINGS), archive)
    write_tables(database(data), store, folder)
    write_objects(archive, folder / "archive")
    write_objects(blobs, folder / "batches")
    store.close()
    shutil.copy(data / "format", folder / "directory")
    _copy_packed(database(data), folder / "directory" / "hourwheel.db.gz")
    return told


def _copy_packed(path: Path, target: Path) -> None:
    """Writes a database without its log and its free pages."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.execute("VACUUM")
    connection.close()
    target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def told_of(folder: Path) -> Told:
    return msgspec.json.decode((folder / "told.json").read_bytes(), type=Told)


def continued_in_memory(folder: Path, told: Told) -> dict[str, Any]:
    store, blobs, archive = MemoryStore(), MemoryBlobs(), MemoryBlobs()
    load_tables(folder, store)
    load_objects(folder / "batches", blobs)
    load_objects(folder / "archive", archive)
    return continued(Bench(store=store, blobs=blobs, settings=SETTINGS), told, archive)


def stored_forms() -> dict[str, list[Any]]:
    """Returns the bytes of a sample of each stored type, by its name, and the names of its fields in their order: two
    fields of one type that change places leave the bytes as they are."""
    return {str(kind): [_bytes_of(kind), _fields_of(kind)] for kind in stored_types()}


def _bytes_of(kind: Any) -> str:
    return b64encode(msgspec.msgpack.encode(sample(kind))).decode()


def _fields_of(kind: Any) -> list[str]:
    structs = dict.fromkeys(structs_in(kind))
    return [f"{struct.__name__}: {' '.join(struct.__struct_encode_fields__)}" for struct in structs]


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
