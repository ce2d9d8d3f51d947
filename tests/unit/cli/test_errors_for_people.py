"""Errors tell the user of the command line what to run."""

import json
from typing import Any

import msgspec
import pytest

from hourwheel.client import Api
from hourwheel.client.records.groups import Lag
from hourwheel.client.records.peek import PeekPage
from hourwheel.errors import HourwheelError, Unavailable
from hourwheel.model.lag import HeldKey, HeldKeys
from tests.unit.cli.conftest import Shell


def test_a_peek_prints_what_it_has_read_before_a_cell_that_is_out_of_reach(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = {"id": "1", "queue": 0, "offset": 0, "produced_at": "2026-11-27T00:00:00Z", "body": "a"}
    pages = [msgspec.convert({"messages": [message], "next": 1, "end": None}, PeekPage)]

    def peek(*_: Any, **__: Any) -> PeekPage:
        if pages:
            return pages.pop()
        raise HourwheelError("cell fast is offline")

    monkeypatch.setattr(Api, "peek", peek)
    for expected in (["a"], []):
        result = shell("--json", "subject", "peek", "orders")
        assert [json.loads(line)["body"] for line in result.stdout.splitlines()] == expected
        assert result.exit_code == 1
        assert "cell fast is offline" in result.stderr


@pytest.mark.parametrize(
    ("answered", "told"),
    [
        ("503: send the request again", "503: run the command again"),
        (
            "503: send the request again, with the same idempotency key if it had one; why",
            "503: run the command again; why",
        ),
        ("free some space, then send the request again", "free some space, then run the command again"),
        ("look it up, then repeat the request", "look it up, then run the command again"),
    ],
)
def test_an_error_says_to_run_the_command_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, answered: str, told: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Unavailable(answered)

    monkeypatch.setattr(Api, "get_subject", refuse)
    assert shell("subject", "show", "orders").stderr == f"hourwheel: {told}\n"


def test_times_of_held_keys_have_the_form_of_all_times(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    key = HeldKey(key="k", queue=0, offset=3, attempt=2, stopped=False, due_at="2026-11-27T13:51:34.443Z", behind=1)
    lag = Lag(waiting=0, in_flight=0, retrying=0, dead=0, queues=[], held=HeldKeys(keys=1, parked=1, first=[key]))
    monkeypatch.setattr(Api, "lag", lambda *_: lag)
    assert "key k: queue 0 offset 3, attempt 2 at 2026-11-27 13:51:34Z, 1 behind" in shell.ok("lag", "orders", "ledger")
