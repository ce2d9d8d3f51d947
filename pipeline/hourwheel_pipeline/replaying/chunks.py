"""Divides the messages of a replay into chunks, one for each request.

message id         {unique}-{chunk}-{index in the chunk}
idempotency key    {unique}-{chunk}-{try}
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from hourwheel.client import Message
from hourwheel.client.records.messages import on_the_wire
from hourwheel.model.fields import BATCH_BYTES
from hourwheel.wire.answer_size import nested_bytes
from hourwheel_pipeline.replaying.selection import Replayed, ReplayPosition

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class ReplayChunk:
    """A chunk to send. ``last``: the position of its last message."""

    number: int
    messages: Sequence[Message]
    last: ReplayPosition

    @property
    def digest(self) -> str:
        content = _encoder.encode([on_the_wire(message) for message in self.messages])
        return blake2b(content, digest_size=16).hexdigest()


@dataclass
class ReplayChunks:
    """Divides messages into chunks. ``header``: the name of a header for the old id of a message."""

    unique: str
    header: str | None
    rows: Iterator[Replayed]
    _ahead: Replayed | None = None

    def take(self, number: int, most: int) -> ReplayChunk | None:
        """Returns the next chunk under this number, with at most ``most`` messages; None after the last one."""
        messages: list[Message] = []
        size, last = 0, None
        while row := self._following():
            message = self._named(row, f"{self.unique}-{number}-{len(messages)}")
            # Measured as text in an event of Lambda, the longest form of the request: so it is within all limits.
            size += nested_bytes(_encoder.encode(on_the_wire(message)))
            if messages and (len(messages) == most or size > BATCH_BYTES):
                self._ahead = row
                break
            messages.append(message)
            last = row.position
        return None if last is None else ReplayChunk(number, messages, last)

    def _following(self) -> Replayed | None:
        ahead, self._ahead = self._ahead, None
        return ahead or next(self.rows, None)

    def _named(self, row: Replayed, name: str) -> Message:
        message = msgspec.structs.replace(row.message, id=name)
        if self.header is None:
            return message
        return msgspec.structs.replace(message, headers={**(message.headers or {}), self.header: row.id or ""})
