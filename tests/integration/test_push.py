"""Groups with targets, in a server of its own process: each message arrives, whatever happens to either side."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from hourwheel.client.webhooks import verify
from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Connection, Server, bodies, pull, send
from tests.unit.push.receivers import Receiver, receiving, reply

GROUP = "/v1/subjects/orders/groups/billing"
MESSAGES = 3_000


def until(happened: Callable[[], Any], *, seconds: float = SECONDS) -> None:
    deadline = monotonic() + seconds
    look_again = threading.Event()
    while not happened():
        assert monotonic() < deadline, "it did not happen"
        look_again.wait(0.02)


def to(receiver: Receiver, **settings: Any) -> dict[str, Any]:
    return {"kind": "https", "url": f"http://127.0.0.1:{receiver.port}/hook", **settings}


def send_all(server: Server, prefix: str, count: int = MESSAGES) -> set[str]:
    sent = [f"{prefix}{number}" for number in range(count)]
    with server.connect() as connection:
        for start in range(0, count, 100):
            send(connection, *sent[start : start + 100])
    return set(sent)


def delivered(receiver: Receiver) -> Counter[str]:
    return Counter(message["body"] for request in list(receiver.requests) for message in messages(request.body))


def messages(body: bytes) -> list[Any]:
    return list(json.loads(body)["messages"])


def lag(server: Server) -> dict[str, int]:
    answer = server.ok("GET", f"{GROUP}/lag")
    return {name: answer[name] for name in ("waiting", "in_flight", "retrying", "backing_off", "dead")}


def is_done(server: Server, *, dead: int = 0) -> bool:
    return lag(server) == {"waiting": 0, "in_flight": 0, "retrying": 0, "backing_off": 0, "dead": dead}


def test_thousands_of_messages_arrive_once_and_signed(start: Start) -> None:
    server = start(push_loopback=True)
    server.ok("PUT", "/v1/subjects/orders", {"queues": 3})
    with receiving() as receiver:
        server.ok("PUT", GROUP, {"push": to(receiver, batch=50, concurrency=4)})
        sent = send_all(server, "a")
        until(lambda: is_done(server))
        assert delivered(receiver) == Counter(sent)
        secret = server.ok("GET", f"{GROUP}/push")["signing_secret"]
        for request in receiver.requests:
            verify(secret, request.headers, request.body)
            assert len(messages(request.body)) <= 50
        assert server.ok("GET", f"{GROUP}/push")["failures"] == 0
    assert server.stop() == (0, "")


def test_a_new_secret_is_in_use_at_once_beside_the_old_one(start: Start) -> None:
    server = start(push_loopback=True)
    with receiving() as receiver:
        server.ok("PUT", GROUP, {"push": to(receiver)})
        old = server.ok("GET", f"{GROUP}/push")["signing_secret"]
        server.ok("PUT", GROUP, {"push": to(receiver, secret_version=2)})
        new = server.ok("GET", f"{GROUP}/push")["signing_secret"]
        assert old != new
        send(server, "a")
        until(lambda: receiver.requests)
        for secret in (old, new):
            verify(secret, receiver.requests[0].headers, receiver.requests[0].body)


def test_what_fails_is_tried_again_and_ends_in_the_dead_letters(start: Start) -> None:
    server = start(push_loopback=True)

    def answer(sock: socket.socket) -> None:
        batch = messages(receiver.requests[-1].body)
        failed = [
            {"itemIdentifier": message["id"]}
            for message in batch
            if message["body"] == "poison" or (message["body"] == "frail" and message["attempt"] < 3)
        ]
        sock.sendall(reply("200 OK", json.dumps({"batchItemFailures": failed}).encode()))

    with receiving() as receiver:
        receiver.answer = answer
        push = to(receiver, concurrency=1)  # so that the last request is that of the answer
        server.ok("PUT", GROUP, {"push": push, "max_attempts": 4, "retry": {"first_seconds": 0}})
        send(server, "good", "frail", "poison", "fine")
        until(lambda: is_done(server, dead=1))
        assert delivered(receiver) == {"good": 1, "fine": 1, "frail": 3, "poison": 4}
        dead = server.ok("GET", f"{GROUP}/dead")["messages"]
        assert [(message["body"], message["reason"]) for message in dead] == [("poison", "attempts")]

        receiver.answer = lambda sock: sock.sendall(reply())
        assert server.ok("POST", f"{GROUP}/dead/redrive", {"all": True}) == {"redriven": 1}
        until(lambda: is_done(server))
        assert delivered(receiver)["poison"] == 5
    assert server.stop() == (0, "")


def test_a_target_that_was_down_gets_everything_with_no_attempt_used_up(start: Start) -> None:
    server = start(push_loopback=True)
    with receiving() as gone:
        pass
    server.ok("PUT", GROUP, {"push": to(gone, batch=20), "max_attempts": 1})
    sent = send_all(server, "a", 200)
    until(lambda: server.ok("GET", f"{GROUP}/push")["state"] == "paused")
    paused = server.ok("GET", f"{GROUP}/push")
    assert "refused" in paused["last_error"]
    assert paused["failures"] >= 1
    assert paused["paused_until"]
    with receiving(port=gone.port) as receiver:
        until(lambda: is_done(server))
        assert delivered(receiver) == Counter(sent)
        attempts = {message["attempt"] for request in receiver.requests for message in messages(request.body)}
        assert attempts == {1}
        until(lambda: server.ok("GET", f"{GROUP}/push")["state"] == "idle")
        assert server.ok("GET", f"{GROUP}/push")["last_error"] is None
    assert server.stop() == (0, "")


def test_another_target_takes_over_and_without_one_the_group_is_pulled(start: Start) -> None:
    server = start(push_loopback=True)
    with receiving() as first, receiving() as second:
        server.ok("PUT", GROUP, {"push": to(first)})
        send(server, "a")
        until(lambda: delivered(first))
        server.ok("PUT", GROUP, {"push": to(second)})
        send(server, "b")
        until(lambda: delivered(second))
        server.ok("PUT", GROUP, {"push": None})
        assert server.call("GET", f"{GROUP}/push").status == 404
        send(server, "c")
        (pulled,) = pull(server, wait_seconds=5)
        assert bodies([pulled]) == ["c"]
        server.ok("POST", f"{GROUP}/ack", {"settle": [{"receipt": pulled["receipt"]}]})
        send(server, "d")
        server.ok("PUT", GROUP, {"push": to(first)})
        until(lambda: delivered(first)["d"])
        until(lambda: is_done(server))
        server.ok("DELETE", GROUP)
        server.ok("PUT", f"{GROUP}2", {"push": to(second), "start": "latest"})
        send(server, "e")
        until(lambda: delivered(second)["e"])
        assert delivered(first) == {"a": 1, "d": 1}
        assert delivered(second) == {"b": 1, "e": 1}
    assert server.stop() == (0, "")


def test_a_paused_target_that_is_replaced_is_not_waited_for(start: Start) -> None:
    server = start(push_loopback=True)
    with receiving() as busy, receiving() as ready:
        busy.answer = lambda sock: sock.sendall(reply("503 Service Unavailable", retry_after="800"))
        server.ok("PUT", GROUP, {"push": to(busy)})
        send(server, "a")
        until(lambda: server.ok("GET", f"{GROUP}/push")["state"] == "paused")
        server.ok("PUT", GROUP, {"push": to(ready)})
        until(lambda: delivered(ready))
    assert server.stop() == (0, "")


def test_a_server_that_is_stopped_finishes_its_deliveries(start: Start) -> None:
    server = start(push_loopback=True)
    go_on = threading.Event()
    with receiving() as receiver:
        receiver.answer = lambda sock: (go_on.wait(SECONDS), sock.sendall(reply()))
        server.ok("PUT", GROUP, {"push": to(receiver, batch=1, concurrency=2)})
        send(server, *"abcdef")
        until(lambda: len(receiver.requests) == 2)
        server.signal(signal.SIGTERM)
        until(lambda: not _listens(server.port))
        go_on.set()
        assert server.end() == (0, "")
        server = start(push_loopback=True)
        until(lambda: is_done(server))
        assert delivered(receiver) == Counter("abcdef")
    assert server.stop() == (0, "")


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_kills_in_the_middle_lose_nothing_and_repeat_only_what_was_under_way(start: Start) -> None:
    kills, batch, concurrency = 5, 5, 3
    server = start(push_loopback=True)
    with receiving() as receiver:
        server.ok("PUT", GROUP, {"push": to(receiver, batch=batch, concurrency=concurrency, timeout_seconds=300)})
        sent: set[str] = set()
        for life in range(kills):
            before = len(receiver.requests)
            sent |= send_all(server, f"{life}-", 500)
            until(lambda before=before: len(receiver.requests) >= before + 10)
            server.kill()
            server = start(push_loopback=True)
        last = send_all(server, "last-", 100)
        until(lambda: lag(server)["waiting"] == 0 and last <= delivered(receiver).keys())
        # A delivery under way at a kill is leased until it must have ended: here, for minutes.
        leased = lag(server)["in_flight"]
        assert leased <= kills * batch * concurrency
        assert len((sent | last) - delivered(receiver).keys()) <= leased
        assert set(delivered(receiver).values()) == {1}, "what was settled does not come again"
        assert server.stop() == (0, "")


def test_a_message_that_is_stored_as_the_server_is_killed_is_pushed_by_the_next_one(start: Start) -> None:
    server = start(push_loopback=True)
    with receiving() as receiver:
        server.ok("PUT", GROUP, {"push": to(receiver)})
        server.kill()
        server = start()  # it delivers nothing, as it may not push to this machine
        send(server, "a")
        server.kill()
        server = start(push_loopback=True)
        until(lambda: delivered(receiver))
        assert server.stop() == (0, "")


def test_two_servers_of_one_directory_deliver_each_message_once(start: Start) -> None:
    servers = [start(push_loopback=True), start(push_loopback=True)]
    with receiving() as receiver:
        servers[0].ok("PUT", GROUP, {"push": to(receiver, batch=20, concurrency=3)})
        sent: set[str] = set()
        senders = [
            threading.Thread(target=lambda at=at, server=server: sent.update(send_all(server, f"{at}-", 1_000)))
            for at, server in enumerate(servers)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(SECONDS)
        until(lambda: is_done(servers[0]))
        assert delivered(receiver) == Counter(sent)
        assert len(sent) == 2_000
        # One goes: the other takes its messages.
        assert servers[0].stop() == (0, "")
        send(servers[1], "later")
        until(lambda: delivered(receiver)["later"])
        assert servers[1].stop() == (0, "")


def threads_of(server: Server) -> int:
    (found,) = re.findall(r"Threads:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    return int(found)


def writes_nothing(database: Path, *, seconds: float) -> bool:
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        before = connection.execute("PRAGMA data_version").fetchone()
        threading.Event().wait(seconds)  # there is no signal to wait for
        return bool(connection.execute("PRAGMA data_version").fetchone() == before)


def test_groups_at_rest_write_nothing_and_hold_no_threads(start: Start, tmp_path: Path) -> None:
    server = start(push_loopback=True)
    send(server, "first")
    pull(server, group="other")  # starts the threads that a first pull starts, before they are counted
    until(lambda: threads_of(server))
    before = threads_of(server)
    with receiving() as receiver:
        for number in range(50):
            server.ok("PUT", f"{GROUP}{number}", {"push": to(receiver, concurrency=3)})
        send(server, "second")
        until(lambda: delivered(receiver) == {"first": 50, "second": 50})
        until(lambda: threads_of(server) <= before + 3)  # of requests
        # The last settlements and leases are written after the deliveries: then nothing is, for three seconds.
        until(lambda: writes_nothing(tmp_path / "data" / "hourwheel.db", seconds=3))
        assert len(receiver.requests) <= 100
    assert server.stop() == (0, "")


_MODULE = """
import json, os, sys

