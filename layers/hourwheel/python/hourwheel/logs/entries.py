"""Encodes the entry that a row of a schedule log, or a marker in a dead log, has in its ``meta``.

    due times      [1, subject, generation, member, first_ms, after_ms, minute]   when each message is due, and where
                                                                                  it goes
    cancel marker  [2, row_no, index]          a message of the same log is not sent
    drop marker    [3, row_no, indexes]        dead letters of the same log were dropped

``member`` is ``{group}~{generation}`` if the messages go to the retry log of that group; without it they go to the
queues of the subject. Message ``k`` is due at ``first_ms + after_ms[k]``; all messages are due at ``first_ms`` if the
list is empty. With ``minute``, which rows of older versions lack, each of the messages may come up to a minute late.
A row with a cancel marker holds no messages.
"""

from collections.abc import Iterable, Sequence
from typing import Self, TypeAlias

import msgspec

from hourwheel.errors import UNDECODABLE, Corrupt


class DueTimes(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The due times and the destination of the messages of a schedule row."""

    subject: str
    generation: int
    member: str | None
    first_ms: int
    after_ms: tuple[int, ...] = ()
    minute: bool = False
    kept_until_ms: int = 0
    """When the last original of retried messages expires: the retention of its subject may be shorter by now."""

    @classmethod
    def of(
        cls,
        subject: str,
        generation: int,
        member: str | None,
        dues: Sequence[int],
        *,
        minute: bool = False,
        kept_until_ms: int = 0,
    ) -> Self:
        """Makes the entry of messages that are due at these times (Unix milliseconds)."""
        first = min(dues)
        after = tuple(due - first for due in dues)
        return cls(subject, generation, member, first, after if any(after) else (), minute, kept_until_ms)

    def due_ms(self, index: int) -> int:
        """Returns when the message at this index is due."""
        return self.first_ms + (self.after_ms[index] if self.after_ms else 0)

    def is_for(self, subject: tuple[str, int] | None) -> bool:
        """Returns whether the messages go to the queues of the subject (name and generation; None: of any)."""
        return self.member is None and subject in (None, (self.subject, self.generation))

    def only(self, indexes: Iterable[int]) -> Self:
        """Returns the entry for only the messages at these indexes."""
        if not self.after_ms:
            return self
        dues = [self.due_ms(index) for index in indexes]
        address = (self.subject, self.generation, self.member)
        return type(self).of(*address, dues, minute=self.minute, kept_until_ms=self.kept_until_ms)


class CancelMarker(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Cancels a message of the same schedule log."""

    row_no: int
    index: int


class DropMarker(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """Says to readers of the archive that these dead letters of a row of the same log were dropped."""

    row_no: int
    indexes: tuple[int, ...]


ScheduleEntry: TypeAlias = DueTimes | CancelMarker

_encoder = msgspec.msgpack.Encoder()
_drop_decoder = msgspec.msgpack.Decoder(DropMarker)
_decoder: msgspec.msgpack.Decoder[ScheduleEntry] = msgspec.msgpack.Decoder(ScheduleEntry)


def encode_entry(entry: ScheduleEntry | DropMarker) -> bytes:
    return _encoder.encode(entry)


def decode_entry(data: bytes) -> ScheduleEntry:
    try:
        return _decoder.decode(data)
    except UNDECODABLE as error:
        raise Corrupt(f"not an entry of a schedule row: {error}") from error


def readable_entry(data: bytes) -> ScheduleEntry | None:
    """Returns the entry of a row, for callers that only count messages. Returns None for a row without an entry, and
    for a damaged entry, which the wheel reports."""
    try:
        return decode_entry(data) if data else None
    except Corrupt:
        return None


def decode_drop_marker(data: bytes) -> DropMarker:
    try:
        return _drop_decoder.decode(data)
    except UNDECODABLE as error:
        raise Corrupt(f"not a marker of dropped dead letters: {error}") from error
