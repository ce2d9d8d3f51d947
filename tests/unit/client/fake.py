"""Provides a loopback HTTP server that serves the API of docs/api/ from a broker in memory, with the faults that a
test sets."""

import contextlib
import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from tests.unit.client.broker import Broker
from tests.unit.client.broker_records import Json, Refusal

TOKEN = "sesame"
_LONG_SECONDS = 120.0  # only a broken test waits this long


class Request(NamedTuple):
    call: str
    method: str
    target: str
    body: Json
    data: bytes
    headers: dict[str, str]


@dataclass
class Fault:
    """The fault of the next ``times`` requests of a call.

    ``before`` runs first (it may wait for the test). Then: ``cut`` closes the connection without doing anything,
    ``lose`` does it and closes instead of answering, ``status`` answers so without doing anything.
    """

    call: str
    times: int = 1
    cut: bool = False
    lose: bool = False
    status: int | None = None
    raw: bytes | None = None
    retry_after: str | None = None
    date: str | None = None
    encoding: str | None = None
    kind: str | None = None
    before: Callable[[], object] | None = None


class FakeServer:
    def __init__(self, *, token: str | None = None) -> None:
        self.broker = Broker()
        self.token = token
        self.requests: list[Request] = []
        self.connections = 0
        self.takes_msgpack = True
        self.refused = 0
        """The number of requests that a proxy before the server refused, because they are in msgpack."""
        self._faults: list[Fault] = []
        self._sockets: set[socket.socket] = set()
        self._http = _Server(("127.0.0.1", 0), _Handler, self)
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    @contextlib.contextmanager
    def running(self) -> Iterator["FakeServer"]:
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            thread.join()
            self.close_connections()
            self._http.server_close()

    def fail(self, call: str, **how: Any) -> None:
        with self.broker.changed:
            self._faults.append(Fault(call, **how))

    def wait_until(self, true: Callable[[Broker], object]) -> None:
        with self.broker.changed:
            assert self.broker.changed.wait_for(lambda: true(self.broker), _LONG_SECONDS), "it did not happen"

    def bodies(self, subject: str) -> list[str]:
        with self.broker.changed:
            return self.broker.subject(subject).bodies

    def calls(self, call: str) -> list[Request]:
        with self.broker.changed:
            return [request for request in self.requests if request.call == call]

    def close_connections(self) -> None:
        with self.broker.changed:
            for connection in self._sockets:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def take_fault(self, call: str) -> Fault | None:
        for fault in self._faults:
            if fault.call == call:
                fault.times -= 1
                if fault.times == 0:
                    self._faults.remove(fault)
                return fault
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], fake: FakeServer) -> None:
        super().__init__(address, handler)
        self.fake = fake

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that has gone is part of the tests
            super().handle_error(request, client_address)


_SUBJECT = r"/v1/subjects/([^/]+)"
_GROUP = _SUBJECT + r"/groups/([^/]+)"
_ROUTES: list[tuple[str, str, str]] = [
    ("POST", _SUBJECT + "/messages", "produce"),
    ("POST", "/v1/messages", "produce_many"),
    ("POST", _GROUP + "/pull", "pull"),
    ("POST", _GROUP + "/ack", "settle"),
    ("PUT", _SUBJECT, "put_subject"),
    ("GET", _SUBJECT, "show_subject"),
    ("GET", "/v1/subjects", "list_subjects"),
    ("DELETE", _SUBJECT, "delete_subject"),
    ("POST", _SUBJECT + "/pause", "pause_subject"),
    ("POST", _SUBJECT + "/resume", "resume_subject"),
    ("POST", _GROUP + "/pause", "pause_group"),
    ("POST", _GROUP + "/resume", "resume_group"),
    ("PUT", _GROUP, "put_group"),
    ("GET", _GROUP, "show_group"),
    ("GET", _SUBJECT + "/groups", "list_groups"),
    ("DELETE", _GROUP, "delete_group"),
    ("POST", _GROUP + "/seek", "seek"),
    ("GET", _GROUP + "/lag", "lag"),
    ("GET", _GROUP + "/push", "show_push"),
    ("GET", _GROUP + "/dead", "list_dead"),
    ("GET", _GROUP + "/dead/([^/]+)", "show_dead"),
    ("POST", _GROUP + "/dead/redrive", "redrive"),
    ("DELETE", _GROUP + "/dead", "drop"),
    ("GET", "/v1/scheduled/([^/]+)", "show_scheduled"),
    ("DELETE", "/v1/scheduled/([^/]+)", "cancel"),
    ("PATCH", "/v1/scheduled/([^/]+)", "reschedule"),
    ("GET", _SUBJECT + "/scheduled", "pending"),
    ("GET", "/v1/delayed", "list_delayed"),
    ("GET", _SUBJECT + "/delayed", "list_subject_delayed"),
    ("GET", _SUBJECT + "/messages/([^/]+)", "trace"),
    ("GET", _SUBJECT + r"/queues/(\d+)/messages", "peek"),
    ("GET", _SUBJECT + "/dead", "list_orphans"),
    ("GET", _GROUP + "/consumers", "list_consumers"),
    ("POST", _GROUP + "/consumers/([^/]+)/leave", "leave"),
    ("GET", "/v1/health", "health"),
]
_WITH_BODY = {
    "produce",
    "produce_many",
    "pull",
    "settle",
    "put_subject",
    "put_group",
    "seek",
    "redrive",
    "drop",
    "reschedule",
}
_PAGED = {"list_subjects", "list_groups", "list_dead", "list_orphans"}