def keep(event, context):
    with open("seen", "a") as file:
        for message in event["messages"]:
            file.write(json.dumps([message["body"], message["attempt"]]) + "\\n")
    failed = [m["id"] for m in event["messages"] if m["body"] == "frail" and m["attempt"] == 1]
    return {"batchItemFailures": [{"itemIdentifier": each} for each in failed]}

def leave(event, context):
    sys.exit("no")
"""


@contextmanager
def command_line(folder: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "hourwheel", "serve", "--data", "data", "--port", "0", *args],
        cwd=folder,
        env={**os.environ, "TERM": "dumb", "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_python_targets_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "mailing.py").write_text(_MODULE)
    targets = ["--target", "keep=mailing:keep", "--target", "leave=mailing:leave"]
    with command_line(tmp_path, *targets) as process, receiving() as receiver:
        assert process.stdout is not None
        ready = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
        assert ready
        with Connection(int(ready[1])) as server:
            refused = server.call("PUT", GROUP, {"push": to(receiver)})
            assert (refused.status, refused.json["field"]) == (400, "push.url")
            assert refused.json["detail"].endswith("restart the server with --push-loopback")
            retry = {"first_seconds": 0}
            server.ok("PUT", GROUP, {"push": {"kind": "python", "name": "keep", "batch": 100}, "retry": retry})
            leaving = {"kind": "python", "name": "leave"}
            server.ok("PUT", f"{GROUP}2", {"push": leaving, "retry": retry, "max_attempts": 2})
            for start in range(0, MESSAGES, 500):
                send(server, *(f"m{number}" for number in range(start, start + 500)))
            send(server, "frail")

            def seen() -> list[str]:
                return (tmp_path / "seen").read_text().splitlines() if (tmp_path / "seen").exists() else []

            until(lambda: len(seen()) >= MESSAGES + 2)
            expected = [f"m{number}" for number in range(MESSAGES)] + ["frail", "frail"]
            assert sorted(json.loads(line)[0] for line in seen()) == sorted(expected)
            until(lambda: server.ok("GET", f"{GROUP}2/push")["state"] == "paused")
            assert "SystemExit: no" in server.ok("GET", f"{GROUP}2/push")["last_error"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--target", "mail"], "'mail' is not of the form NAME=MODULE:FUNCTION"),
        (["--target", "mail=mailing"], "NAME=MODULE:FUNCTION"),
        (["--target", "=mailing:keep"], "NAME=MODULE:FUNCTION"),
        (["--target", "mail=mailing:keep", "--target", "mail=mailing:leave"], "'mail' is given twice"),
        (["--target", "mail=nowhere:keep"], "No module named 'nowhere'"),
        (["--target", "mail=mailing:nothing"], "has no attribute 'nothing'"),
        (["--target", "mail=mailing:json"], "cannot be called"),
    ],
)
def test_a_target_that_is_none_is_one_clear_line(tmp_path: Path, args: list[str], says: str) -> None:
    (tmp_path / "mailing.py").write_text(_MODULE)
    with command_line(tmp_path, *args) as process:
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode in {1, 2}
    assert says in errors
    assert "Traceback" not in errors
