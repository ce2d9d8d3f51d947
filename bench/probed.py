"""Serves, and notes when the server does each step of a request: ``python -m bench.probed FILE OPTIONS OF SERVE``.

Writes the steps to the file when it ends, as JSON: a list of names and seconds of ``time.perf_counter``, which all
processes of a Linux machine share. A step costs about a microsecond.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hourwheel.adapters.sqlite.group_commit import GroupCommit
from hourwheel.cli.app import app
from hourwheel.embedded import greenlets
from hourwheel.embedded.http.answers import Answer
from hourwheel.embedded.http.connection import Connection
from hourwheel.embedded.http.requests import Request

Step = tuple[str, float]


class Probes:
    """Notes the steps of a process."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def note(self, name: str) -> None:
        self.steps.append((name, time.perf_counter()))

    def wrap(self, owner: Any, function: str, before: str | None = None, after: str | None = None) -> None:
        """Makes a function note a step before it runs, after it, or both."""
        inner: Callable[..., Any] = getattr(owner, function)

        def noting(*arguments: Any, **options: Any) -> Any:
            if before is not None:
                self.note(before)
            try:
                return inner(*arguments, **options)
            finally:
                if after is not None:
                    self.note(after)

        setattr(owner, function, noting)


def probe_server(probes: Probes) -> None:
    """Notes the steps of the server: a request has come, its work is queued, runs, is committed, and is answered."""
    probes.wrap(Connection, "data_received", before="request received")
    probes.wrap(GroupCommit, "submit", before="work queued")
    probes.wrap(GroupCommit, "lead", before="transaction begun", after="transaction handed over")
    probes.wrap(GroupCommit, "_take_unattended", before="claims queued")
    probes.wrap(GroupCommit, "_commit", before="commit begun", after="commit done")
    probes.wrap(greenlets, "_go_on", before="callers resumed")
    answer = Connection._answer

    def noting(self: Connection, request: Request, found: Answer) -> None:
        answer(self, request, found)
        probes.note("pull answered" if request.path.endswith("/pull") else "send answered")

    Connection._answer = noting  # type: ignore[method-assign]


if __name__ == "__main__":
    server = Probes()
    probe_server(server)
    file = Path(sys.argv[1])
    try:
        app(["serve", *sys.argv[2:]], prog_name="hourwheel")
    finally:
        file.write_text(json.dumps(server.steps))
