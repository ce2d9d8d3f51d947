"""Decodes answers in msgpack, which say once for many messages what JSON says for each."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from hourwheel.client.records.messages import Message, Pull, Pulled, Received, SendResult
from hourwheel.model.pulls import Settled, WakeupQueue

_SHORT_ARRAY = 0x90  # the first byte of msgpack arrays of up to 15 values, of which the lower 4 bits are the count
_ARRAY_16 = 0xDC  # the count follows in 2 bytes, in any longer array in 4
_EARLIEST = datetime.min.replace(tzinfo=UTC)


UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError)
"""The errors that decoding the messages of a block raises."""


class QueueSlice(Struct, array_like=True, gc=False):
    """The messages of a batch that one queue took: their indexes in the batch (None: all), and the offset of the first
    one in the queue."""

    queue: int
    offset: int
    indexes: list[int] | None

    def results(self, prefix: str, messages: Sequence[Message]) -> dict[int, SendResult]:
        """Returns the results by the index of the message. Raises ``LookupError`` if the batch has no such message."""
        queue, offset = self.queue, self.offset
        return {
            index: SendResult(messages[index].id or f"{prefix}-{index}", queue, offset + step)
            for step, index in enumerate(range(len(messages)) if self.indexes is None else self.indexes)
        }


class CompactProduceResult(Struct, gc=False):
    """The answer to a batch. Either ``results`` has the result of each message, or ``parts`` has a slice of the batch
    for each queue."""

    results: list[SendResult] = []
    prefix: str = ""
    parts: list[QueueSlice] = []

    def send_results(self, messages: Sequence[Message]) -> list[SendResult]:
        """Returns the result of each message. Raises ``LookupError`` if the answer does not fit the batch."""
        if not self.parts:
            return self.results
        by_index: dict[int, SendResult] = {}
        for part in self.parts:
            by_index |= part.results(self.prefix, messages)
        return [by_index[index] for index in range(len(messages))]


class _Stored(Struct, gc=False):
    """A message of a block. A field that it leaves out follows from the block."""

    text: str | None = msgspec.field(name="body", default=None)
    data: bytes | None = msgspec.field(name="body_base64", default=None)
    id: str | None = None
    produced_at: datetime | None = None
    due_at: datetime | None = None
    key: str | None = None
    tags: list[str] = []
    headers: dict[str, str] = {}
    queue: int | None = None
    offset: int | None = None
    attempt: int | None = None
    detail: str | None = None


_decoder = msgspec.msgpack.Decoder(list[_Stored])


class MessageBlock(Struct, gc=False):
    """Encoded messages of one row. A message has the ``offset`` of the block plus its entry in ``indexes``; without
    ``indexes``, plus its position among the ``messages``."""

    messages: msgspec.Raw
    queue: int = 0
    offset: int = 0
    attempt: int = 0
    produced_at: datetime = _EARLIEST
    prefix: str = ""
    index: int = 0
    indexes: list[int] | None = None

    @property
    def count(self) -> int:
        """The number of messages, read from the head of the msgpack array without decoding them."""
        head = bytes(memoryview(self.messages)[:5])
        if head[0] & 0xF0 == _SHORT_ARRAY:
            return head[0] & 0x0F
        return int.from_bytes(head[1:3] if head[0] == _ARRAY_16 else head[1:5], "big")

    def received(self) -> list[Received]:
        """Returns the decoded messages. Raises one of ``UNDECODABLE``."""
        queue, offset, index, prefix, attempt, produced_at = (
            self.queue,
            self.offset,
            self.index,
            self.prefix,
            self.attempt,
            self.produced_at,
        )
        return [
            Received(
                id=stored.id if stored.id is not None else f"{prefix}-{index + step}",
                produced_at=stored.produced_at or produced_at,
                due_at=stored.due_at,
                text=stored.text,
                data=stored.data,
                key=stored.key,
                tags=stored.tags,
                headers=stored.headers,
                queue=queue if stored.queue is None else stored.queue,
                offset=offset + step if stored.offset is None else stored.offset,
                attempt=attempt if stored.attempt is None else stored.attempt,
                detail=stored.detail,
            )
            for step, stored in self._numbered()
        ]

    def _numbered(self) -> Iterable[tuple[int, _Stored]]:
        messages = _decoder.decode(self.messages)
        if self.indexes is None:
            return enumerate(messages)
        if len(self.indexes) != len(messages):
            raise msgspec.ValidationError(f"{len(messages)} messages have {len(self.indexes)} indexes")
        return zip(self.indexes, messages, strict=True)


class CompactPull(Struct):
    """A ``Pull`` whose messages are in blocks."""

    receipt: str
    queue: int | str
    lease_until: datetime
    blocks: list[MessageBlock]
    ordered: bool = False
    suspect: bool = False

    @property
    def count(self) -> int:
        return sum(block.count for block in self.blocks)

    def received(self) -> list[Received]:
        """Returns the decoded messages. Raises one of ``UNDECODABLE``."""
        return [message for block in self.blocks for message in block.received()]

    def pull(self) -> Pull:
        """Returns the pull with decoded messages. Raises one of ``UNDECODABLE``."""
        return Pull(
            receipt=self.receipt,
            queue=self.queue,
            lease_until=self.lease_until,
            messages=self.received(),
            ordered=self.ordered,
            suspect=self.suspect,
        )


class CompactPulls(Struct):
    """A ``Pulled`` whose messages are in blocks."""

    pulls: list[CompactPull]
    settled: list[Settled] = []
    limited_by: str | None = None
    next_pull_seconds: float = 0
    wakeup: WakeupQueue | None = None
    suspects_wait: bool = False

    def pulled(self) -> Pulled:
        """Returns the answer with decoded messages. Raises one of ``UNDECODABLE``."""
        return Pulled(
            pulls=[pull.pull() for pull in self.pulls],
            settled=self.settled,
            limited_by=self.limited_by,
            next_pull_seconds=self.next_pull_seconds,
            wakeup=self.wakeup,
            suspects_wait=self.suspects_wait,
        )
