"""Nothing is cut when the server is told to stop."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, bodies, pull, send
from tests.integration.test_long_polls import ask, until_groups
from tests.processes import Child


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_without_work_waits_for_nothing_when_it_stops(start: Start, number: signal.Signals) -> None:
    server = start(stop_seconds=1_000, body_seconds=1_000)
    server.signal(number)
    assert server.end() == (0, "")
    assert server.process.communicate(SECONDS)[0].endswith("hourwheel stopped\n")


def test_a_server_whose_output_nobody_reads_any_more_stops_as_well(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hourwheel", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"hourwheel listening")
        process.stdout.close()
        process.send_signal(signal.SIGTERM)
        assert (process.wait(SECONDS), process.stderr.read()) == (0, b"")


def test_a_request_that_is_on_its_way_is_answered(start: Start) -> None:
    server = start()
    body = json.dumps({"messages": [{"body": "in flight"}]}).encode()
    with server.raw() as raw:
        head = f"POST /v1/subjects/orders/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body[:5])
        server.ok("GET", "/v1/health")
        server.signal(signal.SIGTERM)
        until_refused(server)
        raw.sendall(body[5:])
        with raw.makefile("rb") as stream:
            answer = stream.read().decode()
    assert answer.startswith("HTTP/1.1 200")
    assert "connection: close" in answer
    assert server.end() == (0, "")
    assert bodies(pull(start())) == ["in flight"]


def test_waiting_pulls_are_answered_empty(server: Server) -> None:
    pollers = [server.connect() for _ in range(50)]
    for n, poller in enumerate(pollers):
        ask(poller, f"g{n}")
    until_groups(server, 50)
    server.signal(signal.SIGTERM)
    for poller in pollers:
        answer = poller.receive()
        assert (answer.status, answer.json) == (200, {"pulls": []})
        poller.close()
    assert server.end() == (0, "")


def test_clients_at_work_have_no_request_cut(start: Start) -> None:
    """Each either gets its answer, or is told beforehand that the connection ends."""
    server = start()
    accepted: list[str] = []
    cut: list[Exception] = []
    begun = threading.Barrier(9)

    def work(name: int) -> None:
        with server.connect() as connection:
            send(connection, f"{name}-first")
            begun.wait(SECONDS)
            for n in range(100_000):
                try:
                    connection.send("POST", "/v1/subjects/orders/messages", {"messages": [{"body": f"{name}-{n}"}]})
                    answer = connection.receive()
                except OSError as error:
                    cut.append(error)
                    return
                assert answer.status == 200
                accepted.append(f"{name}-{n}")
                if answer.headers.get("connection") == "close":
                    return

    workers = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for worker in workers:
        worker.start()
    begun.wait(SECONDS)
    server.signal(signal.SIGTERM)
    for worker in workers:
        worker.join(SECONDS)
    assert server.end() == (0, "")
    assert cut == []
    with start().connect() as connection:
        stored: set[str] = set()
        while pulls := pull(connection, max_messages=1_000):
            stored.update(bodies(pulls))
    assert stored.issuperset(accepted)


def test_a_server_that_is_told_twice_does_not_wait(start: Start) -> None:
    server = start(stop_seconds=1_000, body_seconds=1_000)
    with server.raw() as raw:
        raw.sendall(b"POST /v1/subjects/orders/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n\r\n{")
        server.ok("GET", "/v1/health")
        server.signal(signal.SIGTERM)
        until_refused(server)
        server.signal(signal.SIGTERM)
        assert server.end() == (0, "")


def until_refused(server: Server) -> None:
    """Waits until the server takes no more connections."""
    while True:
        try:
            server.raw().close()
        except OSError:
            return
