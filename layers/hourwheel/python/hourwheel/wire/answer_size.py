"""Computes how many bytes messages take in an answer, so that no pull claims a message that no answer can hold.

Lambda counts an answer as JSON. The body of the response, itself JSON, is a string in it. So a quote or a backslash of
a message takes four bytes, a control character up to seven, and any other character as many as in UTF-8.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.model.messages import Message, NewMessage
from hourwheel.model.pages import DeadPage

M = TypeVar("M", bound=NewMessage)

LAMBDA_BYTES = 6_291_556
"""The largest answer of a Lambda function. The largest request has 100 bytes less."""

PULL_BYTES = 6_000_000
"""The limit for the messages of one answer. The rest of the answer holds the receipts (65 pulls with 1,000 messages
together: 95 KB), the answers to 1,000 settlements (72 KB) and the names of the fields."""

ADDED_BYTES = 450
"""More than the size of the fields that delivery adds to a stored message: its id, its position, its attempt, its
times."""

_WORST = 7
"""A byte of msgpack takes at most this many bytes in an answer. A control character takes all of them, and the byte
that begins each string, list or map stands for two quotes and a comma."""

_FRAMED_BYTES = 900
"""The largest size of a message without its texts. It counts quotes, commas and names of its fields, of 10 tags and of
32 headers (msgpack needs a byte or two for each), and the fields that delivery adds."""

_QUOTED = b'"\\'
_NO_CONTROL = bytes(range(0x20, 0x100))

_COARSE_BYTES = PULL_BYTES // 2
"""Two rows of this size fit into a pull: the rest of a row that the pull before began, and the next row."""

_COARSE_MESSAGE_BYTES = PULL_BYTES // BATCH_MESSAGES  # a thousand messages of this size fit into a pull
TEXT_BYTES = PULL_BYTES // _WORST
"""A body of at most this many characters always fits as text."""

_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()


class AnswerSize(NamedTuple):
    """An upper bound of the size of a batch in an answer. If ``total`` is more than ``PULL_BYTES``, ``cuts`` are
    indexes at which the batch is divided into parts that take at most ``PULL_BYTES`` each."""

    total: int
    cuts: tuple[int, ...] = ()


def nested_bytes(data: bytes) -> int:
    """Returns the length of JSON as a string within JSON, without the quotes around it. No encoder needs less."""
    return len(data) + data.count(b'"') + data.count(b"\\")


def nested_size(value: object) -> int:
    """Returns the size of a value as JSON, and that JSON as a string within JSON."""
    return nested_bytes(_encoder.encode(value))


def message_size(message: NewMessage) -> int:
    """Returns the size of the message in an answer, in the form that ``answerable`` gives it."""
    return nested_size(answerable(message)) + ADDED_BYTES


def worst_size(message: NewMessage) -> int:
    """Returns an upper bound of the size of the message in an answer, whatever characters it contains."""
    return _WORST * len(_packer.encode(message)) + ADDED_BYTES


def batch_size(messages: Sequence[NewMessage], raw: bytes) -> AnswerSize:
    """Returns the size in an answer of a batch whose msgpack is ``raw``. Encodes the batch as JSON only if cheaper
    bounds would end a pull too early: a thousand small messages fit whatever they contain."""
    worst = _WORST * len(raw) + ADDED_BYTES * len(messages)
    if worst <= min(_COARSE_BYTES, _COARSE_MESSAGE_BYTES * len(messages)):
        return AnswerSize(worst)
    # A body of bytes is answered as base64: counting its quotes and control characters would say nothing.
    if all(message.body_base64 is None for message in messages):
        quoted = len(raw) - len(raw.translate(None, _QUOTED))
        control = len(raw.translate(None, _NO_CONTROL))
        # ``raw`` has one byte already of the four that a quote takes, and of the seven of a control character.
        bound = len(raw) + 3 * quoted + 6 * control + _FRAMED_BYTES * len(messages)
        if bound <= PULL_BYTES:
            return AnswerSize(bound)
    total = nested_bytes(_encoder.encode(messages)) + ADDED_BYTES * len(messages)
    if total <= PULL_BYTES:
        return AnswerSize(total)
    sizes = [message_size(message) for message in messages]
    return AnswerSize(sum(sizes), tuple(_cuts(sizes)))


def answerable(message: M) -> M:
    """Returns the message, with its text as base64 if no answer could hold it as text."""
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


def first_page(messages: Iterable[Message], limit: int) -> DeadPage:
    """Returns a page of the first of these messages: at most ``limit``, and no more than fit into an answer. Each
    message needs its ``dead_id``: where more messages follow, ``next`` is that of the last one of the page."""
    page: list[Message] = []
    size = 0
    for message in messages:
        size += message_size(message)
        # A page has at least one message, which always fits as ``answerable``: readers of pages come to the end.
        if len(page) == limit or (page and size > PULL_BYTES):
            return DeadPage(page, page[-1].dead_id)
        page.append(answerable(message))
    return DeadPage(page, None)
