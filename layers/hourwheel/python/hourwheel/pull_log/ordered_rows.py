"""Defines the records of ordered groups: the rows of their pull logs, and the snapshot of the parked messages.

    table      pull                                  meta
    partition  {group}~{gen}@{source log}            parked
    sort       {row:016d}                            {group}~{gen}@{source log}
    value      OrderedRow, msgpack array             Snapshot, msgpack array (see ``snapshots.py``)

A row covers the messages from ``first`` up to ``end``, ``counts[k]`` of source row ``first.row_no + k``. ``order`` says
which of them the pull takes. The row *parks* the others, because an earlier message of their key is in flight or
parked. A later row takes parked messages. So the rows in their order tell which messages are parked, and no message is
told twice. A message that failed is parked again, at its place, by the row in which it failed (``Order.failed``).

The digest of a key tells keys apart. Messages without a key have a digest each.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import ClassVar, NamedTuple, cast

import msgspec

from hourwheel.logs.index_sets import IndexSet
from hourwheel.model.messages import Message
from hourwheel.pull_log.parsed_settlements import ParsedSettlement
from hourwheel.pull_log.records import OPEN, Position, PullRow

DIGEST_BYTES = 6
"""Two of 10,000 parked keys share a digest once in five million times. They are served as if they were one key then."""

STOPPED_MS = 2**53
"""The due time of a message whose key has stopped: nobody tries it again before an operator decides."""


def digest_of(key: str | None, row_no: int, index: int) -> bytes:
    """Returns the key digest of a message at this position of its log."""
    return _hashed(f"{row_no}/{index}", b"no key") if key is None else _digest(key)


def digests_of(messages: Iterable[Message], row_no: int) -> list[bytes]:
    """Returns the key digests of the messages of a row."""
    keys = [message.key for message in messages]
    # Mostly every key was seen before, and nothing but this look-up is done for a message.
    digests = [*map(_digests.get, keys)]
    if None not in digests:
        return cast("list[bytes]", digests)
    return [digest_of(key, row_no, index) for index, key in enumerate(keys)]


_DIGESTS = 1 << 16  # some 10 MB with keys of usual length
_digests: dict[str | None, bytes] = {}  # no ``lru_cache``, which takes twice as long as a dictionary


def _digest(key: str) -> bytes:
    digest = _digests.get(key)
    if digest is None:
        if len(_digests) >= _DIGESTS:
            _digests.clear()
        digest = _digests[key] = _hashed(key, b"")
    return digest


def _hashed(text: str, person: bytes) -> bytes:
    return blake2b(text.encode(), digest_size=DIGEST_BYTES, person=person).digest()


class Parked(msgspec.Struct, array_like=True, frozen=True, order=True, gc=False):
    """A message that waits for its turn, with its position (``in_row`` is the index within the row's batch). It has the
    attempt that comes next, and the time (Unix milliseconds) before which it is not tried again (0: it was not handed
    out yet). The lease of a ``suspect`` ended: a pull takes it alone. Sorts by position. Not seen by the garbage
    collector, which would go through all parked messages."""

    NAMED_BY: ClassVar[int] = 2  # its message

    row_no: int
    in_row: int
    attempt: int = 1
    due_ms: int = 0
    suspect: bool = False

    @property
    def position(self) -> Position:
        return Position(self.row_no, self.in_row)

    @property
    def failed(self) -> bool:
        """Whether the message has failed or stopped its key; False for one that was only released."""
        return self.attempt > 1 or self.due_ms == STOPPED_MS

    def at(self, row_no: int, in_row: int) -> bool:
        return self.row_no == row_no and self.in_row == in_row


class LastFailure(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Why the message at this position stopped its key: its consumer ``rejected`` it, or its attempts are used up.
    ``detail`` is what the consumer said of the failure."""

    row_no: int
    in_row: int
    rejected: bool
    detail: str | None = None

    @property
    def stored_bytes(self) -> int:
        """The most bytes that this takes in a snapshot, with its digest."""
        return 30 + len((self.detail or "").encode())


class OrderedMessages(NamedTuple):
    """What a row says about its messages: the parked ones that the pull takes and those that the row parks, each with
    its digest; and the digests of all messages that the pull takes."""

    parked: Sequence[tuple[bytes, Parked]]
    parks: Sequence[tuple[bytes, Parked]]
    taken: frozenset[bytes]


class Order(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The ordered part of a pull row.

    The pull hands out first the messages of ``parked`` ([row_no, index, attempt]), then those that the row covers and
    ``taken`` names by a bit each. ``digests`` holds the key digest of each message of ``parked``, then of each that is
    covered. ``dropped`` ([digest, row_no, index]) were parked and have expired or cannot be read. ``failed`` ([index of
    the pull, attempt, due_ms]) lists the messages of the pull that failed. ``stops`` ([index of the pull, whether its
    consumer rejected it, detail]) says why those among them have failed that stopped their keys. ``suspects`` are those
    that are parked as suspects (indexes of the pull). ``suspect``: the pull takes a suspect, and nothing else.
    """

    digests: bytes = b""
    taken: bytes = b""
    parked: tuple[tuple[int, int, int], ...] = ()
    dropped: tuple[tuple[bytes, int, int], ...] = ()
    failed: tuple[tuple[int, int, int], ...] = ()
    stops: tuple[tuple[int, bool, str | None], ...] = ()
    suspects: tuple[int, ...] = ()
    suspect: bool = False

    def digest(self, number: int) -> bytes:
        return self.digests[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


def bits(taken: Sequence[int], covered: int) -> bytes:
    """Returns ``Order.taken`` where a pull takes these numbers of the messages that its row covers."""
    packed = bytearray((covered + 7) // 8)
    for number in taken:
        packed[number >> 3] |= 1 << (number & 7)
    return bytes(packed)


class OrderedRow(PullRow, array_like=True, frozen=True, kw_only=True):
    """A row of an ordered group's pull log. A seek has no ``order``."""

    order: Order | None = None

    @property
    def size(self) -> int:
        return 0 if self.order is None else len(self.order.parked) + int.from_bytes(self.order.taken).bit_count()

    def positions(self) -> list[Position]:
        return [parked.position for _, parked in self.messages()]

    def messages(self) -> Sequence[tuple[bytes, Parked]]:
        """Returns the messages of the pull by their index, each with its digest."""
        return self._messages()[0]

    def divided(self) -> OrderedMessages:
        """Returns what the row says about its messages."""
        taken, parks = self._messages()
        parked = len(self.order.parked) if self.order is not None else 0
        return OrderedMessages(taken[:parked], parks, frozenset([digest for digest, _ in taken]))

    def _messages(self) -> tuple[list[tuple[bytes, Parked]], list[tuple[bytes, Parked]]]:
        """Returns the messages of the pull by their index, and those that the row parks, each with its digest."""
        order = self.order
        if order is None:
            return [], []
        digests = order.digests
        taken = [(order.digest(number), Parked(*entry)) for number, entry in enumerate(order.parked)]
        parks: list[tuple[bytes, Parked]] = []
        number, start, first = 0, len(order.parked) * DIGEST_BYTES, self.first.index
        for row_no, count in enumerate(self.counts, self.first.row_no):
            for in_row in range(first, first + count):
                message = (digests[start : start + DIGEST_BYTES], Parked(row_no, in_row))
                (taken if order.taken[number >> 3] >> (number & 7) & 1 else parks).append(message)
                number, start = number + 1, start + DIGEST_BYTES
            first = 0
        return taken, parks

    def attempts(self) -> Mapping[tuple[int, int], int]:
        return {(message.row_no, message.in_row): message.attempt for _, message in self.messages()}

    def parked_again(self, index: int) -> bool:
        return self.failure_of(index) is not None

    def failure_of(self, index: int) -> tuple[int, int, int] | None:
        """Returns the entry of ``Order.failed`` for the message with this index of the pull; None if there is none."""
        failed = () if self.order is None else self.order.failed
        return next((failure for failure in failed if failure[0] == index), None)

    def was_settled_otherwise(self, parsed: ParsedSettlement) -> bool:
        """Returns whether a message became a dead letter that this settlement acknowledges, or is parked again that
        this settlement acknowledges or rejects. A parked one was released with an earlier message of its key, and not
        by a former carrying out of this settlement."""
        if super().was_settled_otherwise(parsed):
            return True
        if self.order is None or not self.order.failed:
            return False
        messages, first_failing = self.messages(), dict[bytes, int]()
        for index in sorted(parsed.retried | parsed.released | parsed.dead):
            first_failing.setdefault(messages[index][0], index)
        return any(
            index in parsed.named
            and not _parks(parsed, index, due_ms)
            and first_failing.get(messages[index][0], index) == index
            for index, _, due_ms in self.order.failed
        )

    def decided(self, index: int) -> bool:
        """Returns whether the message with this index of the pull is settled, or parked again."""
        return self.state != OPEN or index in self.settled


def _parks(parsed: ParsedSettlement, index: int, due_ms: int) -> bool:
    """Returns whether the settlement asks that this message is parked until this time."""
    return index in parsed.retried or index in parsed.released or (index in parsed.dead and due_ms == STOPPED_MS)


class SnapshotRow(msgspec.Struct, array_like=True, frozen=True):
    """An open row at a snapshot: ``done`` is the set of the indexes of messages that were settled or parked again.
    Messages from ``again_below`` on are not parked again when they fail, because a seek hands them out again."""

    NAMED_BY: ClassVar[int] = 1  # its row

    row_no: int
    done: IndexSet = ()
    again_below: Position | None = None


class ParkedKey(msgspec.Struct, array_like=True, frozen=True):
    """The parked messages of a key digest: the ``first`` ones, then those of the blocks (see ``later_messages.py``)."""

    NAMED_BY: ClassVar[int] = 1  # its key

    digest: bytes
    first: tuple[Parked, ...]
    blocks: tuple[bytes, ...] = ()


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """What the pull rows below ``row_no`` say: where the next claim goes, the parked messages, the open rows, and why
    messages stopped their keys, by digest. ``checksum`` is that of the parked messages. If they fill several ``pages``,
    ``parked`` is empty."""

    row_no: int
    position: Position
    seq: int
    parked: tuple[ParkedKey, ...]
    open: tuple[SnapshotRow, ...]
    saved_ms: int
    stops: tuple[tuple[bytes, LastFailure], ...] = ()
    checksum: bytes = b""
    pages: tuple[str, ...] = ()

    def tells(self, other: "Snapshot") -> bool:
        """Returns whether both snapshots say the same."""
        return (self.row_no, self.checksum, self.open) == (other.row_no, other.checksum, other.open)

    def with_pages(self, keys: Iterable[ParkedKey]) -> "Snapshot":
        """Returns the snapshot with the keys of its pages. A key may come in pieces, in order."""
        if not self.pages:
            return self
        whole: dict[bytes, ParkedKey] = {}
        for piece in keys:
            before = whole.get(piece.digest)
            if before is not None:
                piece = ParkedKey(piece.digest, before.first + piece.first, before.blocks + piece.blocks)
            whole[piece.digest] = piece
        return msgspec.structs.replace(self, parked=tuple(whole.values()), pages=())
