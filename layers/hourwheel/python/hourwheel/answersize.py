"""How many bytes messages take in an answer, so that none is claimed that cannot be told.

Lambda counts an answer as JSON, in which the body of the response, JSON itself, is a string: there a quote or a
backslash of a message takes four bytes, a control character up to seven, any other character those of its UTF-8.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import msgspec

from hourwheel.model import BATCH_MESSAGES, NewMessage

M = TypeVar("M", bound=NewMessage)

LAMBDA_BYTES = 6_291_556
"""What Lambda takes as an answer. Of a request it takes 100 bytes less."""

PULL_BYTES = 6_000_000
"""What the messages of one answer may take. The rest holds the receipts (65 pulls of 1,000 messages in all: 95 KB), the
answers to 1,000 settlements (72 KB) and the names around them."""

ADDED_BYTES = 400
"""More than the fields take that delivery adds to a stored message: where it is, its attempt, its times."""

_WORST = 7
"""A byte of msgpack takes no more in an answer: a control character does, and every string, list and map has a byte
that names it, for two quotes and a comma."""

_FRAMED_BYTES = 900
"""A message takes no more beside its texts: quotes, commas and names of its fields, 10 tags and 32 headers, which
msgpack tells in a byte or two each, and what delivery adds."""

_QUOTED = b'"\\'
_NO_CONTROL = bytes(range(0x20, 0x100))

_COARSE_BYTES = PULL_BYTES // 2
"""Two rows of so much fit into a pull: the rest of one that a pull before began, and the next."""

_COARSE_MESSAGE_BYTES = PULL_BYTES // BATCH_MESSAGES
TEXT_BYTES = PULL_BYTES // _WORST
"""A body with fewer characters always fits, as text."""

_encoder = msgspec.json.Encoder()


class AnswerSize(NamedTuple):
    """``total``: no batch takes more. Where that is more than ``PULL_BYTES``, messages between two neighbours of
    ``cuts`` (and before the first, and from the last on) take no more than that together."""

    total: int
    cuts: tuple[int, ...] = ()


def nested_bytes(data: bytes) -> int:
    """The length of JSON as a string within JSON, without its quotes. No encoder can do with less."""
    return len(data) + data.count(b'"') + data.count(b"\\")


def message_size(message: NewMessage) -> int:
    """What the message takes in an answer, in the form that ``tellable`` gives it."""
    return nested_bytes(_encoder.encode(tellable(message))) + ADDED_BYTES


def batch_size(messages: Sequence[NewMessage], raw: bytes) -> AnswerSize:
    """What a batch takes that is ``raw`` as msgpack. It is encoded as JSON only where bounds that cost less would end a
    pull too early: a thousand small messages fit whatever is in them."""
    worst = _WORST * len(raw) + ADDED_BYTES * len(messages)
    if worst <= min(_COARSE_BYTES, _COARSE_MESSAGE_BYTES * len(messages)):
        return AnswerSize(worst)
    # Of bytes, which are told as base64, it says nothing what they are.
    if all(message.body_base64 is None for message in messages):
        quoted = len(raw) - len(raw.translate(None, _QUOTED))
        control = len(raw.translate(None, _NO_CONTROL))
        bound = len(raw) + 3 * quoted + 6 * control + _FRAMED_BYTES * len(messages)
        if bound <= PULL_BYTES:
            return AnswerSize(bound)
    total = nested_bytes(_encoder.encode(messages)) + ADDED_BYTES * len(messages)
    if total <= PULL_BYTES:
        return AnswerSize(total)
    sizes = [message_size(message) for message in messages]
    return AnswerSize(sum(sizes), tuple(_cuts(sizes)))


def tellable(message: M) -> M:
    """The message, with its text as base64 where an answer could not hold it as text."""
    body = message.body
    if body is None or len(body) <= TEXT_BYTES or nested_bytes(_encoder.encode(message)) + ADDED_BYTES <= PULL_BYTES:
        return message
    return msgspec.structs.replace(message, body=None, body_base64=body.encode())


def _cuts(sizes: Sequence[int]) -> list[int]:
    cuts = []
    total = 0
    for index, size in enumerate(sizes):
        if total + size > PULL_BYTES and index:
            cuts.append(index)
            total = 0
        total += size
    return cuts
