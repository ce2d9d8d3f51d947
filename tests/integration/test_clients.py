"""Clients that offer another protocol, and clients that try to be taken for somebody else."""

import json
import os
import select
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, bodies, pull
from tests.integration.test_http import answer_of

JAVA = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
SMUGGLED = "DELETE /v1/subjects/orders HTTP/1.1\r\nHost: localhost\r\n\r\n"
CURL = "User-Agent: curl/7.88.1\r\nAccept: */*\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
CURL += "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
"""The request of ``curl --http2``."""


def batch(*texts: str) -> str:
    return json.dumps({"messages": [{"body": text} for text in texts]})


def test_java_is_served_and_its_bodies_are_stored(server: Server) -> None:
    calls = [
        ("PUT", "/v1/subjects/orders/groups/billing", '{"max_attempts": 3}'),
        ("POST", "/v1/subjects/orders/messages", batch(SMUGGLED)),
        ("POST", "/v1/subjects/orders/messages", batch("second")),
        ("GET", "/v1/subjects/orders/groups/billing", ""),
    ]
    client = [str(JAVA), str(Path(__file__).with_name("Upgrading.java")), f"http://127.0.0.1:{server.port}"]
    done = subprocess.run([*client, *(word for call in calls for word in call)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    answers = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert [status for status, _ in answers] == ["200"] * 4
    assert json.loads(answers[3][1])["max_attempts"] == 3
    assert bodies(pull(server)) == [SMUGGLED, "second"]


@pytest.mark.parametrize("framing", ["content-length", "chunked"])
def test_curl_with_http2_is_served_and_its_body_is_no_request(server: Server, framing: str) -> None:
    body = batch("first")
    server.ok("POST", "/v1/subjects/orders/messages", json.loads(body))
    inner = SMUGGLED if framing == "content-length" else f"{len(SMUGGLED):x}\r\n{SMUGGLED}\r\n0\r\n\r\n"
    coding = f"Content-Length: {len(inner)}" if framing == "content-length" else "Transfer-Encoding: chunked"
    with server.raw() as raw:
        target = "POST /v1/subjects/orders/messages HTTP/1.1\r\nHost: 127.0.0.1"
        raw.sendall(f"{target}\r\n{CURL}{coding}\r\n\r\n{inner}".encode())
        health = "GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1"
        raw.sendall(f"{health}\r\n{CURL}\r\n{health}\r\nConnection: close\r\n\r\n".encode())
        answers = answer_of(raw).split("HTTP/1.1 ")[1:]
    assert [answer[:3] for answer in answers] == ["400", "200", "200"]
    assert "urn:hourwheel:json-invalid" in answers[0]
    assert bodies(pull(server)) == ["first"]


def test_a_token_in_a_trailer_opens_nothing(start: Start) -> None:
    server = start(tokens=["s3cret"])
    body = batch("x")
    raw = server.raw()
    head = "POST /v1/subjects/orders/messages HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    chunk = f"{len(body):x}\r\n{body}\r\n0\r\nAuthorization: Bearer s3cret\r\n\r\n"
    raw.sendall(f"{head}Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n{chunk}".encode())
    answer = answer_of(raw)
    assert answer.startswith("HTTP/1.1 401 ")
    assert "urn:hourwheel:token-missing" in answer


@pytest.mark.parametrize(
    ("request_line", "headers", "status"),
    [
        ("GET /v1/subjects HTTP/1.1", "", 400),
        ("GET /v1/subjects HTTP/1.1", "Host: localhost\r\nHost: localhost\r\n", 400),
        ("GET /v1/subjects HTTP/1.1", "Host: [::1].evil.com\r\n", 400),
        ("GET /v1/subjects HTTP/1.1", "Host: evil.com\r\n", 403),
        ("GET http://evil.com/v1/subjects HTTP/1.1", "Host: localhost\r\n", 403),
        ("GET http://localhost/v1/subjects HTTP/1.1", "Host: evil.com\r\n", 200),
        ("GET http://[::1]:7420/v1/subjects?limit=1 HTTP/1.1", "Host: localhost\r\n", 200),
        ("GET /v1/subjects HTTP/1.0", "Host: 127.0.0.1\r\n", 200),
    ],
)
def test_a_request_is_for_one_host(server: Server, request_line: str, headers: str, status: int) -> None:
    raw = server.raw()
    raw.sendall(f"{request_line}\r\n{headers}Connection: close\r\n\r\n".encode())
    assert answer_of(raw).startswith(f"HTTP/1.1 {status} ")


def test_the_scheme_of_a_token_may_be_written_in_any_case(start: Start) -> None:
    server = start(tokens=["s3cret"])
    raw = server.raw()
    raw.sendall(b"GET /v1/subjects HTTP/1.1\r\nHost: a\r\nConnection: close\r\nAuthorization: bEARER s3cret\r\n\r\n")
    assert answer_of(raw).startswith("HTTP/1.1 200 ")


def test_connections_beyond_the_cap_are_told_to_come_back_and_the_others_served(start: Start) -> None:
    server = start(max_connections=3)
    served = [server.connect() for _ in range(3)]
    for connection in served:
        connection.ok("GET", "/v1/subjects")
    server.ok("GET", "/v1/health")
    beyond = answer_of(server.raw())
    assert beyond.startswith("HTTP/1.1 503 ")
    assert "retry-after: 1\r\n" in beyond
    assert "urn:hourwheel:server-busy" in beyond
    served.pop().close()
    while server.call("GET", "/v1/subjects").status != 200:
        pass
    for connection in served:
        connection.ok("GET", "/v1/health")
        connection.close()


def test_more_connections_than_descriptors_are_told_so_too(start: Start) -> None:
    """None of them finds the server without a descriptor for its work."""
    server = start(descriptors=300)
    with ExitStack() as opened:
        kept = [opened.enter_context(server.connect()) for _ in range(75)]
        for one in kept:
            one.ok("GET", "/v1/subjects")  # else it would give way to a later one
        connections = [opened.enter_context(server.raw()) for _ in range(325)]
        ended: list[socket.socket] = []
        while len(ended) < 325:
            ended, _, _ = select.select(connections, [], [], SECONDS)
        told = [text for text in map(said, ended) if text]
        assert len(told) >= 50
        assert all(text.startswith("HTTP/1.1 503 ") for text in told)
        kept[0].ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "x"}]})
    assert server.stop() == (0, "")


def said(raw: socket.socket) -> str:
    """Returns the answer of the server; empty if it ended the connection without one."""
    try:
        return raw.recv(10_000).decode()
    except ConnectionError:
        return ""
