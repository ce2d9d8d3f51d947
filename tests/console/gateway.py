"""Imitates the gateway of AWS: asks for signatures, knows keys by their ids, and passes calls on to a server."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.integration.process import Server

_KEY = re.compile(r"AWS4-HMAC-SHA256 Credential=(\w+)/")

GOOD, EXPIRED, UNKNOWN, STRANGER = "AKIAGOOD", "AKIAEXPIRED", "AKIAUNKNOWN", "AKIASTRANGER"

_REFUSALS = {
    None: "Missing Authentication Token",
    UNKNOWN: "The security token included in the request is invalid.",
    STRANGER: "User: arn:aws:iam::111122223333:user/stranger is not authorized to perform: execute-api:Invoke",
}


class Gateway:
    """``url`` is where it listens; ``calls`` are the methods and targets that it has passed on,
    ``expired`` the keys whose session is over."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.calls: list[tuple[str, str]] = []
        self.url = ""
        self.expired = {EXPIRED}

    def answer(self, method: str, target: str, authorization: str, body: bytes) -> tuple[int, bytes]:
        match = _KEY.match(authorization)
        refusal = self._refusal(match and match[1])
        if refusal is not None:
            return 403, json.dumps({"message": refusal}).encode()
        self.calls.append((method, target))
        answered = self.server.call(method, target, json.loads(body) if body else None)
        return answered.status, b"" if answered.json is None else json.dumps(answered.json).encode()

    def _refusal(self, key: str | None) -> str | None:
        if key in self.expired:
            return "The security token included in the request is expired"
        return _REFUSALS.get(key)


@contextmanager
def gateway(server: Server) -> Iterator[Gateway]:
    """Starts a gateway in front of the server."""
    known = Gateway(server)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self) -> None:
            self.raw_requestline = self.rfile.readline(65_537)
            if not self.raw_requestline or not self.parse_request():
                self.close_connection = True
                return
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            status, data = known.answer(self.command, self.path, self.headers.get("authorization", ""), body)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        known.url = f"http://127.0.0.1:{listening.server_port}"
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield known
        finally:
            listening.shutdown()


def write_key(file: Path, key: str) -> None:
    """Writes credentials as a login does."""
    file.write_text(
        f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\naws_session_token = token\n"
    )
