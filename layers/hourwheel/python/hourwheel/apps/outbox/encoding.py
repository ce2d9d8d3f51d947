"""Encodes a message for its row: msgpack of a ``NewMessage``, the form in which the server reads messages."""

import msgspec

from hourwheel.client.records.messages import Message
from hourwheel.model.messages import NewMessage

encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(NewMessage)


def decode(encoded: bytes) -> Message | None:
    """Returns the message, or None where its bytes are damaged."""
    try:
        stored = _decoder.decode(encoded)
    except (msgspec.MsgspecError, ValueError):
        return None
    body = stored.body if stored.body is not None else stored.body_base64
    if body is None:
        return None
    return Message(
        body,
        stored.key,
        stored.tags,
        stored.headers,
        stored.id,
        deliver_at=stored.deliver_at,
        queue=stored.queue,
        precision=stored.precision,
    )
