"""Deliveries over HTTP bring a receiver the right request, and its answer decides about the messages."""

import gzip
import json
from typing import Any

import pytest

from hourwheel.client.webhooks import verify
from hourwheel.model.targets import DONE
from tests.support import HandClock
from tests.unit.push.deliveries import DELIVERY, NAMED, SECRETS, deliver, failed_wholly
from tests.unit.push.receivers import Receiver, receiving, reply


def test_a_delivery_is_a_signed_request(receiver: Receiver) -> None:
    assert deliver(receiver, "/hook?a=b") == DONE
    (request,) = receiver.requests
    assert request.line == "POST /hook?a=b HTTP/1.1"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert request.headers["content-type"] == "application/json"
    assert request.headers["connection"] == "close"
    assert json.loads(request.body)["messages"][1]["body"] == "b"
    assert request.headers["webhook-id"] == json.loads(request.body)["delivery"]
    for secret in SECRETS:
        verify(secret, request.headers, request.body, clock=HandClock())


def test_the_same_messages_have_the_same_id_and_others_another(receiver: Receiver) -> None:
    for delivery in (DELIVERY, DELIVERY, DELIVERY.part(DELIVERY.messages[:2])):
        deliver(receiver, delivery=delivery)
    first, again, other = [request.headers["webhook-id"] for request in receiver.requests]
    assert first == again != other


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (reply(), DONE),
        (reply("204 No Content"), DONE),
        (reply("202 Accepted", b"<html>thanks</html>", content_type="text/html"), DONE),
        (reply("100 Continue", b"", content_length="0") + reply("200 OK", NAMED), {1}),
        (reply("200 OK", NAMED), {1}),
        (reply("200 OK", NAMED, content_encoding="identity"), {1}),
        (b"HTTP/1.0 200 OK\r\n\r\n" + NAMED, {1}),
        (b"HTTP/1.0 200 OK\r\n\r\n", DONE),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + NAMED, {1}),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(NAMED), NAMED), {1}),
        (b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", DONE),
        (b"HTTP/1.1 200 OK\ncontent-length: 0\n\n", DONE),
        (b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n" + NAMED, {1}),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n" + NAMED, {1}),
    ],
)
def test_answers_that_are_taken(receiver: Receiver, answer: bytes, outcome: Any) -> None:
    receiver.answer = lambda sock: sock.sendall(answer)
    found = deliver(receiver)
    assert found == DONE if outcome is DONE else found.failed == outcome, found
    assert not found.unreached


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply("400 Bad Request", NAMED), "status 400"),
        (reply("401 Unauthorized"), "status 401"),
        (reply("404 Not Found", b"x" * 10_000), "status 404"),
        (reply("500 Internal Server Error"), "status 500"),
        (reply("502 Bad Gateway"), "status 502"),
        (reply("301 Moved Permanently", location="http://127.0.0.1/"), "redirects are not followed"),
        (reply("304 Not Modified"), "status 304"),
        (reply("103 Early Hints") + reply(), "status 103"),
        (reply("101 Switching Protocols"), "status 101"),
        (reply("200 OK", gzip.compress(NAMED, mtime=0), content_encoding="gzip"), "compressed"),
        (reply("200 OK", gzip.compress(b"OK", mtime=0), content_encoding="GZIP"), "compressed"),
        (b"", "ended early"),
        (b"HTTP/1.1 200 OK", "ended early"),
        (b"HTTP/1.1 200 OK\r\n", "ended early"),
        (b"HTTP/1.1 200 OK\r\ncontent-le", "ended early"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n", "ended early"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n", "ended early"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n" + NAMED, "ended early"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", "ended early"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", "ended early"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", ""),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
        (b"HTTP/2.0 200 OK\r\n\r\n", "HTTP/2.0"),
        (b"HTTP/1.1 -1 OK\r\n\r\n", ""),
        (b"HTTP/1.1 0x200 OK\r\n\r\n", ""),
        (b"\x00\xff\xfe" * 100 + b"\r\n", ""),
        (b"x" * 70_000, ""),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000, "header line"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n", "headers"),
    ],
)
def test_answers_that_fail_the_batch(receiver: Receiver, answer: bytes, error: str) -> None:
    receiver.answer = lambda sock: sock.sendall(answer)
    outcome = deliver(receiver)
    assert failed_wholly(outcome), outcome
    assert error in outcome.error


def test_a_redirect_is_never_followed(receiver: Receiver) -> None:
    with receiving() as other:
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"):
            receiver.answer = lambda sock, status=status: sock.sendall(
                reply(status, location=f"http://127.0.0.1:{other.port}/inside")
            )
            assert failed_wholly(deliver(receiver))
        assert other.connections == 0


@pytest.mark.parametrize("status", ["429 Too Many Requests", "503 Service Unavailable"])
@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0),
        ("7", 7),
        ("0.5", 0.5),
        (" 7 ", 7),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0),
        ("soon", 0),
        ("", 0),
        ("-5", 0),
        ("nan", 0),
        ("-inf", 0),
        ("inf", 86_400),
        ("1e400", 86_400),
        ("9" * 5_000, 86_400),
        ("0x10", 0),
    ],
)
def test_a_target_that_is_busy_uses_up_no_attempt(
    receiver: Receiver, status: str, text: str | None, seconds: float
) -> None:
    headers = {} if text is None else {"retry_after": text}
    receiver.answer = lambda sock: sock.sendall(reply(status, NAMED, **headers))
    outcome = deliver(receiver)
    assert (outcome.unreached, outcome.failed, outcome.retry_after_seconds) == (True, frozenset(), seconds)


def test_what_is_too_large_is_split(receiver: Receiver) -> None:
    receiver.answer = lambda sock: sock.sendall(reply("413 Content Too Large"))
    assert deliver(receiver).too_large
