"""Defines the rows of a pull log, and the checkpoint that outlives the rows.

    table      pull                                  meta
    partition  {group}~{gen}@{source log}            log/{group}~{gen}@{source log}
    sort       {row:016d}                            checkpoint
    value      PullRow, msgpack array                Checkpoint, msgpack array

Row ``p`` leases the messages from ``first`` up to the position ``end`` to a consumer; row ``p + 1`` begins at that end.
The pull takes ``counts[k]`` messages from source row ``first.row_no + k``: 0 from a filler, an expired row, or a row
that cannot be read. They follow one another from the range's start, or from the row's, unless ``picks[k]`` names them
as a set of indexes (``logs/index_sets.py``). ``picks`` is nil for a group without a filter, and empty where the filter
took all messages of the rows, or none. The messages of a pull are numbered 0, 1, … in that order. ``last`` is the
digest of the settlement that was written last, by which a repeated settlement is recognised. ``moved`` lists where
messages of the pull were handed over to; every settled message that is not listed there was acknowledged.

The last row of a log may *grow*: a pull that acknowledges all of it moves its ``end`` on instead of putting the next
row (``growth.py``). The messages below ``growth.base`` were acknowledged so. The claim, its times, and ``settled`` are
those of the messages from there on.

A row may claim messages *ahead* (``ahead.py``): the last ``growth.ahead`` source rows that it covers are kept for the
next pulls of its consumer. Each of them acknowledges all that the row has handed out, and takes the next ones.

Rows of an ordered group are ``OrderedRow``: the same array with one element more (``ordered_rows.py``). There
``counts`` says how many messages the row covers, and the element which of them the pull takes.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, Self

import msgspec

from hourwheel.handover.handover import Transfer
from hourwheel.logs.index_sets import IndexSet, unpack_indexes
from hourwheel.pull_log.parsed_settlements import ParsedSettlement

OPEN, CLOSING, CLOSED = 0, 1, 2
"""Leased; every message settled, and transfers still to be carried out; done."""

SETTLED, EXPIRED, SOUGHT, PASSED, UNREADABLE = 1, 2, 3, 4, 5
"""How a row was closed: by its consumer, by the end of its lease, or as a seek. A row is also closed if it passes over
rows without messages to hand out, or if none of its messages could be read."""

AHEAD_KEPT_MS = 3_000
"""Messages that were claimed ahead are kept for their consumer this long after its last pull. That is half as long
again as it takes for all of them (``AHEAD_MS``), so that a slow consumer holds up no message for long."""

SETTLED_KEPT_MS = 3 * 86_400_000
"""Settled rows are kept this long: far longer than any writer pauses, so that none puts a removed row again. The
checkpoint passes them each minute."""


class Position(msgspec.Struct, array_like=True, frozen=True, order=True):
    """The position of a message in its log: a row, and the index within the row's batch."""

    row_no: int
    index: int = 0


class Tail(NamedTuple):
    """Where the next claim goes: the number of its pull row, its start in the source log, and the sequence there.
    ``rows`` and ``messages`` are those of the claim before it, from which the next one guesses how many rows it needs
    (0: unknown)."""

    row_no: int
    position: Position
    seq: int
    rows: int = 0
    messages: int = 0


class Moved(msgspec.Struct, array_like=True, frozen=True):
    """A transfer that was carried out: the messages at ``picks`` of the source log were copied to this row of
    ``log``."""

    NAMED_BY: ClassVar[int] = 4  # its row

    kind: str
    log: str
    row_no: int
    first_seq: int
    at_ms: int
    picks: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, transfer: Transfer) -> Self:
        return cls(transfer.kind, transfer.log, transfer.row_no, transfer.first_seq, transfer.at_ms, transfer.picks)


class Growth(msgspec.Struct, array_like=True, frozen=True):
    """``streak``: how many pulls in a row, up to that of this row, have each acknowledged the whole row directly before
    their own. ``base``: the number of messages that the row had before it grew last. ``until_ms``: until when it may
    grow further; 0 if its end is final. ``base_seq``: the sequence of the first message behind these, if there is a
    ``base``. ``ahead``: the number of source rows at the end of the row whose messages were claimed ahead, and not
    handed out by this row. ``serial``: whether the consumer held no other open row of the log when it claimed this
    one. No row is opened again, so this holds for all rows before it from then on."""

    streak: int
    base: int = 0
    until_ms: int = 0
    base_seq: int = 0
    ahead: int = 0
    serial: bool = False


