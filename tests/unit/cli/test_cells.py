"""``hourwheel cell drain --wait`` returns once the cell holds nothing."""

import json
from typing import Any

import pytest

from hourwheel.client import Api, DrainResult
from hourwheel.route_records import CellContent
from tests.unit.cli.conftest import Shell


def content(messages: int) -> CellContent:
    return CellContent(
        subject="orders",
        queue=0,
        log="old:orders~1/0.1",
        writable=False,
        messages=messages,
        leases=0,
        kept_until="2026-11-28T09:00:00.000Z",
    )


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Lets the cell lose its messages from look to look. Returns whether each call was a dry run."""
    left = iter([[content(2)], [content(2)], [content(1)], []])
    calls: list[bool] = []

    def drain(self: Api, cell: str, *, dry_run: bool = False, **_: Any) -> DrainResult:
        calls.append(dry_run)
        return DrainResult(cell=cell, moved=[], left=next(left), dry_run=dry_run)

    monkeypatch.setattr(Api, "drain_cell", drain)
    return calls


def test_it_drains_once_and_shows_what_is_left_until_nothing_is(shell: Shell, looks: list[bool]) -> None:
    told = shell.ok("cell", "drain", "old", "--wait", "--interval", "0.1")
    assert looks == [False, True, True, True]
    assert told.count("old:orders~1/0.1") == 2, "what has not changed is not told again"
    assert told.endswith("old holds nothing\n")


def test_without_wait_it_looks_once(shell: Shell, looks: list[bool]) -> None:
    told = shell.ok("cell", "drain", "old")
    assert "old:orders~1/0.1" in told
    assert "2026-11-28 09:00:00Z" in told
    assert looks == [False]


def test_as_json_each_look_is_a_line(shell: Shell, looks: list[bool]) -> None:
    lines = shell.ok("cell", "drain", "old", "--wait", "--interval", "0.1", "--json").splitlines()
    assert [len(json.loads(line)["left"]) for line in lines] == [1, 1, 0]


def test_a_dry_run_does_not_wait(shell: Shell, looks: list[bool]) -> None:
    result = shell("cell", "drain", "old", "--wait", "--dry-run")
    assert (result.exit_code, looks) == (2, [])
    assert "a dry run changes nothing to wait for" in result.stderr
