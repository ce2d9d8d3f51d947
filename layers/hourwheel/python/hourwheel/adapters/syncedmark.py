"""The number of the last transaction that the database has synced, kept beside it.

bytes 0-7      "hwsync 1"
bytes 8-15     the number, in the byte order of the machine
bytes 16-23    when it was committed, Unix milliseconds, in the same order

SQLite takes the readable part of a damaged write-ahead log for all of it. A database that has fewer transactions than
this file says has lost some. The file is written through memory, without a call to the system: that outlives the
process, and each second it is synced, which outlives the machine.

Other processes read the memory meanwhile, so each field is one aligned word, stored by one instruction: an item of a
view of 64-bit words. ``struct.pack_into`` clears the place first and may then write byte by byte: a reader sees 0, or
half of a number. The two fields are not stored together: a reader may see an older number beside a later time. The time
is only told to people.
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
_MAGIC = b"hwsync 1"
_NUMBER, _AT = 1, 2


class Synced(NamedTuple):
    """A transaction: its number, and when it was committed, Unix milliseconds."""

    number: int = 0
    at_ms: int = 0


NOTHING = Synced()


class SyncedMark:
    """Opens the file; makes it if it is not there. Several processes may have it open. Thread-safe: one thread raises
    it at a time, another flushes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        if os.fstat(self._file).st_size < _WORDS.size:
            os.pwrite(self._file, _WORDS.pack(_MAGIC, *NOTHING), 0)
        self._memory = mmap.mmap(self._file, _WORDS.size)
        self._words = memoryview(self._memory).cast("Q")
        self._own = self._flushed = NOTHING

    def read(self) -> Synced | None:
        """What it says; None if that is not what was written."""
        if self._memory[: len(_MAGIC)] != _MAGIC:
            return None
        return Synced(self._words[_NUMBER], self._words[_AT])

    def raise_to(self, synced: Synced) -> None:
        """Says that the transaction is synced. Two processes at once may leave the lower number, until ``flush``."""
        self._own = synced
        if synced.number > self._words[_NUMBER]:
            self._words[_AT] = synced.at_ms
            self._words[_NUMBER] = synced.number

    def flush(self) -> None:
        """Syncs the file, if this process has raised it since."""
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
        """Sets it, also back: for a loss that somebody has accepted, or a file that is damaged."""
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
    """The last transaction that the database has. Changes nothing: a damaged log stays as it is. Raises
    ``sqlite3.Error``."""
    with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)) as reader:
        if reader.execute("SELECT 1 FROM sqlite_master WHERE name = 'commits'").fetchone() is None:
            return NOTHING
        return Synced(*reader.execute("SELECT number, at_ms FROM commits").fetchone())
