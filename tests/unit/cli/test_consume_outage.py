"""``hourwheel consume`` while the server is away."""

import os
import signal
import socket
import subprocess
import sys

import msgspec
import pytest

from hourwheel.cli import settings
from tests.processes import Child
from tests.unit.cli.conftest import Shell
from tests.unit.client.test_msgpack import MSGPACK

CONSUME = ("consume", "orders", "billing")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls fail at the first request without an answer."""
    monkeypatch.setattr(settings, "_RETRY_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", [{"cut": True}, {"status": 503}])
def test_a_consumer_that_follows_waits_for_the_server_and_settles_what_it_printed(
    shell: Shell, fault: dict[str, object]
) -> None:
    shell.ok("produce", "orders", *map(str, range(101)))
    shell.server.fail("pull", before=lambda: None)  # no fault: the outage begins after the first message
    shell.server.fail("pull", times=3, **fault)
    result = shell(*CONSUME, "--max", "101")
    assert (result.exit_code, result.stdout) == (0, "".join(f"{number}\n" for number in range(101)))
    away, back = result.stderr.splitlines()
    assert away.endswith("; trying again until it answers")
    assert back == "hourwheel: the server answers again"
    assert len(shell.server.calls("pull")) == 5
    assert shell.json("lag", "orders", "billing")[0]["in_flight"] == 0


def test_a_consumer_settles_again_what_it_printed_of_a_cell_that_was_out_of_reach(shell: Shell) -> None:
    shell.ok("produce", "orders", *map(str, range(101)))
    shell.server.fail("pull", before=lambda: None)
    unavailable = {"pulls": [], "settled": [{"status": "unavailable"}]}
    shell.server.fail("pull", raw=msgspec.msgpack.encode(unavailable), kind=MSGPACK)
    result = shell(*CONSUME, "--max", "101")
    assert (result.exit_code, len(result.stdout.splitlines()), result.stderr) == (0, 101, "")
    first, second, third = shell.server.calls("pull")
    assert "settle" not in first.body
    assert len(second.body["settle"]) == 1
    assert second.body["settle"] == third.body["settle"]
    assert shell.json("lag", "orders", "billing")[0]["in_flight"] == 0


def test_a_consumer_says_at_its_end_that_printed_messages_are_not_settled(shell: Shell) -> None:
    shell.ok("produce", "orders", "a")
    answer = {"results": [{"status": "unavailable"}]}
    shell.server.fail("settle", raw=msgspec.msgpack.encode(answer), kind=MSGPACK)
    result = shell(*CONSUME, "--max", "1")
    assert (result.exit_code, result.stdout) == (0, "a\n")
    assert "a cell is out of reach, and printed messages in it are not settled" in result.stderr


@pytest.mark.usefixtures("impatient")
def test_a_consumer_that_does_not_follow_ends_with_the_error(shell: Shell) -> None:
    shell.server.fail("pull", times=3, cut=True)
    result = shell(*CONSUME, "--once")
    assert result.exit_code == 1
    assert "did not answer" in result.stderr
    assert "trying again" not in result.stderr


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_consumer_that_may_not_look_at_its_subject_pulls_all_the_same(shell: Shell, status: int) -> None:
    shell.ok("produce", "orders", "a")
    shell.server.fail("show_subject", status=status)
    result = shell(*CONSUME, "--once")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a\n", "")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", ["--follow", "--once"])
def test_an_outage_before_the_first_pull_ends_a_consumer_that_does_not_follow(shell: Shell, how: str) -> None:
    shell.ok("produce", "orders", "a")
    shell.server.fail("show_subject", cut=True)
    result = shell(*CONSUME, how, "--max", "1")
    assert (result.exit_code, result.stdout) == ((0, "a\n") if how == "--follow" else (1, ""))


def test_ctrl_c_ends_a_consumer_whose_server_is_away() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        environment = {**os.environ, "HOURWHEEL_URL": url}
        command = [sys.executable, "-m", "hourwheel", *CONSUME]
        with Child(command, stderr=subprocess.PIPE, env=environment, text=True) as process:
            assert process.stderr is not None
            assert process.stderr.readline().endswith("is this its address?); trying again until it answers\n")
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
    assert "cannot be reached" not in said
    assert process.returncode != 0
