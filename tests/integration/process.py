"""Starts a server in a process of its own, and opens connections to it."""

import http.client
import json
import re
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hourwheel.embedded.options import ServeOptions
from tests.integration.forked import ForkedProcess

SECONDS = 120.0
"""Longer than anything here takes on a machine that is ten times slower: a test that hangs fails."""

_READY = re.compile(r"hourwheel listening on https?://127\.0\.0\.1:(\d+), data in (.+)\n")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    json: Any


class Connection:
    """One kept-alive connection."""

    def __init__(self, port: int, *, token: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        self._headers = {**(headers or {}), **({} if token is None else {"Authorization": f"Bearer {token}"})}

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        self.send(method, path, body)
        return self.receive()

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.call(method, path, body)
        assert answer.status in {200, 204}, answer
        return answer.json

    def send(self, method: str, path: str, body: Any = None) -> None:
        self._http.request(method, path, None if body is None else json.dumps(body), self._headers)

    def receive(self) -> Answer:
        with self._http.getresponse() as response:
            data = response.read()
            headers = {name.lower(): text for name, text in response.getheaders()}
            return Answer(response.status, headers, json.loads(data) if data else None)

    def close(self) -> None:
        self._http.close()


class Server:
    """Started when it is made; ``stop`` it."""

    def __init__(self, data: Path, *, pages: int | None = None, descriptors: int | None = None, **options: Any) -> None:
        settings = ServeOptions(data=data, **{"port": 0, "retry_seconds": 0, **options})
        self.process = ForkedProcess(options=settings.model_dump_json(), pages=pages, descriptors=descriptors)
        ready = _READY.fullmatch(self.process.stdout.readline().decode())
        self.port = int(ready[1]) if ready else 0

    def connect(self, **how: Any) -> Connection:
        assert self.port, self.end()
        return Connection(self.port, **how)

    def call(self, method: str, path: str, body: Any = None) -> Answer:
        with self.connect() as connection:
            return connection.call(method, path, body)

    def ok(self, method: str, path: str, body: Any = None) -> Any:
        with self.connect() as connection:
            return connection.ok(method, path, body)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Waits for the end. Returns the exit status, and the output on stderr."""
        _, errors = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode is not None
        return self.process.returncode, errors

    def stop(self) -> tuple[int, str]:
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        self.process.kill()
        self.end()


@contextmanager
def three_cells(folder: Path) -> Iterator[str]:
    """Serves a home cell and the cells ``fast`` and ``old``. Yields the URL of the server, and stops it at the end."""
    server = Server(folder / "data", cells={"fast": folder / "fast", "old": folder / "old"})
    yield f"http://127.0.0.1:{server.port}"
    server.stop()
    for pipe in (server.process.stdout, server.process.stderr):
        assert pipe is not None
        pipe.close()


def send(connection: Connection | Server, *bodies: str, subject: str = "orders") -> list[Any]:
    answer = connection.ok(
        "POST", f"/v1/subjects/{subject}/messages", {"messages": [{"body": body} for body in bodies]}
    )
    return list(answer["results"])


def pull(
    connection: Connection | Server, *, subject: str = "orders", group: str = "billing", **how: Any
) -> list[dict[str, Any]]:
    answer = connection.ok("POST", f"/v1/subjects/{subject}/groups/{group}/pull", {"consumer": "c1", **how})
    return list(answer["pulls"])


def bodies(pulls: list[dict[str, Any]]) -> list[str]:
    return [message["body"] for one in pulls for message in one["messages"]]
