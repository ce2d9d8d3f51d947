"""Makes the tables of a SQLite database, and checks that a file is a database of this library and version.

counters                     (name, rows, numbers, sealed)
meta, consume, pull, keys    (partition, sort, value, token, expires_ms), keyed by partition and sort
commits                      (number, at_ms) of the last transaction that changed anything

``consume`` and ``schedule`` have rowids, as their values are large. A table without rowids has its values beside the
keys. SQLite reads the whole value of each row with whose key it compares another: two or three values of 150 KB for
each row that is stored or found. Databases that were made before have these tables without rowids; the statements are
the same for both.
"""

import sqlite3
from pathlib import Path

from hourwheel.adapters.sqlite.writer import Synchronous, sync_durably
from hourwheel.errors import Corrupt, DataVersion
from hourwheel.ports.storage import Table

FORMAT = 4
"""Version of the file, raised with each change of the tables, or of the keys or values of its records. A file of
another version is refused untouched."""

_APPLICATION_ID = 0x486F7572  # "Hour"

_WITH_ROWIDS = {Table.CONSUME, Table.SCHEDULE}

_SCHEMA = [
    "CREATE TABLE commits (number INTEGER NOT NULL, at_ms INTEGER NOT NULL)",
    "INSERT INTO commits VALUES (0, 0)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, numbers INTEGER NOT NULL,"
    " sealed INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID",
    *(
        f"CREATE TABLE {table} (partition TEXT NOT NULL, sort TEXT NOT NULL, value BLOB NOT NULL,"
        " token BLOB NOT NULL, expires_ms INTEGER, PRIMARY KEY (partition, sort))"
        + ("" if table in _WITH_ROWIDS else " WITHOUT ROWID")
        for table in Table
    ),
    "CREATE INDEX keys_expires ON keys (expires_ms)",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT}",
]


def prepare(connection: sqlite3.Connection, path: Path, synchronous: Synchronous) -> None:
    """Creates the tables of a new database. Raises ``DataVersion`` for a file of another format and ``Corrupt`` for a
    file of another program, and leaves both as they are."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if version != FORMAT and application == _APPLICATION_ID:
        raise DataVersion(f"the database {path}", expected=FORMAT, actual=version)
    if application not in (0, _APPLICATION_ID) or (application == 0 and _tables(connection)):
        raise Corrupt(f"{path} is a database of another program")
    connection.execute("PRAGMA journal_mode = WAL")
    sync_durably(connection, synchronous)
    connection.execute("BEGIN IMMEDIATE")
    if not _tables(connection):
        for statement in _SCHEMA:
            connection.execute(statement)
    connection.execute("COMMIT")


def _tables(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return int(count)
