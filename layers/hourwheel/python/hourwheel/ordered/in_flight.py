"""Says which messages of an open row are still in flight. Reads and writes nothing."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
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
