"""Rows of a pull log, and the checkpoint that outlives them.

    table      pull                                  meta
    partition  {group}~{gen}@{source log}            checkpoint
    sort       {row:016d}                            {group}~{gen}@{source log}
    value      PullRow, msgpack array                Checkpoint, msgpack array

Row ``p`` says that a consumer holds the messages from ``first`` up to the position ``end``;
row ``p + 1`` begins at that end. ``counts[k]`` messages are taken from source row ``first.row + k``,
0 from a filler, an expired row, or one that cannot be read. The messages of a pull are numbered 0, 1, … in that order.
``last`` recognises the settlement that was written last, when it comes again. ``moved`` says where messages of the pull
were handed over to: all that is not named there was acknowledged.
"""

from typing import NamedTuple, Self

import msgspec

from hourwheel.handover.handover import Transfer

OPEN, CLOSING, CLOSED = 0, 1, 2
"""Leased; all is settled but transfers are to be carried out; done."""

SETTLED, EXPIRED, SOUGHT, PASSED, UNREADABLE = 1, 2, 3, 4, 5
"""How a row was closed: by its consumer, by its lease's end; it is a seek; it passes over rows without messages;
none of its messages could be read."""

SETTLED_KEPT_MS = 3 * 86_400_000
"""Settled rows are kept this long: far longer than any writer pauses; the checkpoint passes them each minute."""


class Position(msgspec.Struct, array_like=True, frozen=True, order=True):
    """A message's place in its log: the index within a row's batch."""

    row: int
    index: int = 0


class Tail(NamedTuple):
    """Where the next claim goes: its row number, where it starts, the sequence there. ``rows`` and ``messages`` of the
    claim before tell how many rows the next one may want (0: unknown)."""

    row: int
    position: Position
    number: int
    rows: int = 0
    messages: int = 0


class Moved(msgspec.Struct, array_like=True, frozen=True):
    """A transfer that was carried out: the messages at ``picks`` of the source log stand in this row."""

    kind: str
    log: str
    row: int
    number: int
    at_ms: int
    picks: tuple[tuple[int, int], ...]


class PullRow(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    consumer: str
    first: Position
    counts: tuple[int, ...]
    end: Position
    end_number: int
    claim: bytes
    claimed_ms: int
    lease_until_ms: int
    state: int = OPEN
    outcome: int = 0
    closed_ms: int = 0
    last: bytes = b""
    settled: frozenset[int] = frozenset()
    transfers: tuple[Transfer, ...] = ()
    moved: tuple[Moved, ...] = ()

    @property
    def garbage_ms(self) -> int | None:
        return self.closed_ms + SETTLED_KEPT_MS if self.state == CLOSED else None

    def closed(self, outcome: int, now_ms: int) -> Self:
        return msgspec.structs.replace(self, state=CLOSED, outcome=outcome, closed_ms=now_ms)

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        state = CLOSED if self.state == CLOSING and not transfers else self.state
        left = {transfer.token for transfer in transfers}
        done = [one for one in self.transfers if one.token not in left]
        moved = tuple(Moved(one.kind, one.log, one.row, one.number, one.at_ms, one.picks) for one in done)
        return msgspec.structs.replace(self, transfers=transfers, state=state, moved=self.moved + moved)

    @property
    def size(self) -> int:
        return sum(self.counts)

    def unsettled(self) -> list[int]:
        return [index for index in range(self.size) if index not in self.settled]

    def places(self) -> list[Position]:
        """The position of each message of the pull, by its index."""
        found = []
        for step, count in enumerate(self.counts):
            offset = self.first.index if step == 0 else 0
            found += [Position(self.first.row + step, offset + index) for index in range(count)]
        return found


class Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    """The lowest pull row that is not settled, and where it starts."""

    row: int
    position: Position
    number: int
    saved_ms: int
