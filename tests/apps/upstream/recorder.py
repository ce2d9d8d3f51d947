"""Is a plugin of pytest: leaves out the cases that ``UPSTREAM_SUITE`` names, and writes the results of the others.

``UPSTREAM_RESULTS`` names the file, which is JSON.

The file holds ``{"cases": [every case that was found], "outcomes": {case: "passed", "failed" or "skipped"}}``, and is
written anew after each case, so that it also tells of a run that was cut off.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.apps.upstream.suites import SUITES, Suite

_SEVERITY = ("passed", "skipped", "failed")


class Recorder:
    def __init__(self, path: Path, suite: Suite) -> None:
        self._path = path
        self._suite = suite
        self._cases: list[str] = []
        self._outcomes: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        self._cases = [item.nodeid for item in items]
        items[:] = [item for item in items if not self._suite.leaves_out(item.nodeid)]
        self._write()
        yield

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keeps the worst result of a case: of its set-up, its call, its subtests and its end."""
        known = self._outcomes.get(report.nodeid, "passed")
        self._outcomes[report.nodeid] = max(known, report.outcome, key=_SEVERITY.index)
        if report.when == "teardown":
            self._write()

    def _write(self) -> None:
        self._path.write_text(json.dumps({"cases": self._cases, "outcomes": self._outcomes}))


def pytest_configure(config: pytest.Config) -> None:
    (suite,) = (suite for suite in SUITES if suite.name == os.environ["UPSTREAM_SUITE"])
    config.pluginmanager.register(Recorder(Path(os.environ["UPSTREAM_RESULTS"]), suite))