def unpacked(data: bytes) -> Json:
    """Returns a body in msgpack as it would be in JSON."""
    body: Json = json.loads(msgspec.json.encode(msgspec.msgpack.decode(data)))
    return body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        fake = self.server.fake
        with fake.broker.changed:
            fake.connections += 1
            fake._sockets.add(self.connection)

    def finish(self) -> None:
        with self.server.fake.broker.changed:
            self.server.fake._sockets.discard(self.connection)
            self.server.fake.broker.changed.notify_all()
        super().finish()

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        fake = self.server.fake
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        call, names = self._route(parts.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        packed = self.headers.get("Content-Type") == "application/msgpack"
        if packed and not fake.takes_msgpack:
            fake.refused += 1
            self._answer(415, b"<h1>Unsupported Media Type</h1>", Fault(call))
            return
        body = {} if not data else unpacked(data) if packed else json.loads(data)
        with fake.broker.changed:
            fake.requests.append(Request(call, self.command, self.path, body, data, dict(self.headers)))
            fault = fake.take_fault(call) or Fault(call)
            fake.broker.changed.notify_all()
        if fault.before is not None:
            fault.before()
        if fault.cut:
            self.close_connection = True
            return
        if fault.raw is not None:
            self._answer(fault.status or 200, fault.raw, fault)
            return
        try:
            if fault.status is not None:
                raise Refusal(fault.status, "unavailable" if fault.status == 503 else "internal", "as told")
            status, answer = self._call(call, names, query, body)
        except Refusal as refusal:
            status, answer = refusal.problem["status"], refusal.problem
        if fault.lose:
            self.close_connection = True
            return
        self._answer(status, b"" if answer is None else json.dumps(answer).encode(), fault)

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET  # noqa: N815 - the base class wants these names

    def _route(self, path: str) -> tuple[str, list[str]]:
        for method, pattern, call in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                return call, [unquote(name) for name in match.groups()]
        return "unknown", []

    def _call(self, call: str, names: list[str], query: dict[str, str], body: Json) -> tuple[int, Json | None]:
        broker = self.server.fake.broker
        if self.server.fake.token is not None:
            sent = self.headers.get("Authorization")
            if sent != f"Bearer {self.server.fake.token}":
                raise Refusal(401, "token-wrong" if sent else "token-missing", "the token is missing or wrong")
        if call == "unknown":
            raise Refusal(404, "route-unknown")
        given: list[Any] = [*names, body] if call in _WITH_BODY else list(names)
        if call in _PAGED:
            given += [int(query["limit"]), query.get("after", "")]
        if call in ("peek", "trace", "list_delayed", "list_subject_delayed"):
            given.append(query)
        if call == "pending":
            given.append(int(query["hours"]) if "hours" in query else None)
        with broker.changed:
            answer = getattr(broker, call)(*given)
        return (204, None) if answer is None else (200, answer)

    def _answer(self, status: int, data: bytes, fault: Fault) -> None:
        self.send_response_only(status)
        self.send_header("Date", fault.date or self.date_time_string())
        kind = "application/json" if status < 400 else "application/problem+json"
        self.send_header("Content-Type", fault.kind or kind)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        if fault.encoding is not None:
            self.send_header("Content-Encoding", fault.encoding)
        if fault.retry_after is not None:
            self.send_header("Retry-After", fault.retry_after)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)
