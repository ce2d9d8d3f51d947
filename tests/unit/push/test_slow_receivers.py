"""A delivery ends in time and reads a bounded answer, whatever the receiver does."""

import socket
from time import monotonic

import pytest

from hourwheel.adapters.webhooks import ANSWER_BYTES
from tests.unit.push.deliveries import DRIPS, HUGE, NAMED, deliver, failed_wholly, refuse_unread
from tests.unit.push.receivers import SECONDS, Receiver, receiving, reply


def test_an_answer_that_comes_before_the_body_was_sent_is_heard() -> None:
    with receiving(early=True) as receiver:
        receiver.answer = refuse_unread
        outcome = deliver(receiver, delivery=HUGE)
    assert outcome.too_large, outcome


@pytest.mark.parametrize("drip", DRIPS)
def test_a_slow_answer_ends_with_its_time(receiver: Receiver, drip: str) -> None:
    receiver.answer = DRIPS[drip](receiver)
    began = monotonic()
    outcome = deliver(receiver, seconds=1)
    took_seconds = monotonic() - began
    assert took_seconds < SECONDS, "the receiver had ended it"
    assert failed_wholly(outcome)
    if "interim responses" in outcome.error:  # newer versions of Python end such an answer sooner
        assert drip.startswith("interim answers")
    else:
        assert took_seconds > 0.9
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
