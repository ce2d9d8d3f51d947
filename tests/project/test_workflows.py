"""The workflows run targets of the Makefile, with pinned actions and no right that they do not need."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rooms import ROOT

FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))

_PINNED = re.compile(r"^\s*- uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
_COMMAND = re.compile(r"^make ([a-z-]+)$")

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def workflow(path: Path) -> dict[Any, Any]:
    document = yaml.safe_load(path.read_text())
    assert isinstance(document, dict)
    return document


def steps(path: Path) -> Iterator[dict[str, Any]]:
    return (step for job in workflow(path)["jobs"].values() for step in job["steps"])


def test_there_are_two_workflows() -> None:
    assert [path.stem for path in FILES] == ["ci", "release"]


@each_file
def test_each_command_is_a_target_of_the_makefile(path: Path) -> None:
    commands = [step["run"] for step in steps(path) if "run" in step]
    assert commands
    assert [line for line in commands if not (found := _COMMAND.match(line)) or found[1] not in TARGETS] == []


@each_file
def test_each_action_is_pinned_by_its_commit_and_names_its_version(path: Path) -> None:
    lines = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert len(lines) == sum("uses" in step for step in steps(path)) > 0
    assert [line for line in lines if not _PINNED.match(line)] == []


def test_an_action_has_one_commit_everywhere() -> None:
    pins = {step["uses"] for path in FILES for step in steps(path) if "uses" in step}
    assert len(pins) == len({pin.partition("@")[0] for pin in pins})


@each_file
def test_a_workflow_may_only_read_and_a_job_gets_further_rights_only_if_it_runs_no_code_of_ours(path: Path) -> None:
    assert workflow(path)["permissions"] == {"contents": "read"}
    for job in workflow(path)["jobs"].values():
        assert "contents" not in job.get("permissions", {})
        assert not ("permissions" in job and any("run" in step or "checkout" in step["uses"] for step in job["steps"]))
        assert job["timeout-minutes"] <= 350


@each_file
def test_no_checkout_leaves_a_token_and_no_command_holds_an_expression(path: Path) -> None:
    checkouts = [step["with"] for step in steps(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert [given for given in checkouts if given["persist-credentials"] is not False] == []
    assert [step["run"] for step in steps(path) if "${{" in step.get("run", "")] == []


def test_ci_tests_on_each_python_that_the_project_names() -> None:
    job = workflow(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert job["strategy"]["matrix"]["python"] == named


def test_verify_runs_each_night_and_a_release_begins_with_a_tag() -> None:
    began, released = (workflow(path)[True] for path in FILES)  # YAML 1.1 reads the key "on" as true
    assert len(began["schedule"]) == 1
    assert released == {"push": {"tags": ["v*"]}}


def test_a_release_is_tested_before_it_is_built_and_attested_before_it_is_published() -> None:
    jobs = workflow(ROOT / ".github/workflows/release.yml")["jobs"]
    assert [(name, job.get("needs")) for name, job in jobs.items()] == [
        ("test", None),
        ("build", "test"),
        ("attest", "build"),
        ("publish", "attest"),
    ]
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
