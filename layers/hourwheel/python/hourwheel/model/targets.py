"""Defines what a push target receives and what it may answer.

A delivery is one JSON object, the same for functions and for HTTPS:

    {"delivery": …, "subject": …, "group": …, "queue": 0 or "retry", "messages": [{"id": …, "offset": …, "body": …, …}]}

The answer may name failed messages by their ids, as the functions of Lambda's event sources do: {"batchItemFailures":
[{"itemIdentifier": …}]}. With no answer or an empty list every message counts as done. If an id is not in the batch,
every message counts as failed.
"""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, Protocol

import msgspec

from hourwheel.errors import Rejected
from hourwheel.model.groups import PushTarget
from hourwheel.model.messages import Message


@dataclass(frozen=True)
class PushDelivery:
    """A batch for a target. ``secrets`` sign a delivery over HTTPS; the first secret is the current one."""

    subject: str
    group: str
    queue: int | Literal["retry"]
    messages: Sequence[Message]
    secrets: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Names the delivery; another delivery of the same messages to the group has the same id."""
        # Without bodies and attempts: a repeated delivery must have an equal id.
        messages = [(message.queue, message.offset, message.id) for message in self.messages]
        return blake2b(msgspec.msgpack.encode((self.subject, self.group, messages)), digest_size=16).hexdigest()

    def encoded(self) -> bytes:
        return _encoder.encode(_DeliveryBody(self.id, self.subject, self.group, self.queue, self.messages))

    def part(self, messages: Sequence[Message]) -> "PushDelivery":
        """Returns a delivery of only these messages of the batch."""
        return PushDelivery(self.subject, self.group, self.queue, messages, self.secrets)


@dataclass(frozen=True)
class Outcome:
    """The result of a delivery, by the indexes of its messages. The pusher retries the messages in ``failed``; the
    target can never take those in ``dead``; those in ``untouched`` were not sent; all others are done. ``error`` gives
    the reason.

    ``unreached``: the target saw no message, so no attempt counts. ``answered``, together with ``unreached``: an answer
    said so, which may come from a gateway in front of the target and concern one message alone. ``too_large``: the
    pusher splits the batch. ``retry_after_seconds``: the target asks for a pause of this length."""

    failed: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()
    untouched: frozenset[int] = frozenset()
    error: str = ""
    unreached: bool = False
    answered: bool = False
    too_large: bool = False
    retry_after_seconds: float = 0.0


DONE = Outcome()


class Targets(Protocol):
    """Delivers to the push targets of a deployment. Thread-safe."""

    def check(self, target: PushTarget, subject: str) -> None:
        """Raises ``Rejected`` for a target to which this deployment may not, or cannot, deliver messages of the
        subject."""
        ...

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        """Delivers within about ``target.timeout_seconds``. Never raises: the outcome states every failure of the
        target."""
        ...

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        """Tells a target of the kind ``notify`` that there are messages for the group."""
        ...


@dataclass(frozen=True)
class NoTargets:
    """Refuses all targets: the deployment does not push."""

    def check(self, target: PushTarget, subject: str) -> None:
        raise Rejected(
            "field-invalid", "this server does not push: leave push out, and pull the messages", field="push"
        )

    def deliver(self, target: PushTarget, delivery: PushDelivery) -> Outcome:
        return unreached("nothing is pushed here")

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        return unreached("nothing is pushed here")


def failure(delivery: PushDelivery, error: str) -> Outcome:
    """Returns the outcome of a delivery that failed as a whole and counts as an attempt of each message."""
    return Outcome(failed=frozenset(range(len(delivery.messages))), error=error)


def unreached(error: str, retry_after_seconds: float = 0.0, *, answered: bool = False) -> Outcome:
    """Returns the outcome of a delivery of which the target saw nothing."""
    return Outcome(error=error, unreached=True, answered=answered, retry_after_seconds=retry_after_seconds)


def answered(delivery: PushDelivery, data: bytes) -> Outcome:
    """Returns the outcome that the answer of a target states. Only a JSON object can name failures: an empty answer,
    "OK", a number or a page means success. An answer that begins like an object must be one."""
    data = data.removeprefix(codecs.BOM_UTF8).lstrip()
    if not data.startswith(b"{"):
        return DONE
    try:
        answer = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return failure(delivery, f"the answer cannot be read: {error}")
    if not answer.failures:
        return DONE
    return named(delivery, [entry.identifier for entry in answer.failures])


def named(delivery: PushDelivery, ids: Iterable[str]) -> Outcome:
    """Returns the outcome of a delivery whose messages with these ids failed; every message failed if an id is not in
    the batch."""
    named_ids = set(ids)
    failed = frozenset(i for i, message in enumerate(delivery.messages) if message.id in named_ids)
    if len({delivery.messages[i].id for i in failed}) < len(named_ids):
        return failure(delivery, "the answer names messages that are not in the batch")
    return Outcome(failed=failed, error="the target said so" if failed else "")


class _DeliveryBody(msgspec.Struct):
    delivery: str
    subject: str
    group: str
    queue: int | str
    messages: Sequence[Message]


class _Failed(msgspec.Struct):
    identifier: str = msgspec.field(name="itemIdentifier")


class _BatchAnswer(msgspec.Struct):
    failures: list[_Failed] | None = msgspec.field(name="batchItemFailures", default=None)


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[_BatchAnswer] = msgspec.json.Decoder(_BatchAnswer)
