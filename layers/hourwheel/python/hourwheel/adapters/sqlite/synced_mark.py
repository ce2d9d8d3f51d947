"""Keeps the number of the last transaction that the database has synced, in a file beside it.

bytes 0-7      "hwsync 1"
bytes 8-15     the number, in the byte order of the machine
bytes 16-23    when it was committed, Unix milliseconds, in the same order

SQLite takes the readable part of a damaged write-ahead log for the whole log. So a database that has fewer transactions
than this file says has lost some. The file is mapped into memory and written without a system call. Its bytes outlive
the process; as the server syncs the file each second, they also outlive the machine.

Other processes read the same memory. Therefore each field is one aligned word that one instruction stores: an item of a
view of 64-bit words. (``struct.pack_into`` clears the bytes first and may then write them one by one, so a reader could
see 0, or half of a number.) The two fields are not stored together, so a reader may see an older number with a later
time. The time only appears in texts for people.
"""

import fcntl
import mmap
import os
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

_WORDS = struct.Struct("@8sQQ")
_MAGIC = b"hwsync 1"  # names the format, so that a file of another format is not taken for a mark
_NUMBER, _AT = 1, 2


class Synced(NamedTuple):
    """A transaction: its number, and the time of its commit in Unix milliseconds."""

    number: int = 0
    at_ms: int = 0


NOTHING = Synced()


class SyncedMark:
    """The mark in the file ``path``. The constructor creates the file if it is missing. Several processes may have it
    open. One thread may raise the mark while another one flushes it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        if os.fstat(self._file).st_size < _WORDS.size:
            os.pwrite(self._file, _WORDS.pack(_MAGIC, *NOTHING), 0)
        self._memory = mmap.mmap(self._file, _WORDS.size)
        self._words = memoryview(self._memory).cast("Q")
        self._own = self._flushed = NOTHING

    def read(self) -> Synced | None:
        """Returns the transaction that the file names; None if the file is damaged."""
        if self._memory[: len(_MAGIC)] != _MAGIC:
            return None
        return Synced(self._words[_NUMBER], self._words[_AT])

    def raise_to(self, synced: Synced) -> None:
        """Stores the transaction as the last synced one, unless the file names a later one. If two processes do so at
        once, the lower number may stay until one of them calls ``flush``."""
        self._own = synced
        if synced.number > self._words[_NUMBER]:
            self._words[_AT] = synced.at_ms
            self._words[_NUMBER] = synced.number

    def flush(self) -> None:
        """Syncs the file to the disk, if this process has raised the mark since the last call."""
        own = self._own
        if own == self._flushed:
            return
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self.raise_to(own)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._memory.flush()
        self._flushed = own

    def reset(self, synced: Synced) -> None:
        """Sets the mark to this transaction, also to an earlier one: after a loss that the operator has accepted, or if
        the file is damaged."""
        self._words[_AT] = synced.at_ms
        self._words[_NUMBER] = synced.number
        self._memory[: len(_MAGIC)] = _MAGIC
        self._memory.flush()

    def close(self) -> None:
        self.flush()
        self._words.release()
        self._memory.close()
        os.close(self._file)


def last_transaction(database: Path) -> Synced:
    """Returns the last transaction in the database. Opens it for reading only, so that a damaged log stays as it is.
    Raises ``sqlite3.Error``."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
        if reader.execute("SELECT 1 FROM sqlite_master WHERE name = 'commits'").fetchone() is None:
            return NOTHING
        return Synced(*reader.execute("SELECT number, at_ms FROM commits").fetchone())
