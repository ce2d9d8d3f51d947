"""Writes the reports of jobs, and sends Spark's own output to a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import typer

from hourwheel.cli.output import write_json, write_line
from hourwheel.system import SystemClock


class Output:
    """Writes the reports of a run, one line each, and sends Spark's own output to a file, unless ``verbose``."""

    def __init__(self, json: bool, verbose: bool) -> None:
        self.json, self._verbose = json, verbose
        self._began_ms = SystemClock().now_ms()

    def write(self, job: str, report: Any) -> None:
        """Writes the report of a job, with the time since the last report."""
        from hourwheel_pipeline.outcomes.summaries import summary_of

        ended_ms = SystemClock().now_ms()
        if self.json:
            write_json({"job": job, "report": report})
        else:
            write_line(f"{job:<9} {summary_of(report)} ({(ended_ms - self._began_ms) / 1_000:.1f} s)")
        self._began_ms = ended_ms

    @contextmanager
    def aside(self, data: Path | None) -> Iterator[None]:
        """Sends the stderr of Spark and its workers, which start within the block, to a log file, and prints its path.

        The processes inherit descriptor 2, so the descriptor is replaced, not ``sys.stderr``.
        """
        if self._verbose:
            yield
            return
        number, path = _log_file(data)
        terminal = os.dup(2)
        sys.stderr.flush()
        os.dup2(number, 2)
        try:
            yield
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)
            os.close(number)
            typer.echo(f"Spark's own output is in {path}", err=True)


def _log_file(data: Path | None) -> tuple[int, str]:
    """Opens a log file that only its owner may read. Returns its descriptor and path."""
    if data is None:
        return mkstemp(prefix="hourwheel-spark-", suffix=".log")
    path = str(data / "spark.log")
    # A link in the folder must not direct the output elsewhere. Appended: several processes write.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o600), path
