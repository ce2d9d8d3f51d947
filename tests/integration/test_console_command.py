"""``hourwheel console`` as a process shows a server and acts with the token of its user, on this machine alone."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, send
from tests.processes import Child

_ADDRESS = re.compile(r"console of (\S+): http://127\.0\.0\.1:(\d+)/console/#secret=([0-9a-f]{32})\n")


class Console:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        assert process.stdout is not None
        match = _ADDRESS.fullmatch(process.stdout.readline())
        assert match is not None
        self.url, self.port, self.secret = match[1], int(match[2]), match[3]

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            sent = {"x-hourwheel-console": self.secret, **headers}
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, json.loads(data) if data else None
        finally:
            connection.close()

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, errors


@contextmanager
def console(url: str, *options: str) -> Iterator[Console]:
    command = [sys.executable, "-m", "hourwheel", "console", "--url", url, "--no-browser", *options]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        hanging = threading.Timer(SECONDS, process.kill)  # ends a test that waits for a line that does not come
        hanging.start()
        try:
            yield Console(process)
        finally:
            hanging.cancel()
            process.kill()


def test_it_shows_a_server_and_acts_with_the_token_of_the_command(start: Start) -> None:
    server = start(tokens=["all-rights"])
    url = f"http://127.0.0.1:{server.port}"
    with console(url, "--token", "all-rights") as shown:
        assert shown.url == url
        assert shown.call("GET", "/console/settings.json")[1]["title"] == f"127.0.0.1:{server.port}"
        message = {"messages": [{"body": "order 1"}]}
        assert shown.call("POST", "/v1/subjects/orders/messages", message)[0] == 200
        status, answer = shown.call("GET", "/v1/overview?limit=10")
        assert (status, [row["subject"] for row in answer["subjects"]]) == (200, ["orders"])
        assert shown.stop() == (0, "")


def test_it_listens_on_this_machine_alone(server: Server) -> None:
    with console(f"http://127.0.0.1:{server.port}") as shown:
        listening = subprocess.run(["cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True).stdout
        port = f":{shown.port:04X} "
        assert [line.split()[1] for line in listening.splitlines() if port in line and " 0A " in line] == [
            f"0100007F:{shown.port:04X}"
        ]


def test_a_token_that_is_missing_is_reported_at_the_start(start: Start) -> None:
    server = start(tokens=["all-rights"])
    with console(f"http://127.0.0.1:{server.port}") as shown:
        assert shown.process.stderr is not None
        assert shown.process.stderr.readline() == (
            "hourwheel: the server needs a token, and none was given: give --token-file, --token or HOURWHEEL_TOKEN; "
            "the console goes on, and shows this too\n"
        )
        assert shown.call("GET", "/v1/subjects")[0] == 401


def test_read_only_changes_nothing(server: Server) -> None:
    send(server, "order 1")
    with console(f"http://127.0.0.1:{server.port}", "--read-only") as shown:
        assert shown.call("GET", "/console/settings.json")[1]["read_only"] is True
        assert shown.call("DELETE", "/v1/subjects/orders")[0] == 403
        assert shown.call("GET", "/v1/subjects/orders")[0] == 200


def test_it_waits_for_a_server_that_is_away(start: Start, server: Server) -> None:
    url = f"http://127.0.0.1:{server.port}"
    with console(url) as shown:
        assert shown.call("GET", "/v1/subjects")[0] == 200
        server.kill()
        assert shown.call("GET", "/v1/subjects")[0] == 502
        start(port=server.port)
        assert shown.call("GET", "/v1/subjects")[0] == 200


def test_a_port_that_is_taken_is_told_in_one_line(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "hourwheel", "console", "--no-browser", "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr == f"hourwheel: cannot listen on port {port}: Address already in use (--port takes another one)\n"
    )
