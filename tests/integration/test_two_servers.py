"""Two servers share a data directory: each takes over the other's work when that one stops, is killed, or stands
still."""

import signal
import sqlite3
import time
from pathlib import Path

import pytest

from hourwheel.times import rfc3339
from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, bodies, pull, send


def send_at(server: Server, body: str, due: float) -> str:
    message = {"body": body, "deliver_at": rfc3339(round(due * 1_000))}
    (accepted,) = server.ok("POST", "/v1/subjects/orders/messages", {"messages": [message]})["results"]
    return str(accepted["scheduled_id"])


def two_servers(start: Start, data: Path, seconds: float) -> tuple[Server, Server]:
    """Starts two servers. The first one turns the wheel of the messages that are due in ``seconds``."""
    first = start(data)
    due = time.time() + seconds
    _, one = (send_at(first, body, due) for body in ("another", "cancelled"))
    assert first.ok("DELETE", f"/v1/scheduled/{one}")["state"] == "cancelled"
    return first, start(data)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_cancel_is_answered_soon_after_the_server_that_turned_the_wheel_is_gone(
    tmp_path: Path, start: Start, how: signal.Signals
) -> None:
    first, second = two_servers(start, tmp_path, 600)
    one = send_at(second, "a", time.time() + 600)
    first.signal(how)
    first.end()
    answer = second.call("DELETE", f"/v1/scheduled/{one}")
    assert (answer.status, answer.json["state"]) == (200, "cancelled")
    assert second.stop() == (0, "")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_falls_due_after_the_server_that_turned_the_wheel_is_gone_comes_from_the_other(
    tmp_path: Path, start: Start, how: signal.Signals
) -> None:
    first, second = two_servers(start, tmp_path, 6)
    first.signal(how)
    first.end()
    deadline = time.monotonic() + SECONDS
    while not (found := bodies(pull(second, wait_seconds=20))):
        assert time.monotonic() < deadline
    assert found == ["another"]
    assert second.stop() == (0, "")


def test_a_server_that_stands_still_keeps_its_wheel(tmp_path: Path, start: Start) -> None:
    first, second = two_servers(start, tmp_path, 600)
    names = {path.name for path in (tmp_path / "live").iterdir()}
    assert len(names) == 2
    first.signal(signal.SIGSTOP)
    try:
        send(second, "a")
        assert bodies(pull(second)) == ["a"]
        assert {path.name for path in (tmp_path / "live").iterdir()} == names
    finally:
        first.signal(signal.SIGCONT)
    for server in (first, second):
        assert server.stop() == (0, "")
    assert list((tmp_path / "live").iterdir()) == []


def test_a_server_that_cannot_write_is_alive_and_not_ready(tmp_path: Path, start: Start) -> None:
    server = start(tmp_path, tokens=["secret"])
    assert server.call("GET", "/v1/ready").json == {"status": "ready"}
    other = sqlite3.connect(tmp_path / "hourwheel.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    refused = until(server, 503)
    assert refused["type"] == "urn:hourwheel:not-ready"
    assert "another process keeps the database locked" in refused["detail"]
    assert server.call("GET", "/v1/health").json["status"] == "ok"
    assert b"nothing could be stored for" in server.process.stderr.readline()
    other.execute("ROLLBACK")
    other.close()
    assert until(server, 200) == {"status": "ready"}
    assert server.stop()[0] == 0


def until(server: Server, status: int) -> dict[str, str]:
    """Returns the answer of ``/v1/ready`` once it has that status."""
    deadline = time.monotonic() + SECONDS
    while (answer := server.call("GET", "/v1/ready")).status != status:
        assert time.monotonic() < deadline
    return dict(answer.json)
