import json

import pytest

from tests.unit.cli.conftest import Shell


def schedule(shell: Shell, body: str = "a", at: str = "2027-01-01T09:00:00Z") -> str:
    [accepted] = shell.json("produce", "orders", body, "--deliver-at", at)
    scheduled_id = accepted["scheduled_id"]
    assert isinstance(scheduled_id, str)
    return scheduled_id


def test_show(shell: Shell) -> None:
    scheduled_id = schedule(shell)
    shown = shell.ok("scheduled", "show", scheduled_id)
    assert "state          waiting" in shown
    assert "deliver_at     2027-01-01 09:00:00Z" in shown
    shell.server.broker.fall_due(scheduled_id)
    [found] = shell.json("scheduled", "show", scheduled_id)
    assert (found["state"], found["queue"], found["offset"]) == ("dispatched", 0, 0)


def test_cancel_in_time(shell: Shell) -> None:
    first, second = schedule(shell), schedule(shell)
    assert shell.ok("scheduled", "cancel", first) == "cancelled m-2\n"
    assert shell.ok("scheduled", "cancel", first) == "cancelled m-2\n"
    assert shell.json("scheduled", "cancel", second)[0]["state"] == "cancelled"


def test_a_cancel_that_came_too_late_is_exit_status_1(shell: Shell) -> None:
    scheduled_id = schedule(shell)
    shell.server.broker.fall_due(scheduled_id)
    result = shell("scheduled", "cancel", scheduled_id)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "hourwheel: too late: m-2 was sent at 2026-11-20 09:00:00Z, to queue 0, offset 0\n"
    result = shell("scheduled", "cancel", scheduled_id, "--json")
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (1, "dispatched")


def test_move(shell: Shell) -> None:
    scheduled_id = schedule(shell)
    moved = shell.ok("scheduled", "move", scheduled_id, "--deliver-at", "2027-02-01T00:00:00Z")
    assert moved == "m-2  scheduled 2027-02-01 00:00:00Z  s-3\n"
    [found] = shell.json("scheduled", "move", scheduled_id, "--delay", "90d")
    assert found["state"] == "moved"
    assert "delay" not in shell.server.calls("reschedule")[1].body


