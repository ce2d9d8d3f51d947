"""What a target is told, and what it answers.

A delivery is one JSON object, the same for functions and for HTTPS:

    {"delivery": …, "subject": …, "group": …, "queue": 0 or "retry", "messages": [{"id": …, "offset": …, "body": …, …}]}

The answer may name messages that failed, by their ids, as Lambda's event sources do: {"batchItemFailures":
[{"itemIdentifier": …}]}. Nothing, or an empty list: all of it is done. What names no message of the batch fails all.
"""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, Protocol

import msgspec

from hourwheel.errors import Rejected
from hourwheel.model import Message, PushTarget


@dataclass(frozen=True)
class Delivery:
    """A batch for a target. ``secrets`` sign it where it goes over HTTPS, the current one first."""

    subject: str
    group: str
    queue: int | Literal["retry"]
    messages: Sequence[Message]
    secrets: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The same for the same messages."""
        places = [(message.queue, message.offset, message.id) for message in self.messages]
        return blake2b(msgspec.msgpack.encode((self.subject, self.group, places)), digest_size=16).hexdigest()

    def encoded(self) -> bytes:
        return _encoder.encode(_Body(self.id, self.subject, self.group, self.queue, self.messages))

    def part(self, messages: Sequence[Message]) -> "Delivery":
        return Delivery(self.subject, self.group, self.queue, messages, self.secrets)


@dataclass(frozen=True)
class Outcome:
    """What became of a delivery: the messages at the indexes in ``failed`` are to be tried again, those in ``dead`` can
    never be taken, those in ``untouched`` were not sent, the others are done. ``error`` says why.

    ``unreached``: the target saw none of it, so that no attempt counts; or so it seems: with ``answered``, something
    that stands before the target said so. ``too_large``: the batch is to be split. ``retry_after_seconds``: how long
    the target wants to be left alone."""

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
    """The targets that a deployment can deliver to. Thread-safe."""

    def check(self, target: PushTarget) -> None:
        """Raises ``Rejected`` for a target to which this deployment may not, or cannot, deliver."""
        ...

    def deliver(self, target: PushTarget, delivery: Delivery) -> Outcome:
        """Delivers within about ``target.timeout_seconds``. What goes wrong there is told in the outcome, never
        raised."""
        ...

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        """Tells a target of the kind ``notify`` that there are messages for the group."""
        ...


@dataclass(frozen=True)
class NoTargets:
    """Where nothing is pushed."""

    def check(self, target: PushTarget) -> None:
        raise Rejected("field-invalid", "nothing is pushed here: leave push out, and pull", field="push")

    def deliver(self, target: PushTarget, delivery: Delivery) -> Outcome:
        return unreached("nothing is pushed here")

    def announce(self, target: PushTarget, subject: str, group: str) -> Outcome:
        return unreached("nothing is pushed here")


def failure(delivery: Delivery, error: str) -> Outcome:
    """All of it failed: an attempt of each message."""
    return Outcome(failed=frozenset(range(len(delivery.messages))), error=error)


def unreached(error: str, retry_after_seconds: float = 0.0, *, answered: bool = False) -> Outcome:
    return Outcome(error=error, unreached=True, answered=answered, retry_after_seconds=retry_after_seconds)


def answered(delivery: Delivery, data: bytes) -> Outcome:
    """The outcome that a target's answer, perhaps empty, tells. Only a JSON object can name failures: "OK", a number or
    a page is as good as nothing, but what begins like an object must be one."""
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


def named(delivery: Delivery, ids: Iterable[str]) -> Outcome:
    """The messages of these ids failed."""
    wanted = set(ids)
    failed = frozenset(index for index, message in enumerate(delivery.messages) if message.id in wanted)
    if len({delivery.messages[index].id for index in failed}) < len(wanted):
        return failure(delivery, "the answer names messages that are not in the batch")
    return Outcome(failed=failed, error="the target said so" if failed else "")


class _Body(msgspec.Struct):
    delivery: str
    subject: str
    group: str
    queue: int | str
    messages: Sequence[Message]


class _Failed(msgspec.Struct):
    identifier: str = msgspec.field(name="itemIdentifier")


class _Answer(msgspec.Struct):
    failures: list[_Failed] | None = msgspec.field(name="batchItemFailures", default=None)


_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[_Answer] = msgspec.json.Decoder(_Answer)
