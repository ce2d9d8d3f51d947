"""The whole API over HTTP."""

import gzip
import json
import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, bodies, pull, send

GROUP = "/v1/subjects/orders/groups/billing"


def answer_of(raw: socket.socket) -> str:
    """Returns every byte that the server sends until it closes the connection."""
    with raw, raw.makefile("rb") as stream:
        return stream.read().decode()


def test_a_message_is_produced_pulled_and_settled_over_one_connection(server: Server) -> None:
    with server.connect() as connection:
        (accepted,) = send(connection, "é")
        (one,) = pull(connection)
        assert one["messages"][0]["body"] == "é"
        assert one["messages"][0]["id"] == accepted["id"]
        settle = {"settle": [{"receipt": one["receipt"]}]}
        assert connection.ok("POST", f"{GROUP}/ack", settle) == {"results": [{"status": "settled"}]}
        assert pull(connection) == []
        assert connection.ok("GET", f"{GROUP}/lag")["waiting"] == 0


def test_a_packed_batch_is_stored_and_a_bomb_is_refused(server: Server) -> None:
    def post(data: bytes) -> tuple[int, str]:
        http = HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
        try:
            http.request("POST", "/v1/subjects/orders/messages", data, {"content-encoding": "gzip"})
            response = http.getresponse()
            return response.status, response.read().decode()
        finally:
            http.close()

    status, _ = post(gzip.compress(json.dumps({"messages": [{"body": "é" * 1_000}]}).encode()))
    assert status == 200
    status, told = post(gzip.compress(b" " * 20_000_000))
    assert (status, json.loads(told)["type"]) == (413, "urn:hourwheel:request-too-large")
    with server.connect() as connection:
        assert bodies(pull(connection)) == ["é" * 1_000]


def test_a_query_of_thousands_of_parameters_is_refused(server: Server) -> None:
    with server.connect() as connection:
        answer = connection.call("GET", f"/v1/subjects?{'a&' * 7_000}")
        assert answer.status == 400
        assert "at most 32 query parameters" in answer.json["detail"]
        assert connection.ok("GET", "/v1/subjects?limit=5&after=a")["subjects"] == []


def test_an_unknown_parameter_is_refused_before_anything_is_done(server: Server) -> None:
    with server.connect() as connection:
        connection.ok("PUT", GROUP)
        for name in ("delay=5s", "delay=5s&x=1"):  # the server answers a query with one parameter on a path of its own
            sent = connection.call("POST", f"/v1/subjects/orders/messages?{name}", {"messages": [{"body": "a"}]})
            assert (sent.status, sent.json["field"]) == (400, "delay")
        assert connection.call("POST", f"{GROUP}/pull?wait=1", {"consumer": "c1"}).json["field"] == "wait"
        assert connection.call("POST", f"{GROUP}/ack?x", {"settle": [{"receipt": "r"}]}).json["field"] == "x"
        assert connection.call("DELETE", "/v1/subjects/orders?dry_run=true").json["field"] == "dry_run"
        assert connection.ok("GET", f"{GROUP}/lag")["waiting"] == 0
        for probe in ("/v1/health", "/v1/ready"):
            assert connection.call("GET", f"{probe}?at=1").status == 200


def test_a_message_is_retried_buried_and_redriven(server: Server) -> None:
    with server.connect() as connection:
        connection.ok("PUT", GROUP, {"max_attempts": 2})
        send(connection, "a", "b")
        (one,) = pull(connection)
        connection.ok("POST", f"{GROUP}/ack", {"settle": [{"receipt": one["receipt"], "retry": [0], "dead": [1]}]})
        (again,) = pull(connection)
        assert (again["queue"], bodies([again]), again["messages"][0]["attempt"]) == ("retry", ["a"], 2)
        connection.ok("POST", f"{GROUP}/ack", {"settle": [{"receipt": again["receipt"], "retry": [0]}]})
        dead = connection.ok("GET", f"{GROUP}/dead")["messages"]
        assert [(one["body"], one["reason"]) for one in dead] == [("b", "rejected"), ("a", "attempts")]
        assert connection.ok("GET", f"{GROUP}/lag")["dead"] == 2
        assert connection.ok("POST", f"{GROUP}/dead/redrive", {"ids": [dead[0]["dead_id"]]}) == {"redriven": 1}
        assert connection.ok("DELETE", f"{GROUP}/dead", {"all": True}) == {"dropped": 1}
        assert bodies(pull(connection)) == ["b"]


def test_a_group_is_moved_and_a_subject_deleted(server: Server) -> None:
    with server.connect() as connection:
        send(connection, "a", "b")
        pull(connection)
        connection.ok("POST", f"{GROUP}/seek", {"to": "start"})
        assert bodies(pull(connection)) == ["a", "b"]
        assert connection.call("DELETE", "/v1/subjects/orders").status == 204
        assert connection.call("GET", "/v1/subjects/orders").json["type"] == "urn:hourwheel:subject-unknown"
        assert connection.ok("GET", "/v1/subjects?limit=5") == {"subjects": [], "next": None}


def test_large_batches_are_stored_as_objects(server: Server, tmp_path: Path) -> None:
    noise = ["".join(chr(0x100 + (n * i * i) % 5_003) for i in range(200)) for n in range(1_000)]
    with server.connect() as connection:
        send(connection, *noise)
        assert bodies(pull(connection, max_messages=1_000)) == noise
    assert [path for path in (tmp_path / "data" / "batches").rglob("*") if path.is_file()]


