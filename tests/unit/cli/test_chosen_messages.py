"""``hourwheel scheduled cancel --subject`` and ``move --subject`` count, ask, and go on until nothing is left."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from hourwheel.client import Api, ChosenPage, ScheduledMessage
from tests.unit.cli.conftest import Shell

AT = datetime(2027, 1, 1, tzinfo=UTC)


def message(number: int, state: Any) -> ScheduledMessage:
    return ScheduledMessage(scheduled_id=f"s-{number}", state=state, id=f"m-{number}", subject="orders", deliver_at=AT)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the calls that a command makes: three messages are on two pages, and one of them was sent meanwhile."""
    made: list[Any] = []

    def chosen(name: str, states: tuple[str, ...]) -> Any:
        def call(
            api: Api, subject: str, which: Any, *, dry_run: bool = False, after: str | None = None, **how: Any
        ) -> ChosenPage:
            made.append((name, dry_run, after, {**msgspec.to_builtins(which), **how}))
            given = ("waiting",) * 3 if dry_run else states
            first = [message(number, state) for number, state in enumerate(given)]
            return ChosenPage(messages=first[2:] if after else first[:2], next=None if after else "p2")

        return call

    monkeypatch.setattr(Api, "cancel_chosen", chosen("cancel", ("cancelled", "cancelled", "dispatched")))
    monkeypatch.setattr(Api, "move_chosen", chosen("move", ("moved",) * 3))
    return made


def test_messages_are_counted_and_cancelled_page_by_page(shell: Shell, calls: list[Any]) -> None:
    result = shell("scheduled", "cancel", "--subject", "orders", "--key", "customer-42", "--yes")
    assert (result.exit_code, result.stdout) == (0, "cancelled 2 delayed messages\n")
    assert result.stderr == "hourwheel: too late: m-2 was sent\n"
    which = {"key": "customer-42"}
    assert calls == [("cancel", dry_run, after, which) for dry_run in (True, False) for after in (None, "p2")]


def test_a_dry_run_only_counts(shell: Shell, calls: list[Any]) -> None:
    said = shell.ok("scheduled", "cancel", "--subject", "orders", "--tag", "eu", "--dry-run")
    assert said == "would cancel 3 delayed messages\n"
    assert shell.json("scheduled", "cancel", "--subject", "orders", "--tag", "eu", "--dry-run") == [{"messages": 3}]
    assert {dry_run for _, dry_run, *_ in calls} == {True}


def test_nobody_to_ask_needs_yes(shell: Shell, calls: list[Any]) -> None:
    assert shell("scheduled", "cancel", "--subject", "orders", "--id", "order-7").exit_code == 2
    assert {dry_run for _, dry_run, *_ in calls} == {True}


def test_all_calls_of_a_move_name_the_same_time(shell: Shell, calls: list[Any]) -> None:
    said = shell.ok("scheduled", "move", "--subject", "orders", "--id", "order-7", "--delay", "3h", "--yes")
    assert said == "moved 3 delayed messages\n"
    assert len({how["deliver_at"] for *_, how in calls}) == 1


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("s-1", "--subject", "orders", "--key", "k"),
        ("s-1", "--key", "k"),
        ("--subject", "orders"),
        ("--key", "k"),
    ],
)
@pytest.mark.parametrize("act", [("cancel",), ("move", "--delay", "1h")])
def test_one_message_or_a_choice_is_needed(
    shell: Shell, calls: list[Any], act: tuple[str, ...], args: tuple[str, ...]
) -> None:
    assert shell("scheduled", *act, *args).exit_code == 2
    assert calls == []
