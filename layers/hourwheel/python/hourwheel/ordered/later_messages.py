"""Packs the parked messages of a key behind its first ones. One key may have a million of them. Reads and writes
nothing.

    block   msgpack array [row_no, in_row, row_no - the one before, in_row, ...]

Only messages that were never handed out are packed: their positions tell everything about them.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from hourwheel.pull_log.ordered_rows import Parked

BLOCK = 25
"""The messages of a block: some 100 bytes, where a ``Parked`` for each takes 80 bytes. A key has up to twice as many
messages unpacked."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[int])


def packed(messages: Sequence[Parked]) -> bytes:
    """Returns a block of these messages, which are in order."""
    numbers, last = list[int](), 0
    for message in messages:
        numbers += (message.row_no - last, message.in_row)
        last = message.row_no
    return _encoder.encode(numbers)


def unpacked(block: bytes) -> tuple[Parked, ...]:
    """Returns the messages of a block."""
    numbers = _decoder.decode(block)
    row_no, messages = 0, list[Parked]()
    for step, in_row in zip(numbers[::2], numbers[1::2], strict=True):
        row_no += step
        messages.append(Parked(row_no, in_row))
    return tuple(messages)


def _count(block: bytes) -> int:
    return len(_decoder.decode(block)) // 2


class LaterMessages(NamedTuple):
    """Messages in order: those of the ``blocks``, of which there are ``in_blocks``, then ``last``. Never empty, never
    changed: states share it."""

    blocks: tuple[bytes, ...]
    in_blocks: int
    last: tuple[Parked, ...]

    @classmethod
    def of(cls, blocks: Sequence[bytes]) -> "LaterMessages | None":
        """Returns the messages of these blocks; None without any."""
        return cls(tuple(blocks), sum(map(_count, blocks)), ()) if blocks else None

    @property
    def total(self) -> int:
        return self.in_blocks + len(self.last)

    @property
    def last_one(self) -> Parked:
        return self.last[-1] if self.last else unpacked(self.blocks[-1])[-1]

    def packed_blocks(self) -> tuple[bytes, ...]:
        """Returns blocks of all the messages."""
        return (*self.blocks, packed(self.last)) if self.last else self.blocks

    def added(self, message: Parked) -> "LaterMessages":
        """Returns these messages and one behind them."""
        if len(self.last) < BLOCK:
            return LaterMessages(self.blocks, self.in_blocks, (*self.last, message))
        return LaterMessages((*self.blocks, packed(self.last)), self.in_blocks + len(self.last), (message,))

    def divided(self) -> "tuple[tuple[Parked, ...], LaterMessages | None]":
        """Returns the first messages, as many as a block has, and those behind."""
        if not self.blocks:
            return self.last, None
        first = unpacked(self.blocks[0])
        left = LaterMessages(self.blocks[1:], self.in_blocks - len(first), self.last)
        return first, left if left.total else None

    def first(self, most: int) -> tuple[Parked, ...]:
        """Returns the first messages, at most this many."""
        return tuple(islice(self._messages(), most))

    def from_row(self, row_no: int) -> tuple[int, int | None]:
        """Returns the number of the messages that lie in this row or behind it, and the row of the first of them."""
        below, first = 0, None
        for messages in self._parts():
            left = [message.row_no for message in messages if message.row_no >= row_no]
            below += len(messages) - len(left)
            if left:
                first = left[0]
                break
        return self.total - below, first

    def _messages(self) -> Iterator[Parked]:
        for messages in self._parts():
            yield from messages

    def _parts(self) -> Iterator[tuple[Parked, ...]]:
        yield from map(unpacked, self.blocks)
        if self.last:
            yield self.last
