"""Finds the limit of a row of a benchmark: the disk, the CPU of the client, or the CPU of the server.

A Python process computes on one core at a time, so each side may use one core. The disk is full when the server
commits as often as the disk syncs. Linux only: reads /proc.
"""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bench.serving import Served
from hourwheel.adapters.sqlite.synced_mark import SyncedMark

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_PAGES = ("page_count", "freelist_count", "page_size")


@dataclass(frozen=True, kw_only=True)
class Use:
    """The use of the machine by a run. ``per_s``: messages a second; ``client_us`` and ``server_us``: microseconds of
    CPU for each message; ``commits``: commits a second. ``client``, ``server`` and ``disk``: the used part of a core, a
    core, and the syncs of the disk."""

    per_s: float
    client_us: float
    server_us: float
    commits: float
    client: float
    server: float
    disk: float

    @property
    def limit(self) -> str:
        """Names the part that is used most. If no part is used by half, callers mostly wait: for each other's answers,
        or for processes beside them."""
        part, name = max((self.disk, "disk"), (self.client, "client CPU"), (self.server, "server CPU"))
        return f"{name} {part:.0%}" if part >= 0.5 else f"waits ({name} {part:.0%})"


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process with all its threads, in user and system mode."""
    return _cpu_seconds(Path(f"/proc/{pid}"))


def cpu_seconds_without(pid: int, thread: str) -> float:
    """Returns the CPU time of a process without that of the thread with this name (``bench.named_threads``)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    (task,) = [task for task in tasks if (task / "comm").read_text().strip() == thread]
    return cpu_seconds(pid) - _cpu_seconds(task)


def _cpu_seconds(task: Path) -> float:
    numbers = (task / "stat").read_text().rpartition(")")[2].split()
    return (int(numbers[11]) + int(numbers[12])) / _TICKS_A_SECOND


def peak_mb(pid: int) -> float:
    """Returns the most memory that a process has had in use."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return round(int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1_024, 1)


def commits(served: Served) -> int:
    """Returns the number of the server's last commit."""
    mark = SyncedMark(served.data / "synced")
    try:
        last = mark.read()
        return 0 if last is None else last.number
    finally:
        mark.close()


def stored_bytes(served: Served) -> int:
    """Returns the bytes that the server's directory holds: the pages in use of its databases, and its other files."""
    files = [path for path in served.data.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
    return sum(_database_bytes(path) if path.suffix == ".db" else path.stat().st_size for path in files)


def _database_bytes(path: Path) -> int:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        (pages, free, size) = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in _PAGES)
    return int((pages - free) * size)


def used(served: Served, syncs_per_s: float, work: Callable[[], float]) -> Use:
    """Runs ``work``, which returns the messages/s of this process as the client. Returns its use of the machine."""
    before = time.perf_counter(), time.process_time(), cpu_seconds(served.pid), commits(served)
    per_s = work()
    after = time.perf_counter(), time.process_time(), cpu_seconds(served.pid), commits(served)
    seconds, client, server, done = (late - early for early, late in zip(before, after, strict=True))
    return Use(
        per_s=per_s,
        client_us=client / (per_s * seconds) * 1e6,
        server_us=server / (per_s * seconds) * 1e6,
        commits=done / seconds,
        client=client / seconds,
        server=server / seconds,
        disk=done / seconds / syncs_per_s,
    )
