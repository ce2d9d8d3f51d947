"""``hourwheel lag --history`` prints the last hour of a group."""

from typing import Any

import msgspec
import pytest

from hourwheel.client import Api, HistoryPage
from tests.unit.cli.conftest import Shell

AT = "2026-11-28T09:00:00.000Z"
BILLING = {
    "group": "billing",
    "at": ["2026-11-28T08:58:00Z", "2026-11-28T08:59:00Z"],
    "accepted_per_second": [2.0, 0.5],
    "pulled_per_second": [None, 1.25],
    "waiting": [120, 75],
    "oldest_seconds": [60, 61],
    "dead": [0, 3],
}


def answer(monkeypatch: pytest.MonkeyPatch, **page: Any) -> list[tuple[str, str | None]]:
    """Lets the server answer this page. Returns the list of what the command asks for."""
    asked: list[tuple[str, str | None]] = []

    def history(api: Api, subject: str, *, group: str | None = None) -> HistoryPage:
        asked.append((subject, group))
        whole = {"subject": subject, "groups": [], "at": AT, "since": AT, "next": None, **page}
        return msgspec.convert(whole, HistoryPage)

    monkeypatch.setattr(Api, "history", history)
    return asked


def test_each_minute_has_a_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answer(monkeypatch, groups=[BILLING])
    lines = shell("lag", "orders", "billing", "--history").output.splitlines()
    assert asked == [("orders", "billing")]
    assert [line.split() for line in lines if "accepted/s" in line] == [
        ["time", "accepted/s", "pulled/s", "waiting", "oldest", "s", "dead"]
    ]
    assert [line.split() for line in lines if "8:5" in line] == [
        ["08:58Z", "2.0", "-", "120", "60", "0"],
        ["08:59Z", "0.5", "1.25", "75", "61", "3"],
    ]
    assert lines[-1] == "kept in the memory of the server since 2026-11-28 09:00Z"


def test_the_history_is_printed_as_json(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, groups=[BILLING])
    shown = msgspec.json.decode(shell("--json", "lag", "orders", "billing", "--history").output)
    assert shown["groups"][0]["waiting"] == [120, 75]


def test_no_history_is_said(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch)
    still = shell("lag", "orders", "billing", "--history").output
    assert still == "the group has not moved within an hour, or since the server began at 2026-11-28 09:00Z\n"
    answer(monkeypatch, since=None)
    assert shell("lag", "orders", "billing", "--history").output == "this server keeps no history\n"
