"""``hourwheel consume`` waits at the wake-up queue of its group."""

import json
import time

import pytest

from tests.unit.cli.conftest import Shell

_SIGNING = ("--sign", "aws", "--region", "eu-west-1")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")


def _waits_at(url: str, seconds: float) -> bytes:
    queue = {"url": url, "region": "eu-west-1", "wait_seconds": seconds}
    return json.dumps({"pulls": [], "wakeup": queue}).encode()


def test_consume_lets_less_than_a_second_pass_before_the_next_pull(shell: Shell) -> None:
    shell.ok("produce", "orders", "a")
    pulled_at: list[float] = []
    raw = _waits_at(f"{shell.server.url}/111122223333/hourwheel-wake-x", 0.9)
    for _ in range(2):
        shell.server.fail("pull", raw=raw, before=lambda: pulled_at.append(time.monotonic()))
    assert shell.ok(*_SIGNING, "consume", "orders", "billing", "--max", "1") == "a\n"
    assert pulled_at[1] - pulled_at[0] >= 0.8


@pytest.mark.parametrize("scheme_and_port", [("https", ":abc"), ("ftp", ""), ("http", "")])
def test_consume_pulls_on_where_the_url_of_the_queue_cannot_be_used(
    shell: Shell, scheme_and_port: tuple[str, str]
) -> None:
    scheme, port = scheme_and_port
    shell.ok("produce", "orders", "a")
    shell.server.fail("pull", raw=_waits_at(f"{scheme}://sqs.eu-west-1.amazonaws.com{port}/111122223333/x", 300))
    assert shell.ok(*_SIGNING, "consume", "orders", "billing", "--max", "1") == "a\n"
    assert "idle_seconds" not in shell.server.calls("pull")[1].body
