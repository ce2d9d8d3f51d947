"""Deliveries over HTTP: whatever the receiver does, they end in time, and they go to no address that is not public."""

import gzip
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from hourwheel.adapters.webhooks import ANSWER_BYTES, Webhooks, public, resolved
from hourwheel.client.webhooks import verify
from hourwheel.errors import Rejected
from hourwheel.model import Message, PushTarget
from hourwheel.targets import DONE, Delivery, Outcome
from tests.support import HandClock
from tests.unit.push.receivers import SECONDS, Authority, Receiver, receiving, reply

SECRETS = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODw==")


def messages(*bodies: str) -> tuple[Message, ...]:
    return tuple(
        Message(id=f"m-{index}", queue=0, offset=index, attempt=1, body=body) for index, body in enumerate(bodies)
    )


DELIVERY = Delivery("orders", "billing", 0, messages("a", "b", "c"), SECRETS)


def target(url: str, seconds: int = 60) -> PushTarget:
    return PushTarget(kind="https", address=url, timeout_seconds=seconds)


def deliver(receiver: Receiver, path: str = "/hook", *, seconds: int = 60, delivery: Delivery = DELIVERY) -> Outcome:
    webhooks = Webhooks(HandClock(), loopback=True)
    return webhooks.deliver(target(f"http://127.0.0.1:{receiver.port}{path}", seconds), delivery)


def failed_wholly(outcome: Outcome) -> bool:
    return outcome.failed == {0, 1, 2} and not outcome.unreached and not outcome.dead and not outcome.too_large


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


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