class PullRow(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    consumer: str
    first: Position
    counts: tuple[int, ...]
    end: Position
    end_seq: int
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
    picks: tuple[IndexSet | None, ...] | None = None
    growth: Growth | None = None

    @property
    def garbage_ms(self) -> int | None:
        return self.closed_ms + SETTLED_KEPT_MS if self.state == CLOSED else None

    @property
    def base(self) -> int:
        """The number of messages that were acknowledged before the claim that the row has now."""
        return 0 if self.growth is None else self.growth.base

    @property
    def is_final(self) -> bool:
        """Whether the end of the row stays where it is. No row is put behind this one before that."""
        return self.growth is None or not self.growth.until_ms

    def final(self) -> Self:
        """Returns the row with an end that stays where it is, as every change of a row but a growth leaves it."""
        if self.growth is None or not self.growth.until_ms:
            return self
        return msgspec.structs.replace(self, growth=msgspec.structs.replace(self.growth, until_ms=0))

    @property
    def streak(self) -> int:
        """The number of pulls in a row, up to that of this row, that have each acknowledged the row before it."""
        return 0 if self.growth is None else self.growth.streak

    @property
    def is_serial(self) -> bool:
        """Whether the consumer held no other open row when it claimed this one, as far as is known."""
        return self.growth is not None and self.growth.serial

    @property
    def base_seq(self) -> int | None:
        """The sequence of the first message of the claim that the row has now; None if the row begins with it."""
        return None if self.growth is None or not self.growth.base else self.growth.base_seq

    def goes_on_behind(self, claimed: "PullRow") -> bool:
        """Returns whether a later claim of this row has acknowledged all messages of an earlier one, ``claimed``."""
        return self.first == claimed.first and self.base >= claimed.size

    def with_counts(self, counts: tuple[int, ...]) -> Self:
        """Returns the row without messages of its claim that cannot be read. The claim is not answered yet, so only
        messages that were kept can be settled: all of them, because they were released."""
        row = msgspec.structs.replace(self, counts=counts)
        return msgspec.structs.replace(row, settled=frozenset(range(row.size, row.covered))) if row.settled else row

    def details_of(self, picks: Sequence[tuple[int, int]], parsed: ParsedSettlement) -> tuple[str | None, ...]:
        """Returns what the settlement says of each of these picks, for their transfer; an empty tuple if it says
        nothing of any."""
        if not parsed.details:
            return ()
        positions = self.positions()
        by_pick = {(positions[index].row_no, positions[index].index): text for index, text in parsed.details.items()}
        details = tuple([by_pick.get(pick) for pick in picks])
        return details if any(detail is not None for detail in details) else ()

    def attempts(self) -> Mapping[tuple[int, int], int] | None:
        """Returns the attempts of the messages by their positions, as far as the row counts them; None where the
        messages themselves do."""
        return None

    def parked_again(self, index: int) -> bool:
        """Returns whether the message with this index of the pull has failed, and stays in its place."""
        return False

    def was_settled_otherwise(self, parsed: ParsedSettlement) -> bool:
        """Returns whether a message that this settlement acknowledges was handed over to another log, or one that it
        gives back or rejects was acknowledged. Every message that it names is settled."""
        if not (self.moved or self.transfers or parsed.moves):
            return False
        handed_over = self._handed_over(parsed.named)
        given_back = parsed.named - parsed.acknowledged
        left = handed_over.union(filter(self.parked_again, given_back))
        return not (handed_over.isdisjoint(parsed.acknowledged) and given_back <= left)

    def _handed_over(self, indexes: frozenset[int]) -> set[int]:
        """Returns those of these messages of the pull that were handed over to another log."""
        hand_overs: tuple[Moved | Transfer, ...] = (*self.moved, *self.transfers)
        picks = {pick for hand_over in hand_overs for pick in hand_over.picks}
        positions = self.positions()
        return {index for index in indexes if (positions[index].row_no, positions[index].index) in picks}

    def tells_acknowledged(self, parsed: ParsedSettlement) -> bool:
        """Returns whether this closed row tells that every message which the settlement names was acknowledged, as the
        settlement asks."""
        handed_out = self.outcome in (SETTLED, EXPIRED)
        return handed_out and parsed.only_acknowledges and not self.was_settled_otherwise(parsed)

    def closed(self, outcome: int, now_ms: int) -> Self:
        # The outcome of a closed row says that all are settled; the row is kept for days without the set.
        end = {"state": CLOSED, "outcome": outcome, "closed_ms": now_ms, "settled": frozenset[int]()}
        return msgspec.structs.replace(self.final(), **end)

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        state = CLOSED if self.state == CLOSING and not transfers else self.state
        left = {transfer.token for transfer in transfers}
        done = [Moved.of(transfer) for transfer in self.transfers if transfer.token not in left]
        return msgspec.structs.replace(self, transfers=transfers, state=state, moved=(*self.moved, *done))

    @property
    def covered(self) -> int:
        """The number of messages between ``first`` and ``end``. In an ordered group some of them are parked."""
        return sum(self.counts)

    @property
    def size(self) -> int:
        """The number of messages that the row has handed out."""
        return sum(self.counts[: len(self.counts) - self.ahead]) if self.ahead else sum(self.counts)

    @property
    def claimed(self) -> int:
        """The number of messages that the claim hands out."""
        return self.size - self.base

    @property
    def ahead(self) -> int:
        """The number of source rows at the end of the row whose messages it has not handed out."""
        return 0 if self.growth is None else self.growth.ahead

    @property
    def kept(self) -> frozenset[int]:
        """The messages that are kept for the next pulls of the consumer: nobody was handed them, and they were not
        released."""
        if not self.ahead or self.state != OPEN:
            return frozenset()
        return frozenset(range(self.size, sum(self.counts))) - self.settled

    @property
    def leased(self) -> int:
        """The number of messages that were leased by the claim which the row has now, those claimed ahead included."""
        return self.claimed + sum(self.counts[len(self.counts) - self.ahead :]) if self.ahead else self.claimed

    @property
    def due_ms(self) -> int:
        """The time from which other processes may change the row: its lease is over, or its consumer is too slow for
        the messages that are kept for it."""
        return min(self.lease_until_ms, self.claimed_ms + AHEAD_KEPT_MS) if self.kept else self.lease_until_ms

    def unsettled(self) -> list[int]:
        """Returns the messages that the consumer has to settle. Those that are kept for it are not among them."""
        return [index for index in range(self.base, self.size) if index not in self.settled]

    def tells_time_of(self, index: int) -> bool:
        """Returns whether the times of the row are those of the pull that got this message, to within ``GROWS_MS``. A
        row that has handed out kept messages has the times of its last pull alone."""
        return self.growth is None or index >= self.growth.base or self.growth.streak > 0

    def settled_ms_of(self, index: int) -> int | None:
        """Returns when the consumer settled this message, as the last one of its pull; None if it did not, or the row
        does not tell."""
        if not self.tells_time_of(index):
            return None
        # What a row had before its last claim was acknowledged by that claim, or up to two seconds before.
        closed_ms = self.closed_ms if self.outcome == SETTLED else 0
        return (self.claimed_ms if index < self.base else closed_ms) or None

    def positions(self) -> list[Position]:
        """Returns the position of each message of the pull, by its index."""
        return self.covers()

    def covers(self) -> list[Position]:
        """Returns the position of each message that the row covers."""
        return [
            Position(self.first.row_no + step, index)
            for step in range(len(self.counts))
            for index in self.indexes(step)
        ]

    def indexes(self, step: int) -> Sequence[int]:
        """Returns the indexes, in source row ``first.row_no + step``, of the messages that the pull takes from it."""
        count = self.counts[step]
        picked = self.picks[step] if self.picks else None
        if not count or picked is None:
            skip = self.first.index if step == 0 else 0
            return range(skip, skip + count)
        return unpack_indexes(picked)


class Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    """The lowest pull row that is not settled, and the position and sequence at which it starts."""

    row_no: int
    position: Position
    seq: int
    saved_ms: int
    erased: bool = False
    """Whether the group was deleted and its rows erased: without this mark the log would look as if it never began."""