def test_a_lease_that_ends_while_a_consumer_waits_wakes_it(server: Server) -> None:
    with server.connect() as connection:
        send(connection, "a")
        for attempt in (1, 1, 2):  # the first end of a lease counts no attempt
            (one,) = pull(connection, lease_seconds=1, wait_seconds=20)
            assert (bodies([one]), one["messages"][0]["attempt"]) == (["a"], attempt)


def test_unknown_paths_and_methods_are_problem_documents(server: Server) -> None:
    with server.connect() as connection:
        nowhere = connection.call("GET", "/v2")
        assert (nowhere.status, nowhere.json["type"]) == (404, "urn:hourwheel:route-unknown")
        other = connection.call("PATCH", "/v1/subjects/orders", {})
        assert (other.status, other.json["type"]) == (405, "urn:hourwheel:method-not-allowed")
        assert other.headers["allow"] == "DELETE, GET, PUT"
        assert other.headers["content-type"] == "application/problem+json"
        assert connection.ok("GET", "/v1/health")["status"] == "ok"


def test_a_slash_in_a_name_is_refused_and_not_taken_for_a_path(server: Server) -> None:
    answer = server.call("PUT", "/v1/subjects/a%2Fgroups%2Fb")
    assert (answer.status, answer.json["type"]) == (400, "urn:hourwheel:name-invalid")


def test_what_is_not_http_is_a_problem_document(server: Server) -> None:
    raw = server.raw()
    raw.sendall(b"HELLO\r\n\r\n")
    assert "urn:hourwheel:http-invalid" in answer_of(raw)
    assert server.ok("GET", "/v1/health")["status"] == "ok"


def test_headers_that_are_too_large_are_refused(server: Server) -> None:
    raw = server.raw()
    raw.sendall(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 65_536 + b"\r\n\r\n")
    answer = answer_of(raw)
    assert answer.startswith("HTTP/1.1 431 ")
    assert "urn:hourwheel:headers-too-large" in answer
    assert server.ok("GET", "/v1/health")["status"] == "ok"


@pytest.mark.parametrize("expect", ["", "expect: 100-continue\r\n"], ids=["at once", "asked before"])
def test_a_request_that_says_it_is_too_large_is_not_waited_for(server: Server, expect: str) -> None:
    with server.raw() as raw:
        head = f"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n{expect}content-length: 6000001\r\n\r\n"
        raw.sendall(head.encode())
        assert b"413" in raw.recv(1_000)


def test_a_request_that_is_too_large_without_saying_so_is_refused(server: Server) -> None:
    raw = server.raw()
    raw.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(62):
        raw.sendall(b"186a0\r\n" + b" " * 100_000 + b"\r\n")
    raw.sendall(b"0\r\n\r\nGET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    first, second = answer_of(raw).split("HTTP/1.1 ")[1:]
    assert first.startswith("413")
    assert "urn:hourwheel:request-too-large" in first
    assert second.startswith("200"), "the connection is still in step"


def test_a_body_that_does_not_arrive_is_given_up(start: Start) -> None:
    raw = start(body_seconds=0.2).raw()
    raw.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{")
    assert "urn:hourwheel:request-timeout" in answer_of(raw)


def test_a_body_that_is_not_text_is_refused(server: Server) -> None:
    raw = server.raw()
    head = "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 2\r\n\r\n"
    raw.sendall(head.encode() + b"\xff\xfe")
    assert "urn:hourwheel:json-invalid" in answer_of(raw)


def test_a_server_with_a_token_serves_those_who_have_it(start: Start) -> None:
    server = start(tokens=["s3cret"])
    assert server.ok("GET", "/v1/health")["status"] == "ok"
    missing = server.call("GET", "/v1/subjects")
    assert (missing.status, missing.json["type"]) == (401, "urn:hourwheel:token-missing")
    assert missing.headers["www-authenticate"] == "Bearer"
    with server.connect(token="guess") as connection:
        wrong = connection.call("GET", "/v1/subjects")
        assert (wrong.status, wrong.json["type"]) == (401, "urn:hourwheel:token-wrong")
    with server.connect(token="s3cret") as connection:
        assert connection.ok("GET", "/v1/subjects")["subjects"] == []


def test_an_idempotency_key_holds_across_a_restart(start: Start) -> None:
    batch = {"messages": [{"body": "once"}], "idempotency_key": "k-1"}
    first = start()
    answer = first.ok("POST", "/v1/subjects/orders/messages", batch)
    assert first.stop() == (0, "")
    second = start()
    assert second.ok("POST", "/v1/subjects/orders/messages", batch) == answer
    assert bodies(pull(second)) == ["once"]


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Host: queue.example", 403),
        ("Host: 127.0.0.1\r\nOrigin: http://queue.example", 403),
        ("Host: 127.0.0.1\r\nOrigin: null", 403),
        ("Host: localhost:7420\r\nOrigin: http://localhost:7420", 404),
        ("Host: [::1]:7420", 404),
        ("Host: 127.0.0.1", 404),
    ],
)
def test_web_pages_cannot_reach_a_server_without_a_token(server: Server, header: str, status: int) -> None:
    raw = server.raw()
    raw.sendall(f"GET /v1/subjects/nothing HTTP/1.1\r\n{header}\r\nConnection: close\r\n\r\n".encode())
    assert answer_of(raw).startswith(f"HTTP/1.1 {status} ")
