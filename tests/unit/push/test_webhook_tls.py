"""Deliveries over TLS: only to a receiver whose certificate is right, and in time."""

import ssl
from pathlib import Path
from time import monotonic

import pytest

from hourwheel.adapters.webhooks import Webhooks
from hourwheel.model.targets import Outcome, PushDelivery
from tests.support import HandClock
from tests.unit.push.deliveries import DELIVERY, DRIPS, HUGE, NAMED, failed_wholly, refuse_unread, target
from tests.unit.push.receivers import SECONDS, Authority, Receiver, receiving, reply


def deliver_to(host: str, receiver: Receiver, *, seconds: int = 60, delivery: PushDelivery = DELIVERY) -> Outcome:
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
