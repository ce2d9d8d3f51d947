"""Starts a server for a benchmark, on a fresh directory and a free port."""

import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def server() -> Iterator[str]:
    """Starts a server and yields its URL. Its data is beside the floor's, on the same volume."""
    with tempfile.TemporaryDirectory(prefix="hourwheel-bench-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "hourwheel", "serve", "--data", str(Path(folder) / "data"), "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://[0-9.:]+", line)
            if found is None:
                raise SystemExit(f"the server did not start: {line.strip()}")
            yield found.group()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