def test_a_move_that_came_too_late_is_exit_status_1(shell: Shell) -> None:
    sent, cancelled = schedule(shell), schedule(shell)
    shell.server.broker.fall_due(sent)
    shell.ok("scheduled", "cancel", cancelled)
    result = shell("scheduled", "move", sent, "--delay", "5m")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "too late: m-2 was sent" in result.stderr
    result = shell("scheduled", "move", cancelled, "--delay", "5m", "--json")
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (1, "cancelled")
    assert result.stderr == "hourwheel: too late: m-4 is cancelled\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "say when"),
        (["--delay", "1h", "--deliver-at", "2027-01-01"], "not both"),
        (["--delay", "soon"], "such as '90d'"),
        (["--delay", "-1"], "0 or more"),
        (["--delay", "1d12h"], "36h instead of 1d12h"),
        (["--delay", "1000d"], "too long"),
        (["--deliver-at", "noon"], "RFC 3339"),
        (["--deliver-at", "2027-01-01T09:00:00"], "a zone"),
    ],
)
def test_a_bad_time_is_exit_status_2(shell: Shell, args: list[str], says: str) -> None:
    result = shell("scheduled", "move", "s-1", *args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert not shell.server.requests


@pytest.mark.parametrize("command", [["show"], ["cancel"], ["move", "--delay", "1h"]])
def test_an_unknown_id_is_one_line_and_exit_status_1(shell: Shell, command: list[str]) -> None:
    result = shell("scheduled", *command, "s-77")
    assert (result.exit_code, result.stderr) == (1, "hourwheel: there is no delayed message 's-77'\n")
    result = shell("scheduled", *command, "nonsense")
    assert (result.exit_code, result.stderr) == (1, "hourwheel: this is not the id of a delayed message\n")


def test_list_counts_by_the_hour(shell: Shell) -> None:
    for at in ("2026-11-20T10:10:00Z", "2026-11-20T10:20:00Z", "2026-11-21T09:00:00Z"):
        schedule(shell, at=at)
    [counts] = shell.json("scheduled", "count", "orders", "--hours", "72")
    assert counts == {
        "subject": "orders",
        "messages": 3,
        "hours": [
            {"hour": "2026-11-20T10:00:00.000Z", "messages": 2},
            {"hour": "2026-11-21T09:00:00.000Z", "messages": 1},
        ],
    }
    listed = shell.ok("scheduled", "count", "orders", "--hours", "2")
    assert ["2026-11-20", "10:00:00Z", "2"] in [line.split() for line in listed.splitlines()]
    assert listed.endswith("2 due within 2 h; --hours looks further, up to 744\n")
    shell.ok("subject", "create", "returns")
    assert shell.ok("scheduled", "count", "returns") == "0 due within 72 h, 0 in all\n"
    assert shell("scheduled", "count", "orders", "--hours", "0").exit_code == 2


def test_a_message_that_is_due_in_weeks_is_counted_in_all_and_tells_its_time(shell: Shell) -> None:
    schedule(shell, at="2027-01-01T09:00:00Z")
    schedule(shell, at="2027-02-01T09:00:00Z")
    listed = shell.ok("scheduled", "count", "orders")
    assert listed == "0 due within 72 h, 2 in all, the next at 2027-01-01 09:00:00Z\n"
    [counts] = shell.json("scheduled", "count", "orders")
    assert (counts["messages"], counts["total"], counts["next_at"]) == (0, 2, "2027-01-01T09:00:00.000Z")


def test_messages_are_listed_one_by_one(shell: Shell) -> None:
    later, sooner = schedule(shell, "b", "2026-11-20T11:00:00Z"), schedule(shell, "a", "2026-11-20T10:00:00Z")
    shell.ok("produce", "paid", "c", "--deliver-at", "2026-11-20T10:30:00Z")
    shell.ok("scheduled", "cancel", later)
    assert [(each["subject"], each["state"]) for each in shell.json("scheduled", "list")] == [
        ("orders", "waiting"),
        ("paid", "waiting"),
        ("orders", "cancelled"),
    ]
    assert [each["scheduled_id"] for each in shell.json("scheduled", "list", "orders")] == [sooner, later]
    shell.ok(
        "produce", "orders", "d", "--id", "o-1", "--key", "k", "--tag", "eu", "--deliver-at", "2026-11-20T12:00:00Z"
    )
    for chosen in (("--id", "o-1"), ("--key", "k"), ("--tag", "eu")):
        assert [each["id"] for each in shell.json("scheduled", "list", "orders", *chosen)] == ["o-1"]
        assert shell.json("scheduled", "list", *chosen[:1], "other") == []
    head, _, first, *_ = (line.split() for line in shell.ok("scheduled", "list", "orders").strip().splitlines())
    assert head == ["deliver", "at", "subject", "state", "key", "id", "scheduled", "id"]
    assert first[:4] == ["2026-11-20", "10:00:00Z", "orders", "waiting"]
    span = ("--from", "2026-11-20T10:30:00Z", "--to", "2026-11-20T11:00:00Z")
    [found] = shell.json("scheduled", "list", *span, "--bodies")
    assert (found["subject"], found["body"]) == ("paid", "c")


def test_as_many_messages_are_listed_as_asked_for_page_by_page(shell: Shell) -> None:
    shell.ok("produce", "orders", *["x"] * 230, "--delay", "1h")
    assert len(shell.json("scheduled", "list", "orders", "--limit", "205")) == 205
    limits = [
        call.target.partition("limit=")[2].partition("&")[0] for call in shell.server.calls("list_subject_delayed")
    ]
    assert limits == ["100", "100", "5"]
    assert shell("scheduled", "list", "orders", "--limit", "0").exit_code == 2
    assert shell("scheduled", "list", "orders", "--from", "noon").exit_code == 2
    result = shell("scheduled", "list", "nothing")
    assert (result.exit_code, result.stderr) == (1, "hourwheel: there is no subject 'nothing'\n")


def test_a_message_that_the_server_cannot_read_is_reported(shell: Shell) -> None:
    damaged = {"scheduled_id": "s-1", "subject": "orders", "deliver_at": "2026-11-20T10:00:00Z", "damaged": "no block"}
    raw = json.dumps({"messages": [damaged], "next": None}).encode()
    shell.server.fail("list_delayed", raw=raw)
    result = shell("scheduled", "list")
    assert (result.exit_code, result.stderr) == (0, "hourwheel: s-1 cannot be read: no block\n")
