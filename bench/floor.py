"""Measures the floor: SQLite alone with equal batches, by one caller, with one FULL transaction for each batch."""

import sqlite3
import tempfile
import time
from pathlib import Path


def per_second(bodies: list[str], seconds: float) -> float:
    """Returns the messages/s of adding to a counter and storing a row with the bodies, in one durable transaction."""
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
            database.execute(
                "INSERT INTO counters VALUES ('q', ?1) ON CONFLICT (name) DO UPDATE SET next = next + ?1",
                (len(bodies),),
            )
            database.execute("INSERT INTO log VALUES ('q', ?, ?)", (done, blob))
            database.execute("COMMIT")
            done += 1
        rate = done * len(bodies) / (time.perf_counter() - began)
        database.close()
    return rate
