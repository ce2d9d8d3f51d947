"""Counts the bytes of messages as the limits do."""

from collections.abc import Sequence

from hourwheel.client.records.messages import Message


def batch_bytes(batch: Sequence[Message], *, else_bytes: int) -> int:
    """Returns the size of the batch. Returns ``else_bytes`` if a field has a wrong type: the batch is sent, because the
    server's refusal names the field. Raises ``UnicodeEncodeError``."""
    try:
        return sum(map(message_bytes, batch))
    except (TypeError, AttributeError):
        return else_bytes


def message_bytes(message: Message) -> int:
    """Returns the size of a message as the limits count it. Raises ``UnicodeEncodeError`` for a text that UTF-8 cannot
    encode."""
    body = message.body
    size = _utf8(body) if isinstance(body, str) else len(body)
    if message.id is not None:
        _utf8(message.id)  # checked, not counted: in a shared request an id that fails would fail the other messages
    if message.key is not None:
        size += _utf8(message.key)
    if message.tags is not None:
        size += sum(map(_utf8, message.tags))
    if message.headers is not None:
        size += sum(_utf8(name) + _utf8(text) for name, text in message.headers.items())
    return size


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
