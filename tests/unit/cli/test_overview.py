"""``hourwheel overview`` shows what needs attention before the numbers of the subjects."""

from typing import Any

import msgspec
import pytest

from hourwheel.client import Api, AttentionPage, Closed, Concern
from hourwheel.client.records.overview import OverviewPage, SubjectOverview
from tests.unit.cli.conftest import Shell

AT = "2026-11-28T09:00:00.000Z"
DEAD = msgspec.convert(
    {
        "kind": "dead",
        "level": "warning",
        "text": "2,500 dead letters.",
        "command": "hourwheel dead reasons orders billing",
        "subject": "orders",
        "group": "billing",
        "since": AT,
    },
    Concern,
)


def attention(*concerns: Concern, total: int = 0, complete: bool = True, **more: Any) -> AttentionPage:
    page = {"concerns": list(concerns), "total": total or len(concerns), "at": AT, "complete": complete}
    return msgspec.convert({**page, **more}, AttentionPage)


def numbers(subject: str, **how: Any) -> SubjectOverview:
    zero = dict.fromkeys(("waiting", "in_flight", "retrying", "backing_off", "dead", "delayed", "end", "settled"), 0)
    settings = {"queues": 1, "groups": 1, "paused": False, "read_only": False, "retention_seconds": 60, "at": AT}
    return msgspec.convert({"subject": subject, **zero, **settings, **how}, SubjectOverview)


class Looks:
    """Answers the calls of the command."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pages: list[AttentionPage], subjects: int = 1) -> None:
        self.asked: list[str | None] = []
        names = [f"orders-{number:03}" for number in range(subjects)]

        def look(api: Api, *, limit: int = 100) -> AttentionPage:
            if not pages:
                raise Closed("the server is away")
            return pages.pop(0)

        def overview(api: Api, *, prefix: str | None = None, after: str | None = None, **_: Any) -> OverviewPage:
            self.asked.append(prefix)
            page = [name for name in names if name > (after or "")][:60]
            following = page[-1] if page and page[-1] != names[-1] else None
            shown = [numbers(name, dead=1_000, waiting=7, inexact=["dead"]) for name in page]
            return OverviewPage(subjects=shown, at=shown[0].at, next=following)

        monkeypatch.setattr(Api, "attention", look)
        monkeypatch.setattr(Api, "overview", overview)


def test_points_come_first_with_their_place_and_command(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, [attention(DEAD)])
    told = shell.ok("overview")
    assert told.startswith("1 point needs attention\n")
    assert told.index("hourwheel dead reasons orders billing") < told.index("orders-000")
    assert "orders/billing" in told
    assert "2026-11-28 09:00Z" in told


def test_a_number_that_may_be_too_low_has_a_plus_and_no_other(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, [attention()])
    told = shell.ok("overview")
    assert told.startswith("nothing needs attention\n")
    assert "1000+" in told
    assert "7+" not in told


def test_it_looks_again_until_every_subject_was_read(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = [attention(complete=False), attention(DEAD, total=130)]
    Looks(monkeypatch, pages)
    assert shell.ok("overview").startswith("130 points need attention, 129 of them not shown\n")
    assert not pages


def test_a_server_that_has_not_read_all_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, [attention(complete=False) for _ in range(30)])
    assert shell.ok("overview").startswith("nothing needs attention; the server has not read every subject yet\n")


def test_old_numbers_are_told_with_their_age(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, [attention(oldest_read_at=at) for at in ("2026-11-28T08:57:01Z", "2026-11-28T08:59:01Z")])
    assert shell.ok("overview").startswith("nothing needs attention; the oldest numbers were read 2 minutes ago\n")
    assert shell.ok("overview").startswith("nothing needs attention\n")


def test_a_hundred_subjects_are_shown_and_a_prefix_chooses_others(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks(monkeypatch, [attention(), attention()], subjects=130)
    told = shell.ok("overview", "--prefix", "ord")
    assert "orders-099" in told
    assert "orders-100" not in told
    assert told.endswith("the first 100 subjects; --prefix shows others\n")
    assert set(looks.asked) == {"ord"}
    (shown,) = shell.json("overview")
    assert (len(shown["subjects"]), shown["more"], shown["attention"]["total"]) == (100, True, 0)


def test_it_is_watched_until_something_goes_wrong(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    Looks(monkeypatch, [attention(DEAD), attention()])
    result = shell("overview", "--watch", "--interval", "0.1")
    assert result.exit_code == 1
    assert result.stdout.index("1 point needs attention") < result.stdout.index("nothing needs attention")
