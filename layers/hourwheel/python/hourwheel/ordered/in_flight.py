"""Says which messages of the open rows are still in flight. Reads and writes nothing."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from hourwheel.pull_log.ordered_rows import OrderedRow, Parked
from hourwheel.pull_log.records import Position


@dataclass(frozen=True)
class InFlight:
    """An open row and the indexes of those messages of its pull that are decided. ``digests`` are those of the others.
    ``again_below``: see ``SnapshotRow``. ``token`` is that of the row when it was last read. Never changed: states
    share it."""

    row: OrderedRow
    digests: frozenset[bytes]
    decided: frozenset[int] = frozenset()
    again_below: Position | None = None
    token: bytes = b""

    @cached_property
    def messages(self) -> Mapping[int, tuple[bytes, Parked]]:
        """The undecided messages by their index in the pull, each with its digest."""
        # Made when they are needed: most rows are acknowledged as a whole.
        return {index: message for index, message in enumerate(self.row.messages()) if index not in self.decided}

    def parks(self, parked: Parked) -> bool:
        """Returns whether this message is parked when it fails."""
        return self.again_below is None or parked.position < self.again_below

    def without(self, indexes: Set[int], token: bytes) -> "InFlight":
        """Returns what is left when these messages are decided, in the row that has this token now."""
        digests = frozenset([digest for index, (digest, _) in self.messages.items() if index not in indexes])
        return InFlight(self.row, digests, self.decided | indexes, self.again_below, token)


@dataclass(kw_only=True)
class OpenRows:
    """``open`` holds the rows with messages in flight, by their numbers."""

    open: dict[int, InFlight] = field(default_factory=dict)
    busy: set[bytes] = field(default_factory=set)
    """The digests of messages in flight."""
    shared: dict[bytes, int] = field(default_factory=dict)
    """The digests with messages in flight in several open rows, as after a seek, and in how many besides the first."""

    def first_in_flight(self) -> dict[bytes, Parked]:
        """Returns the first message in flight of each digest."""
        first: dict[bytes, Parked] = {}
        flying = (entry for flight in self.open.values() for entry in flight.messages.values())
        for digest, message in flying:
            first[digest] = min(message, first.get(digest, message))
        return first

    def close(self, row_no: int) -> None:
        """Forgets an open row, of which every message is decided."""
        self._land(self.open.pop(row_no).digests)

    def _set_open(self, row_no: int, flight: InFlight) -> None:
        before = self.open.get(row_no)
        begun = flight.digests if before is None else flight.digests - before.digests
        for digest in self.busy & begun:
            self.shared[digest] = self.shared.get(digest, 0) + 1
        self.busy |= begun
        if before is not None:
            self._land(before.digests - flight.digests)
        self.open[row_no] = flight

    def _land(self, digests: Set[bytes]) -> None:
        """Notes that a row has no message of these digests in flight any more."""
        shared = self.shared.keys() & digests
        self.busy -= digests - shared if shared else digests
        for digest in shared:
            self.shared[digest] -= 1
            if not self.shared[digest]:
                del self.shared[digest]

    def _sought(self) -> list[int]:
        """Returns the open rows since which a seek came."""
        return [row_no for row_no, flight in self.open.items() if flight.again_below is not None]

    def _leave_earlier(self, row_no: int, index: int, open_rows: Iterable[int]) -> None:
        """Removes a message from those of these open rows that had it before."""
        for open_row in open_rows:
            flight = self.open[open_row]
            served = {at for at, (_, message) in flight.messages.items() if message.at(row_no, index)}
            if served:
                self._set_open(open_row, flight.without(served, flight.token))

    def _seek_open(self, position: Position) -> None:
        """Notes that a seek hands out the messages from this position on again."""
        for row_no, flight in self.open.items():
            below = flight.again_below
            self.open[row_no] = replace(flight, again_below=position if below is None else min(below, position))