NAMED = json.dumps({"batchItemFailures": [{"itemIdentifier": "m-1"}]}).encode()


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
            receiver.answer = lambda sock, status=status: sock.sendall(  # type: ignore[misc]
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


HUGE = DELIVERY.part(messages("x" * (8 << 20)))


def refuse_unread(sock: socket.socket) -> None:
    """As servers do that look at Content-Length: the rest of the body meets a closed connection."""
    sock.recv(1_000)
    sock.sendall(reply("413 Content Too Large"))


def test_an_answer_that_comes_before_the_body_was_sent_is_heard() -> None:
    with receiving(early=True) as receiver:
        receiver.answer = refuse_unread
        outcome = deliver(receiver, delivery=HUGE)
    assert outcome.too_large, outcome


DRIPS: dict[str, Callable[[Receiver], Callable[[socket.socket], object]]] = {
    "nothing": lambda receiver: receiver.stay_silent,
    "a slow status line": lambda receiver: lambda sock: receiver.drip(sock, b"H"),
    "slow headers": lambda receiver: (
        lambda sock: (
            sock.sendall(b"HTTP/1.1 200 OK\r\nx: "),
            receiver.drip(sock, b"y"),
        )
    ),
    "slow lines of headers": lambda receiver: (
        lambda sock: (
            sock.sendall(b"HTTP/1.1 200 OK\r\nx: "),
            receiver.drip(sock, b"\r\n y"),
        )
    ),
    "a slow body": lambda receiver: (
        lambda sock: (
            sock.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"),
            receiver.drip(sock, b"x"),
        )
    ),
    "a slow body without an end": lambda receiver: (
        lambda sock: (
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n"),
            receiver.drip(sock, b" "),
        )
    ),
    "slow chunks": lambda receiver: (
        lambda sock: (
            sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
            receiver.drip(sock, b"1\r\n \r\n"),
        )
    ),
    "endless trailers": lambda receiver: (
        lambda sock: (
            sock.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"),
            receiver.drip(sock, b"x: y\r\n"),
        )
    ),
    "endless interim answers": lambda receiver: lambda sock: receiver.drip(sock, b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim answers as fast as they go": lambda receiver: (
        lambda sock: receiver.pour(sock, b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
    ),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_a_slow_answer_ends_with_its_time(receiver: Receiver, drip: str) -> None:
    receiver.answer = DRIPS[drip](receiver)
    began = monotonic()
    outcome = deliver(receiver, seconds=1)
    assert 0.9 < monotonic() - began < SECONDS, "the receiver had ended it"
    assert failed_wholly(outcome)
    assert "timed out" in outcome.error


def test_a_receiver_that_does_not_read_is_left() -> None:
    with receiving(early=True) as receiver:
        receiver.answer = lambda sock: receiver.over.wait(SECONDS)
        began = monotonic()
        outcome = deliver(receiver, seconds=1, delivery=HUGE)
        assert 0.9 < monotonic() - began < SECONDS, "the receiver had ended it"
    assert (outcome.failed, outcome.unreached) == ({0}, False)


ENDLESS: dict[str, tuple[bytes, bytes]] = {
    "headers": (b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 1_000 + b"\r\n"),
    "one header": (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 65_536),
    "status line": (b"HTTP/1.1 200 ", b"y" * 65_536),
    "body": (b"HTTP/1.1 200 OK\r\n\r\n", b" " * 65_536),
    "body with a length": (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", b" " * 65_536),
    "chunks": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"400\r\n" + b" " * 1_024 + b"\r\n"),
    "length of a chunk": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"0" * 65_536),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_an_endless_answer_is_not_read_for_long(receiver: Receiver, what: str) -> None:
    start, piece = ENDLESS[what]
    receiver.answer = lambda sock: (sock.sendall(start), receiver.pour(sock, piece))
    began = monotonic()
    outcome = deliver(receiver, seconds=300)
    assert monotonic() - began < SECONDS, "the receiver had ended it"
    assert failed_wholly(outcome), outcome


@pytest.mark.parametrize("status", ["404 Not Found", "413 Content Too Large", "503 Service Unavailable"])
def test_what_follows_a_status_that_says_no_is_not_waited_for(receiver: Receiver, status: str) -> None:
    receiver.answer = lambda sock: (sock.sendall(f"HTTP/1.1 {status}\r\n\r\n".encode()), receiver.drip(sock, b" "))
    began = monotonic()
    outcome = deliver(receiver, seconds=300)
    assert monotonic() - began < SECONDS, "the receiver had ended it"
    assert status[:3] in outcome.error


def test_what_a_receiver_says_is_fit_for_a_terminal(receiver: Receiver) -> None:
    receiver.answer = lambda sock: sock.sendall(b"\x1b[2J\x07\x9b\r\n")
    assert deliver(receiver).error.isprintable()


def test_the_largest_answer_is_read(receiver: Receiver) -> None:
    receiver.answer = lambda sock: sock.sendall(reply("200 OK", NAMED.ljust(ANSWER_BYTES)))
    assert deliver(receiver).failed == {1}
    receiver.answer = lambda sock: sock.sendall(reply("200 OK", NAMED.ljust(ANSWER_BYTES + 1)))
    assert failed_wholly(deliver(receiver))


def test_a_connection_that_is_reset_may_have_brought_the_messages(receiver: Receiver) -> None:
    reset = b"\x01\x00\x00\x00" * 2
    receiver.answer = lambda sock: sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    assert failed_wholly(deliver(receiver))


def test_nobody_listening_uses_up_no_attempt() -> None:
    with receiving() as receiver:
        pass
    outcome = deliver(receiver)
    assert (outcome.unreached, outcome.failed) == (True, frozenset())
    assert "refused" in outcome.error


# TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    return authority


def deliver_to(host: str, receiver: Receiver, *, seconds: int = 60, delivery: Delivery = DELIVERY) -> Outcome:
    webhooks = Webhooks(HandClock(), loopback=True, resolve=lambda *_: ["127.0.0.1"])
    return webhooks.deliver(target(f"https://{host}:{receiver.port}/hook", seconds), delivery)


@pytest.mark.parametrize("host", ["hooks.example.com", "127.0.0.1", "HOOKS.Example.Com"])
def test_a_delivery_over_tls(trusted: Authority, host: str) -> None:
    with receiving(context=trusted.context("hooks.example.com", "127.0.0.1")) as receiver:
        receiver.answer = lambda sock: sock.sendall(reply("200 OK", NAMED))
        assert deliver_to(host, receiver).failed == {1}
    assert receiver.requests[0].headers["host"] == f"{host.lower()}:{receiver.port}"


@pytest.mark.parametrize(
    ("hosts", "days", "error"),
    [
        (("other.example.com",), 30, "mismatch"),
        (("hooks.example.com",), -1, "expired"),
        (("127.0.0.1",), 30, "mismatch"),
        (("*.com",), 30, "mismatch"),
    ],
)
def test_a_certificate_that_is_wrong_gets_nothing(
    trusted: Authority, hosts: tuple[str, ...], days: int, error: str
) -> None:
    with receiving(context=trusted.context(*hosts, days=days)) as receiver:
        outcome = deliver_to("hooks.example.com", receiver)
    assert (outcome.unreached, receiver.requests) == (True, [])
    assert error in outcome.error


@pytest.mark.parametrize("host", ["other.example.com", "127.0.0.1", "example.com"])
def test_a_certificate_is_one_for_the_host_of_the_url(trusted: Authority, host: str) -> None:
    with receiving(context=trusted.context("hooks.example.com")) as receiver:
        outcome = deliver_to(host, receiver)
    assert (outcome.unreached, receiver.requests) == (True, [])
    assert "mismatch" in outcome.error


def test_a_certificate_of_somebody_else_gets_nothing(trusted: Authority, tmp_path: Path) -> None:
    with receiving(context=Authority(tmp_path, "others").context("hooks.example.com")) as receiver:
        outcome = deliver_to("hooks.example.com", receiver)
    assert (outcome.unreached, receiver.requests) == (True, [])
    assert "certificate verify failed" in outcome.error


@pytest.mark.parametrize("piece", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x28", b"\x16"])
def test_what_does_not_speak_tls_gets_nothing(trusted: Authority, piece: bytes) -> None:
    with receiving(early=True) as receiver:
        receiver.answer = lambda sock: (sock.recv(1), sock.sendall(piece))
        assert deliver_to("hooks.example.com", receiver).unreached


@pytest.mark.parametrize("slow", [False, True])
def test_a_handshake_that_hangs_ends_with_its_time(trusted: Authority, slow: bool) -> None:
    with receiving(early=True) as receiver:
        # The head of a record of 16 KB, whose bytes come one by one.
        receiver.answer = lambda sock: (
            (sock.sendall(b"\x16\x03\x03\x40\x00"), receiver.drip(sock, b"\x02"))
            if slow
            else receiver.stay_silent(sock)
        )
        began = monotonic()
        outcome = deliver_to("hooks.example.com", receiver, seconds=1)
        assert 0.9 < monotonic() - began < SECONDS, "the receiver had ended it"
    assert outcome.unreached


@pytest.mark.parametrize("drip", ["nothing", "slow headers", "a slow body", "endless trailers"])
def test_a_slow_answer_over_tls_ends_with_its_time(trusted: Authority, drip: str) -> None:
    with receiving(context=trusted.context("hooks.example.com")) as receiver:
        receiver.answer = DRIPS[drip](receiver)
        began = monotonic()
        outcome = deliver_to("hooks.example.com", receiver, seconds=1)
        assert 0.9 < monotonic() - began < SECONDS, "the receiver had ended it"
    assert failed_wholly(outcome)


def test_a_receiver_that_does_not_read_tls_is_left(trusted: Authority) -> None:
    with receiving(early=True, context=trusted.context("hooks.example.com")) as receiver:
        receiver.answer = lambda sock: receiver.over.wait(SECONDS)
        began = monotonic()
        outcome = deliver_to("hooks.example.com", receiver, seconds=1, delivery=HUGE)
        assert 0.9 < monotonic() - began < SECONDS, "the receiver had ended it"
    assert (outcome.failed, outcome.unreached) == ({0}, False)


def test_an_early_answer_over_tls_is_heard(trusted: Authority) -> None:
    with receiving(early=True, context=trusted.context("hooks.example.com")) as receiver:
        receiver.answer = refuse_unread
        outcome = deliver_to("hooks.example.com", receiver, delivery=HUGE)
    assert outcome.too_large, outcome


def test_old_versions_of_tls_are_refused(trusted: Authority) -> None:
    context = trusted.context("hooks.example.com")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with receiving(context=context) as receiver:
        assert deliver_to("hooks.example.com", receiver).unreached


# Addresses

FORBIDDEN_TEXT = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
    168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 169.254.169.123 172.16.0.1 172.31.255.255 192.0.0.1
    192.0.0.9 192.0.0.10 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255
    198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:169.254.169.254 ::169.254.169.254
    64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::1 64:ff9b:1::8.8.8.8 100::1 100:0:0:1::1
    2001::1 2001:0:a9fe:a9fe::1 2001:0:4136:e378:8000:63bf:5601:5601 2001:2::1 2001:10::1 2001:20::1 2001:1::1
    2001:db8::1 2002:7f00:1::1 2002:a9fe:a9fe::1 2002:808:808::1 3fff::1 4000::1 5f00::1 fc00::1 fd00::1 fd00:ec2::254
    fd20:ce::254 fe80::1 fe80::a9fe:a9fe fec0::1 ff02::1 ff0e::1 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
"""
FORBIDDEN = FORBIDDEN_TEXT.split()

ALLOWED_TEXT = """
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.1 52.94.236.248 99.255.255.255 100.63.255.255 100.128.0.1 126.0.0.1 128.0.0.1
    169.253.255.255 169.255.0.1 172.15.255.255 172.32.0.1 192.0.1.1 192.167.255.255 192.169.0.1 198.17.255.255
    198.20.0.1 223.255.255.255 ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:200::1 2001:4860:4860::8888 2600:1f18::1
    2606:4700:4700::1111 2a00:1450::1 3ffe:ffff::1
"""
ALLOWED = ALLOWED_TEXT.split()


def refusing(*addresses: str) -> Webhooks:
    return Webhooks(HandClock(), resolve=lambda *_: addresses)


@pytest.fixture
def unplugged(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Nothing connects; where to it would have."""
    wanted: list[Any] = []

    def connect(address: Any, *_: Any, **__: Any) -> Any:
        wanted.append(address)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", connect)
    return wanted


@pytest.mark.parametrize("address", FORBIDDEN)
def test_an_address_that_is_not_public(address: str, unplugged: list[Any]) -> None:
    assert not public(ip_address(address))
    url = f"https://[{address}]/" if ":" in address else f"https://{address}/"
    with pytest.raises(Rejected, match="not a public address"):
        Webhooks(HandClock()).check(target(url))
    outcome = refusing(address).deliver(target("https://hooks.example.com/"), DELIVERY)
    assert outcome.unreached
    assert "not a public address" in outcome.error
    assert unplugged == []


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_name_with_one_address_that_is_not_public(address: str, unplugged: list[Any]) -> None:
    for addresses in (("8.8.8.8", address), (address, "8.8.8.8", "2600:1f18::1")):
        assert refusing(*addresses).deliver(target("https://hooks.example.com/"), DELIVERY).unreached
    assert unplugged == []


@pytest.mark.parametrize("address", ALLOWED)
def test_an_address_that_is_public(address: str, unplugged: list[Any]) -> None:
    assert public(ip_address(address))
    Webhooks(HandClock()).check(target(f"https://[{address}]/" if ":" in address else f"https://{address}/"))
    assert refusing(address).deliver(target("https://hooks.example.com:8443/"), DELIVERY).unreached
    assert unplugged == [(str(ip_address(address)), 8443)]


LONG = "a" * 63

MALFORMED = {
    "no TLS": "http://example.com/",
    "another scheme": "ftp://example.com/",
    "a file": "file:///etc/passwd",
    "gopher": "gopher://127.0.0.1:6379/_x",
    "no scheme": "example.com/hook",
    "no host": "https:///hook",
    "only a port": "https://:443/",
    "nothing": "",
    "a user": "https://user@example.com/",
    "a user and a password": "https://user:word@example.com/",
    "an empty user": "https://@example.com/",
    "a host in disguise": "https://example.com@127.0.0.1/",
    "a backslash": "https://example.com\\@127.0.0.1/",
    "another backslash": "https://127.0.0.1\\.example.com/",
    "a fragment": "https://example.com/#top",
    "a space": "https://example.com/a b",
    "a space in front": " https://example.com/",
    "a new line": "https://example.com/\nHost: inside",
    "CRLF in the path": "https://example.com/a\r\nHost: inside\r\n\r\n",
    "CRLF in the host": "https://example.com\r\nx: y/",
    "CRLF, quoted, in the host": "https://example.com%0d%0ax/",
    "a tab": "https://exam\tple.com/",
    "a NUL": "https://example.com/\x00",
    "a DEL": "https://example.com/\x7f",
    "a Unicode host": "https://bücher.example/",
    "a Unicode dot": "https://127。0。0。1/",
    "Unicode digits": "https://①②⑦.⓪.⓪.①/",
    "a Unicode path": "https://example.com/ü",
    "a long URL": "https://example.com/" + "a" * 2_000,
    "a long label": f"https://{LONG}a.example.com/",
    "a long host": f"https://{'.'.join([LONG] * 4)}.example.com/",
    "a dot at the end": "https://example.com./",
    "a dot at the end of an address": "https://127.0.0.1./",
    "an empty label": "https://example..com/",
    "a leading dot": "https://.example.com/",
    "a quoted host": "https://%31%32%37.0.0.1/",
    "decimal": "https://2130706433/",
    "decimal metadata": "https://2852039166/",
    "hexadecimal": "https://0x7f000001/",
    "hexadecimal parts": "https://0xa9.0xfe.0xa9.0xfe/",
    "octal": "https://017700000001/",
    "octal parts": "https://0251.0376.0251.0376/",
    "leading zeros": "https://127.0.0.01/",
    "a short form": "https://127.1/",
    "another short form": "https://169.254.43518/",
    "too many parts": "https://127.0.0.0.1/",
    "a part out of range": "https://256.1.1.1/",
    "a zone": "https://[fe80::1%25eth0]/",
    "a zone on a public address": "https://[2600:1f18::1%25eth0]/",
    "a bare zone": "https://[2600:1f18::1%eth0]/",
    "no bracket at the end": "https://[::1/",
    "no bracket at the start": "https://::1]/",
    "no brackets": "https://2600:1f18::1/",
    "brackets around a name": "https://[example.com]/",
    "an address of the future": "https://[v1.abc]/",
    "port 0": "https://example.com:0/",
    "a port that is too large": "https://example.com:65536/",
    "a negative port": "https://example.com:-1/",
    "a port that is a name": "https://example.com:https/",
    "a port of another alphabet": "https://example.com:४४३/",
    "a semicolon": "https://example.com;.internal/",
    "a comma": "https://a.example,b.example/",
    "an asterisk": "https://*.example.com/",
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_url_that_can_never_do(what: str, unplugged: list[Any]) -> None:
    webhooks = refusing("8.8.8.8")
    with pytest.raises(Rejected, match=r"push\.url: ") as raised:
        webhooks.check(target(MALFORMED[what]))
    assert raised.value.field == "push.url"
    assert "\n" not in str(raised.value)
    outcome = webhooks.deliver(target(MALFORMED[what]), DELIVERY)
    assert outcome.unreached
    assert unplugged == []


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com",
        "https://EXAMPLE.com/Hook?a=b&c=%20d",
        "HTTPS://example.com:8443/",
        "https://xn--bcher-kva.example/",
        "https://a_b.example.com/",
        "https://8.8.8.8/",
        "https://[2600:1f18::1]:8443/hook",
        "https://3com.example/",
        "https://example.com/?",
        "https://example.com//double",
    ],
)
def test_a_url_that_will_do(url: str) -> None:
    Webhooks(HandClock()).check(target(url))


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.localdomain", "ip6-localhost"])
def test_names_of_this_machine(host: str, unplugged: list[Any]) -> None:
    webhooks = Webhooks(HandClock(), resolve=lambda *_: resolved("localhost", 443))
    outcome = webhooks.deliver(target(f"https://{host}/"), DELIVERY)
    assert outcome.unreached
    assert "not a public address" in outcome.error
    assert unplugged == []


def test_the_connection_goes_to_the_address_that_was_checked(trusted: Authority) -> None:
    """The name points elsewhere a moment later: it is not asked again."""
    answers = iter([["127.0.0.2"]])
    with receiving(host="127.0.0.2", context=trusted.context("hooks.example.com")) as receiver:
        webhooks = Webhooks(HandClock(), loopback=True, resolve=lambda *_: next(answers))
        outcome = webhooks.deliver(target(f"https://hooks.example.com:{receiver.port}/"), DELIVERY)
    assert outcome == DONE
    assert receiver.connections == 1


def test_each_delivery_looks_a_name_up_once(unplugged: list[Any]) -> None:
    asked: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return ["2600:1f18::1", "8.8.8.8", "8.8.4.4", "8.8.8.8", "1.1.1.1", "1.0.0.1"]

    Webhooks(HandClock(), resolve=resolve).deliver(target("https://hooks.example.com/"), DELIVERY)
    assert asked == [("hooks.example.com", 443)]
    assert unplugged == [("8.8.8.8", 443), ("8.8.4.4", 443), ("1.1.1.1", 443), ("1.0.0.1", 443)]


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would look the name up themselves."""
    with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert deliver(receiver) == DONE
    assert proxy.connections == 0


def test_a_name_without_an_address(unplugged: list[Any]) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    outcome = Webhooks(HandClock(), resolve=resolve).deliver(target("https://hooks.example.com/"), DELIVERY)
    assert outcome.unreached
    assert "Name or service not known" in outcome.error
    assert refusing().deliver(target("https://hooks.example.com/"), DELIVERY).unreached
    assert unplugged == []


@pytest.mark.parametrize("address", ["10.0.0.1", "169.254.169.254", "0.0.0.0", "8.8.8.8", "::", "fe80::1"])
def test_plain_http_goes_to_this_machine_alone(address: str, unplugged: list[Any]) -> None:
    webhooks = Webhooks(HandClock(), loopback=True, resolve=lambda *_: [address])
    assert webhooks.deliver(target("http://hooks.example.com/"), DELIVERY).unreached
    with pytest.raises(Rejected, match="this machine alone"):
        webhooks.check(target(f"http://[{address}]/" if ":" in address else f"http://{address}/"))
    assert unplugged == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/", "http://[::1]:8080/", "http://[::ffff:127.0.0.1]/"])
def test_loopback_where_it_is_allowed(url: str) -> None:
    Webhooks(HandClock(), loopback=True).check(target(url))
