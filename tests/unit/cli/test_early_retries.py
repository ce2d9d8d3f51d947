"""``hourwheel group retry`` repeats its call until nothing is left; ``hourwheel group purge`` asks first."""

from typing import Any

import pytest

from hourwheel.client import Api, EarlyRetries, QueueOffset
from tests.unit.cli.conftest import Shell


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the calls that the command makes. Three calls of a retry find 1,000, no and 5 messages."""
    made: list[Any] = []
    answers = iter([(1_000, "b-1"), (0, "b-2"), (5, None)])

    def retry_now(api: Api, subject: str, group: str, *, after: str | None, **which: Any) -> EarlyRetries:
        made.append((subject, group, which, after))
        retried, following = next(answers)
        return EarlyRetries(retried=retried, next=following)

    def seek(api: Api, subject: str, group: str, to: str, *, dry_run: bool = False) -> list[QueueOffset]:
        made.append((to, dry_run))
        return [QueueOffset(queue=0, offset=7, passed_over=7 if dry_run else None)]

    monkeypatch.setattr(Api, "retry_now", retry_now)
    monkeypatch.setattr(Api, "seek", seek)
    return made


def test_a_retry_goes_on_until_nothing_is_left(shell: Shell, calls: list[Any]) -> None:
    assert shell.ok("group", "retry", "orders", "billing", "--error", "time-out") == "retried 1005 messages now\n"
    which = {"everything": False, "key": None, "detail": "time-out"}
    assert calls == [("orders", "billing", which, after) for after in (None, "b-1", "b-2")]


@pytest.mark.parametrize("args", [(), ("--all", "--key", "k")])
def test_a_retry_needs_to_know_which_messages(shell: Shell, calls: list[Any], args: tuple[str, ...]) -> None:
    result = shell("group", "retry", "orders", "billing", *args)
    assert result.exit_code == 2
    assert "say which messages" in result.stderr
    assert calls == []


def test_a_purge_counts_asks_and_seeks_to_the_end(shell: Shell, calls: list[Any]) -> None:
    assert shell("group", "purge", "orders", "billing").exit_code == 2, "nobody can answer"
    assert calls == [("end", True)]
    assert shell.ok("group", "purge", "orders", "billing", "--yes") == "passed over 7 messages of orders\n"
    assert calls[1:] == [("end", True), ("end", False)]
