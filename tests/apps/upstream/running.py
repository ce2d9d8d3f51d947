"""Runs a suite in a process of its own, and lists the cases whose result differs from that in ``suites``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.apps.celery.workers import entry_points
from tests.apps.upstream.sources import ROOT, folder
from tests.apps.upstream.suites import Suite
from tests.integration.process import Server

HERE = Path(__file__).parent
SECONDS = 540.0
RERUNS = 2
"""A case that fails is run again: nearly all cases of Celery are marked as flaky, with up to five further runs."""


@dataclass(frozen=True)
class Results:
    """``cases``: all that were found. ``outcomes`` of those that ran: passed, failed or skipped."""

    cases: Sequence[str]
    outcomes: dict[str, str]
    output: str

    @classmethod
    def read(cls, recorded: Path, output: str) -> Results:
        """Returns the results that the process recorded, and removes them. Fails with the output if it recorded
        none."""
        assert recorded.exists(), output
        results = cls(**json.loads(recorded.read_text()), output=output)
        recorded.unlink()
        return results

    def faults(self, suite: Suite) -> list[str]:
        """Returns a sentence for each case that did not end as the suite says."""
        sentences = [f"{case} is not there" for case in suite.listed() if not self._knows(case)]
        for case in self.cases:
            outcome = self.outcomes.get(case, "not run")
            if suite.leaves_out(case) or outcome == suite.expected(case):
                continue
            sentences.append(f"{case}: {outcome} instead of {suite.expected(case)}")
        return sentences if self.cases else [*sentences, "no case was found"]

    def failed(self, suite: Suite) -> list[str]:
        """Returns the cases that failed and should have passed."""
        return [c for c, outcome in self.outcomes.items() if outcome == "failed" and suite.expected(c) == "passed"]

    def _knows(self, case: str) -> bool:
        return any(each == case or each.startswith((f"{case}[", f"{case}::")) for each in self.cases)


class Run:
    """A suite that is running: started when it is made. ``close`` ends what it started.

    ``redis_port``: that of a Redis for results, which suites may share.
    """

    def __init__(self, suite: Suite, data: Path, redis_port: int) -> None:
        self.suite = suite
        self._data = data
        self._root = folder(suite.package) if suite.in_package else HERE
        self._server = Server(data / "server")
        self._redis_port = redis_port
        self._recorded, self._output = data / "results.json", data / "output"
        self._entry_points = entry_points(data / "installed")
        self._process = self._start(suite.chosen)

    def results(self) -> Results:
        """Waits for the results. Cases that failed and should not are run again."""
        found = self._wait()
        for _ in range(RERUNS):
            failed = found.failed(self.suite)
            if not failed:
                break
            self._end_group()
            self._process = self._start(failed)
            again = self._wait()
            found = Results(found.cases, found.outcomes | again.outcomes, again.output)
        return found

    def close(self) -> None:
        self._end_group()
        self._server.stop()

    def _end_group(self) -> None:
        """Ends the process and its workers, as far as they still run."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _start(self, chosen: Sequence[str]) -> subprocess.Popen[bytes]:
        root = str(self._root)
        settings = ["-c", str(HERE / "upstream.ini"), "--rootdir", root, "--confcutdir", root]
        plugins = [f"-p{plugin}" for plugin in ("tests.apps.upstream.recorder", *self.suite.plugins)]
        cases = [f"{root}/{each}" for each in chosen]
        with self._output.open("a") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "pytest", *settings, *plugins, *cases],
                cwd=self._data,
                env=self._environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        path = [ROOT, self._entry_points, *([folder(self.suite.package)] if self.suite.package != "dramatiq" else [])]
        scheme = "http" if self.suite.package == "dramatiq" else "hourwheel"
        broker = f"{scheme}://127.0.0.1:{self._server.port}"
        chosen: dict[str, Any] = {
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "UPSTREAM_SUITE": self.suite.name,
            "UPSTREAM_RESULTS": self._recorded,
            "UPSTREAM_BROKER": broker,
            "TEST_BROKER": broker,
            "TEST_BACKEND": f"redis://127.0.0.1:{self._redis_port}",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": self._redis_port,
            "WORKER_LOGLEVEL": "INFO",
        }
        return {**os.environ, **{name: str(text) for name, text in chosen.items()}}

    def _wait(self) -> Results:
        self._process.wait(SECONDS)
        return Results.read(self._recorded, self._output.read_text())
