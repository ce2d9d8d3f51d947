"""Keeps rows whose messages ordered groups choose by their keys. The messages stay encoded, as answers contain them.

With objects instead of encoded messages ordered groups got 154 k messages a second, with encoded ones 169 k. Decoding
the keys alone would leave a row that cannot be decoded to the answer, behind the claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from hourwheel.handover.copies import with_position
from hourwheel.logs.codec import decode_one
from hourwheel.logs.large_batches import messages_and_raw_of, with_ids
from hourwheel.logs.rows import Row
from hourwheel.model.messages import Message
from hourwheel.model.pulls import MessageBlock
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.message_blocks import block_of, picked_block
from hourwheel.pull_log.ordered_rows import Parked, digests_of
from hourwheel.registry.removed_names import RemovedNames
from hourwheel.wire.answer_size import TEXT_BYTES, answerable

# The bytes bound the memory of the kept rows where batches are large.
_CACHED_ROWS = 256
_CACHED_BYTES = 32 << 20


class KeyedRow(NamedTuple):
    """A row of a queue or retry log, its messages as they are stored, and their digests."""

    row: Row
    raw: list[msgspec.Raw]
    digests: list[bytes]

    def message(self, index: int) -> Message:
        """Decodes a message, without the fields that the row states for it."""
        return decode_one(self.raw[index])

    def parked(self, row_no: int, indexes: Sequence[int]) -> list[tuple[bytes, Parked]]:
        """Returns the positions of these messages of row ``row_no``, each with its digest."""
        digests = self.digests
        return [(digests[index], Parked(row_no, index)) for index in indexes]


class KeyedMessages(NamedTuple):
    """The messages that a claim takes from a row, by their ascending indexes, for this attempt of each."""

    row: KeyedRow
    indexes: list[int]
    attempt: int

    def messages(self, queue: int | None) -> list[Message]:
        """Returns the messages with all their fields, as they are delivered in JSON."""
        row = self.row.row
        decoded = with_ids(row, [self.row.message(index) for index in self.indexes], self.indexes)
        messages = with_position(row, decoded, queue, self.indexes)
        for message in messages if self.attempt > 1 else ():
            message.attempt = self.attempt
        return messages if row.raw_bytes <= TEXT_BYTES else [answerable(message) for message in messages]

    def block(self, queue: int | None) -> MessageBlock:
        """Returns the messages as a block."""
        if queue is None and self.attempt > 1:
            # A copy in a retry log says its attempt itself, which would count instead of the block's.
            return block_of(self.messages(queue))
        block = picked_block(self.row.row, self.row.raw, self.indexes, queue)
        if self.attempt > 1:
            block.attempt = self.attempt
        return block


@dataclass
class KeyedRowCache:
    """The rows that were decoded last. Rows never change, so none is out of date."""

    _rows: dict[tuple[str, int], KeyedRow] = field(default_factory=dict)
    _bytes: int = 0

    def drop(self, deleted: RemovedNames) -> None:
        """Drops the rows of the logs of deleted subjects and groups."""
        for name in list(self._rows):
            row = self._rows.pop(name, None) if deleted.has_log(name[0]) else None
            self._bytes -= 0 if row is None else row.row.raw_bytes

    def cached(self, log: str, row_no: int) -> KeyedRow | None:
        return self._rows.get((log, row_no))

    def decoded(self, log: str, row_no: int, row: Row, blobs: Blobs) -> KeyedRow:
        """Decodes the row of this log, or returns it as it was decoded before. Raises ``Corrupt``."""
        name = (log, row_no)
        cached = self._rows.get(name)
        if cached is not None:
            return cached
        messages, raw = messages_and_raw_of(row, blobs)
        decoded = KeyedRow(row, raw, digests_of(messages, row_no))
        self._keep(name, decoded)
        return decoded

    def _keep(self, name: tuple[str, int], decoded: KeyedRow) -> None:
        self._rows[name] = decoded
        self._bytes += decoded.row.raw_bytes
        while len(self._rows) > _CACHED_ROWS or self._bytes > _CACHED_BYTES:
            oldest = next(iter(self._rows), None)
            removed_row = self._rows.pop(oldest, None) if oldest is not None else None
            if removed_row is None:
                self._bytes = 0
                return
            self._bytes -= removed_row.row.raw_bytes
