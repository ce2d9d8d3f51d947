"""Measures the floor: the syncs a second of the disk, and SQLite alone with equal batches, in one synced transaction
for each group of batches.

A group of one batch is the floor of a writer that syncs each batch alone. Group commit may beat it: with several
senders, the batches that come during one sync share the next one. Its floor is a group with a batch of each sender.
"""

import os
import sqlite3
import tempfile
import time
from pathlib import Path

_BLOCK = b"x" * 4_096


def syncs_per_second(seconds: float) -> float:
    """Returns the syncs a second of this disk, each after an append of 4 KB, as SQLite appends to its log."""
    with tempfile.TemporaryFile(prefix="hourwheel-floor-") as file:
        done, began = 0, time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds:
            os.write(file.fileno(), _BLOCK)
            os.fdatasync(file.fileno())
            done += 1
    return done / taken


def per_second(bodies: list[str], seconds: float, batches: int = 1) -> float:
    """Returns the messages/s of adding to a counter and storing a row for each batch with the bodies, this many batches
    in one durable transaction."""
    blob = "".join(bodies).encode()
    with tempfile.TemporaryDirectory(prefix="hourwheel-floor-") as folder:
        database = sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE counters (name TEXT PRIMARY KEY, next INTEGER) WITHOUT ROWID")
        database.execute("CREATE TABLE log (name TEXT, row INTEGER, value BLOB, PRIMARY KEY (name, row)) WITHOUT ROWID")
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            database.execute("BEGIN IMMEDIATE")
            for _ in range(batches):
                database.execute(
                    "INSERT INTO counters VALUES ('q', ?1) ON CONFLICT (name) DO UPDATE SET next = next + ?1",
                    (len(bodies),),
                )
                database.execute("INSERT INTO log VALUES ('q', ?, ?)", (done, blob))
                done += 1
            database.execute("COMMIT")
        rate = done * len(bodies) / (time.perf_counter() - began)
        database.close()
    return rate
