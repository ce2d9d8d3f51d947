"""``hourwheel queue`` says what is pending, and says so where there is nothing to do."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from hourwheel.client import Api, QueueRoute, RouteMapping, RouteStep, SubjectRoute
from tests.unit.cli.conftest import Shell


def route(moving_to: str | None = None, pending_queues: int | None = None) -> SubjectRoute:
    mapping = RouteMapping(start=0, end=None, cell="fast", log="orders~1/0.1", state="normal", generation=1)
    queue = QueueRoute(queue=0, mappings=[mapping], moving_to=moving_to)
    return SubjectRoute(subject="orders", epoch=1, queues=[queue], pending_queues=pending_queues)


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Returns a function that lets a call of the client return a result, and keeps what the call was given."""

    def answer(name: str, result: Any) -> list[Any]:
        given: list[Any] = []

        def call(self: Api, *arguments: Any, **options: Any) -> Any:
            given.append((arguments, options))
            return result

        monkeypatch.setattr(Api, name, call)
        return given

    return answer


def test_the_list_shows_a_pending_move_and_pending_queues(shell: Shell, answer: Callable[..., list[Any]]) -> None:
    answer("get_route", route("home", 4))
    told = shell.ok("queue", "list", "orders")
    assert "moving to" in told
    assert "home" in told
    assert "pending: the subject gets 4 queues once all its cells answer" in told
    answer("get_route", route())
    assert "moving to" not in shell.ok("queue", "list", "orders")


@pytest.mark.parametrize(
    ("call", "command", "sentence"),
    [
        ("spread_queues", ("spread", "orders"), "the queues of orders are spread evenly already"),
        ("add_queues", ("add", "orders", "1"), "orders has 1 queue already"),
        ("withdraw_route_changes", ("withdraw", "orders", "0"), "no move or addition of queues is pending for queue 0"),
        ("withdraw_route_changes", ("withdraw", "orders"), "no move or addition of queues is pending for orders"),
    ],
)
def test_a_command_with_nothing_to_do_says_so(
    shell: Shell, answer: Callable[..., list[Any]], call: str, command: tuple[str, ...], sentence: str
) -> None:
    for dry_run in (False, True):
        answer(call, RouteStep(before=route(), after=route(), dry_run=dry_run))
        told = shell.ok("queue", *command, *(["--dry-run"] if dry_run else []))
        assert told.startswith("nothing to do: ")
        assert sentence in told
        assert json.loads(shell.ok("queue", *command, "--json"))["dry_run"] is dry_run


def test_a_withdrawal_shows_the_route_before_and_after(shell: Shell, answer: Callable[..., list[Any]]) -> None:
    given = answer("withdraw_route_changes", RouteStep(before=route("home"), after=route(), dry_run=False))
    before, _, after = shell.ok("queue", "withdraw", "orders", "0").partition("after:")
    assert "moving to" in before
    assert "moving to" not in after
    assert given == [(("orders", 0), {"dry_run": False})]
