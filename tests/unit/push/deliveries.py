"""Makes deliveries over HTTPS to a receiver on this machine."""

import json
import socket
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from hourwheel.adapters.webhooks import Webhooks
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import Message
from hourwheel.model.targets import Outcome, PushDelivery
from tests.support import HandClock
from tests.unit.push.receivers import Receiver, reply

SECRETS = ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAECAwQFBgcICQoLDA0ODw==")


def messages(*bodies: str) -> tuple[Message, ...]:
    return tuple(
        Message(id=f"m-{index}", queue=0, offset=index, attempt=1, body=body) for index, body in enumerate(bodies)
    )


DELIVERY = PushDelivery("orders", "billing", 0, messages("a", "b", "c"), SECRETS)


def target(url: str, seconds: int = 60) -> PushTarget:
    return PushTarget(kind="https", address=url, timeout_seconds=seconds)


def deliver(
    receiver: Receiver, path: str = "/hook", *, seconds: int = 60, delivery: PushDelivery = DELIVERY
) -> Outcome:
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


Talk: TypeAlias = Callable[[socket.socket], object]


def dripping(bit: bytes, after: bytes = b"") -> Callable[[Receiver], Talk]:
    """Sends the beginning of an answer at once, and then one bit after the other without an end."""

    def talk(receiver: Receiver, sock: socket.socket) -> None:
        sock.sendall(after)
        receiver.drip(sock, bit)

    return lambda receiver: partial(talk, receiver)


_CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"

DRIPS: dict[str, Callable[[Receiver], Talk]] = {
    "nothing": lambda receiver: receiver.stay_silent,
    "a slow status line": dripping(b"H"),
    "slow headers": dripping(b"y", after=b"HTTP/1.1 200 OK\r\nx: "),
    "slow lines of headers": dripping(b"\r\n y", after=b"HTTP/1.1 200 OK\r\nx: "),
    "a slow body": dripping(b"x", after=b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n"),
    "a slow body without an end": dripping(b" ", after=b"HTTP/1.1 200 OK\r\n\r\n"),
    "slow chunks": dripping(b"1\r\n \r\n", after=_CHUNKED),
    "endless trailers": dripping(b"x: y\r\n", after=_CHUNKED + b"0\r\n"),
    "endless interim answers": dripping(_INTERIM),
    "interim answers as fast as they go": lambda receiver: lambda sock: receiver.pour(sock, _INTERIM * 100),
}
