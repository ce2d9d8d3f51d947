"""Writes all that a deployment stores into files, and reads the files into any store.

tables.jsonl    a line for each record: [table, partition, sort, value in base64, token in base64, expires_ms]
counters.json   the counters by name: [rows, numbers, sealed]
objects.jsonl   a line for each object: [key, bytes in base64]
"""

import json
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hourwheel.ports.storage import Blobs, Key, Record, Store, Table


def write_tables(database: Path, store: Store, folder: Path) -> None:
    """Writes the records and counters of a store in SQLite. Values are read through the port, as every store has
    them."""
    names = sqlite3.connect(database)
    try:
        keys = [
            Key(table, partition, sort)
            for table in Table
            for partition, sort in names.execute(f"SELECT partition, sort FROM {table} ORDER BY partition, sort")
        ]
        counters = [name for (name,) in names.execute("SELECT name FROM counters ORDER BY name")]
    finally:
        names.close()
    _write_lines(folder / "tables.jsonl", [_line(key, store.get(key)) for key in keys])
    counted = {name: list(store.counter(name)) for name in counters}
    (folder / "counters.json").write_text(json.dumps(counted, indent=1) + "\n")


def write_objects(blobs: Blobs, folder: Path) -> None:
    _write_lines(folder / "objects.jsonl", [[key, _text(blobs.get(key))] for key in blobs.list("")])


def load_tables(folder: Path, store: Store) -> None:
    for table, partition, sort, value, token, expires_ms in _lines(folder / "tables.jsonl"):
        record = Record(b64decode(value), b64decode(token), expires_ms)
        refused = store.put(Key(Table(table), partition, sort), record, expect=None)
        assert refused is None
    for name, (rows, numbers, sealed) in json.loads((folder / "counters.json").read_text()).items():
        store.add(name, rows=rows, numbers=numbers)
        if sealed:
            store.seal(name)


def load_objects(folder: Path, blobs: Blobs) -> None:
    for key, data in _lines(folder / "objects.jsonl"):
        blobs.put(key, b64decode(data))


def _line(key: Key, record: Record | None) -> list[Any]:
    assert record is not None  # nobody else uses the store
    return [*key, _text(record.value), _text(record.token), record.expires_ms]


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def _write_lines(path: Path, lines: Iterable[list[Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
