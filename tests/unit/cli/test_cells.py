"""``hourwheel cell drain --wait`` returns once the cell holds nothing."""

import json
from typing import Any

import msgspec
import pytest

from hourwheel.client import Api, CellDescription, DrainResult, UnmovedQueue
from hourwheel.model.route_records import CellContent
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


def unmoved(pending: bool) -> UnmovedQueue:
    return UnmovedQueue(subject="orders", queue=0, pending=pending, reason="the disk does not answer")


def test_a_drain_that_could_not_move_every_queue_says_why_and_how_to_go_back(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = DrainResult(cell="old", moved=[], left=[content(1)], dry_run=False, unmoved=[unmoved(True)])
    monkeypatch.setattr(Api, "drain_cell", lambda *_, **__: result)
    told = shell("cell", "drain", "old")
    assert told.exit_code == 1
    assert "could not be moved: 1 queue" in told.stdout
    assert "the disk does not answer" in told.stdout
    assert "old stays draining: no queue moves to it" in told.stdout
    assert "hourwheel cell set-state old normal" in told.stdout


def test_a_drain_that_waits_tries_again_to_move_the_rest(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = iter([([content(1)], [unmoved(False)]), ([content(1)], []), ([], [])])
    calls: list[bool] = []

    def drain(self: Api, cell: str, *, dry_run: bool = False) -> DrainResult:
        calls.append(dry_run)
        left, not_moved = next(rest)
        return DrainResult(cell=cell, moved=[], left=left, dry_run=dry_run, unmoved=not_moved)

    monkeypatch.setattr(Api, "drain_cell", drain)
    assert shell.ok("cell", "drain", "old", "--wait", "--interval", "0.1").endswith("old holds nothing\n")
    assert calls == [False, False, True]


def test_a_cell_that_goes_offline_is_shown_with_the_parts_that_nobody_can_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = CellDescription(
        cell="old",
        kinds=("real-time",),
        state="offline",
        location="/mnt/old",
        queues=0,
        parts=1,
        reachable=False,
        unreadable=[content(3)],
    )
    monkeypatch.setattr(Api, "put_cell", lambda *_, **__: cell)
    told = shell.ok("cell", "set-state", "old", "offline", "--dry-run")
    assert "no group gets the messages of these parts while the cell is offline:" in told
    assert "old:orders~1/0.1" in told
    assert "unreadable" not in told
    assert ("closed parts  1\n" in told, "503" in told) == (True, False)
    taking = msgspec.structs.replace(content(3), writable=True)
    cell = msgspec.structs.replace(cell, unreadable=[taking])
    told = shell.ok("cell", "set-state", "old", "offline")
    assert "producers get 503 for the queues of the parts that take messages, until these queues move" in told
