"""``hourwheel cell remove --lost``, and ``hourwheel subject delete`` while a cell is out of reach."""

import json
from typing import Any

import pytest

from hourwheel.cli.subjects import cells
from hourwheel.client import Api, LostPart, QueueRoute, RemovedCell, RouteMapping, SubjectRoute
from tests.unit.cli.conftest import Shell


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Answers calls that remove a cell, and returns their arguments."""
    made: list[dict[str, Any]] = []
    part = LostPart(
        subject="orders", queue=1, log="old:orders~1/1.1", start=7, end=None, next_start=2**46, next_cell="home"
    )

    def remove(self: Api, cell: str, **how: Any) -> RemovedCell:
        made.append(how)
        return RemovedCell(
            cell=cell,
            kinds=("real-time",),
            state="removed",
            location="/disks/old",
            queues=1,
            parts=0,
            reachable=False,
            lost=[part] if how["lost"] else [],
        )

    monkeypatch.setattr(Api, "remove_cell", remove)
    return made


def test_it_asks_before_it_gives_a_cell_up_and_tells_what_is_lost(shell: Shell, calls: list[dict[str, Any]]) -> None:
    result = shell("cell", "remove", "old", "--lost", stdin="n\n")
    assert result.exit_code != 0
    assert calls == [{"lost": True, "dry_run": True}]
    told = shell.ok("cell", "remove", "old", "--lost", "--yes")
    assert calls[1:] == [{"lost": True, "dry_run": False}]
    assert "lost, except what was consumed" in told
    (row,) = [line.split() for line in told.splitlines() if "old:orders~1/1.1" in line]
    assert row == ["orders", "1", "old:orders~1/1.1", "7", "-", str(2**46), "home"]


def test_the_question_says_that_the_messages_are_lost_for_good(
    shell: Shell, calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(cells, "confirm", lambda question, *, yes: asked.append(question))
    shell.ok("cell", "remove", "old", "--lost")
    assert asked == [
        "Give up cell old, with 1 part of queues? The messages there are lost, and this cannot be undone. The server"
        " that answers cannot read the cell, but other servers may still reach it."
    ]


def test_as_json_it_is_one_record(shell: Shell, calls: list[dict[str, Any]]) -> None:
    (shown,) = [
        json.loads(line) for line in shell.ok("cell", "remove", "old", "--lost", "--yes", "--json").splitlines()
    ]
    assert (shown["state"], shown["lost"][0]["next_start"]) == ("removed", 2**46)


def test_a_dry_run_says_so(shell: Shell, calls: list[dict[str, Any]]) -> None:
    assert "nothing was changed" in shell.ok("cell", "remove", "old", "--lost", "--dry-run")
    assert calls == [{"lost": True, "dry_run": True}]
    assert "lost," not in shell.ok("cell", "remove", "old", "--yes")


def test_a_deletion_tells_what_is_finished_later(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [["fast"], []]
    monkeypatch.setattr(Api, "delete_subject", lambda *_: left.pop(0))
    assert shell.ok("subject", "delete", "orders", "--yes").splitlines() == [
        "deleted orders",
        "the sweeper erases the rest once cell fast can be reached or is given up",
    ]
    assert shell.ok("subject", "delete", "orders", "--yes") == "deleted orders\n"


def test_the_deletion_of_a_group_tells_it_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [["fast"], []]
    monkeypatch.setattr(Api, "delete_group", lambda *_: left.pop(0))
    assert shell.ok("group", "delete", "orders", "billing", "--yes").splitlines() == [
        "deleted billing of orders",
        "the sweeper erases the rest once cell fast can be reached or is given up",
    ]
    assert shell.ok("group", "delete", "orders", "billing", "--yes") == "deleted billing of orders\n"


def test_the_end_of_a_part_that_took_messages_is_unknown(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [("fast", 1, None, "lost"), ("home", 1 + 2**46, None, "normal")]
    mappings = [
        RouteMapping(start=start, end=end, cell=cell, log="orders~1/0", state=state, generation=1)
        for cell, start, end, state in parts
    ]
    route = SubjectRoute(subject="orders", epoch=2, queues=[QueueRoute(queue=0, mappings=mappings, moving_to="spare")])
    monkeypatch.setattr(Api, "get_route", lambda *_: route)
    rows = [line.split() for line in shell.ok("queue", "list", "orders").splitlines() if "orders~1/0" in line]
    assert [row[2] for row in rows] == ["unknown", "-"]
    assert [row[-1] for row in rows] == ["-", "spare"]
