"""Starts a server for a benchmark, on a fresh directory and a free port."""

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """A server that runs: its URL, the number of its process, and its data directory."""

    url: str
    pid: int
    data: Path


@contextmanager
def serving(*options: str) -> Iterator[Served]:
    """Starts a server and yields it. Its data is beside the floor's, on the same volume."""
    with (
        tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder,
        serving_data(Path(folder) / "data", *options) as served,
    ):
        yield served


@contextmanager
def serving_data(data: Path, *options: str, program: Sequence[str] = ("hourwheel", "serve")) -> Iterator[Served]:
    """Starts a server on a data directory and yields it. ``program``: the module that serves, and its arguments."""
    process = subprocess.Popen(
        [sys.executable, "-m", *program, "--data", str(data), "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[0-9.:]+", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line.strip()}")
        yield Served(found.group(), process.pid, data)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


@contextmanager
def server() -> Iterator[str]:
    """Starts a server and yields its URL."""
    with serving() as served:
        yield served.url
