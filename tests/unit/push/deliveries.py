"""Deliveries over HTTPS to a receiver on this machine."""

import json
import socket
from collections.abc import Callable

from hourwheel.adapters.webhooks import Webhooks
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import Message
from hourwheel.targets import Delivery, Outcome
from tests.support import HandClock
from tests.unit.push.receivers import Receiver, reply

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


NAMED = json.dumps({"batchItemFailures": [{"itemIdentifier": "m-1"}]}).encode()
HUGE = DELIVERY.part(messages("x" * (8 << 20)))


def refuse_unread(sock: socket.socket) -> None:
    """Refuses a body by its Content-Length, as some servers do: the rest of the body meets a closed connection."""
    sock.recv(1_000)
    sock.sendall(reply("413 Content Too Large"))


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
