"""The rows of a dead log, and the state of the dead letters in each.

table      pull
partition  dead@{dead log}
sort       {row:016d}
value      DeadState, msgpack array: which messages of that row of the dead log were redriven or dropped
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import msgspec

from hourwheel.context import Context
from hourwheel.handover.handover import Transfer
from hourwheel.logs.cas import CasRecord, Versioned
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.log import GARBAGE_MS
from hourwheel.logs.rows import Row, sort_of
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs, Key, Table
from hourwheel.pull_log.records import Moved, Position

_FILLER_KEPT_MS = 86_400_000  # a day: far longer than a slow writer takes to put its row


class DeadState(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The state of one row of a dead log. ``done`` holds the indexes of the messages that were redriven or dropped,
    ``transfers`` a redrive that is being carried out, ``moved`` the redrives that were."""

    expires_ms: int
    done: frozenset[int] = frozenset()
    transfers: tuple[Transfer, ...] = ()
    moved: tuple[Moved, ...] = ()

    @property
    def garbage_ms(self) -> int | None:
        # The row must be removed before its state: a row without a state would be listed again.
        return self.expires_ms + 2 * GARBAGE_MS

    def left_with(self, transfers: tuple[Transfer, ...]) -> Self:
        left = {transfer.token for transfer in transfers}
        done = [Moved.of(transfer) for transfer in self.transfers if transfer.token not in left]
        return msgspec.structs.replace(self, transfers=transfers, moved=(*self.moved, *done))


def dead_state_record(context: Context, group: Group, row_no: int) -> CasRecord[DeadState]:
    """Returns the record of the state of a row of the group's dead log."""
    key = Key(Table.PULL, f"dead@{group.dead_log}", sort_of(row_no))
    return CasRecord(context.store, context.ids, key, DeadState)


def dead_id_of(position: Position) -> str:
    return f"{position.row_no}-{position.index}"


class DeadRow(NamedTuple):
    """A row of a dead log, and the record of its state as it was read (None: no letter of the row was ever done)."""

    row_no: int
    row: Row
    current: Versioned[DeadState] | None

    @property
    def state(self) -> DeadState:
        return self.current.value if self.current else DeadState(expires_ms=self.row.expires_ms)

    @property
    def left(self) -> int:
        """The number of letters that were neither redriven nor dropped."""
        return self.row.count - len(self.state.done)

    def is_over(self, now_ms: int) -> bool:
        """Returns whether the row may be removed: its letters are done or expired."""
        if self.row.filler and now_ms - self.row.at_ms >= _FILLER_KEPT_MS:
            return True  # a filler that is removed no longer keeps out the slow writer of its row
        return self.row.expires_ms <= now_ms or (self.current is not None and not (self.left or self.state.transfers))

    def chosen(self, choose: Callable[[Position, int], bool]) -> list[int]:
        """Returns the indexes of the letters that are left and chosen."""
        done = self.state.done
        left = (Position(self.row_no, index) for index in range(self.row.count) if index not in done)
        return [position.index for position in left if choose(position, self.row.at_ms)]

    def letters(self, blobs: Blobs) -> list[tuple[Position, Message]]:
        """Returns the letters that are left, with their positions. Raises ``Corrupt`` if one cannot be read."""
        if not self.left:
            return []
        read = [(Position(self.row_no, index), message) for index, message in enumerate(messages_of(self.row, blobs))]
        for position, message in read:
            message.dead_id = dead_id_of(position)
        return [(position, message) for position, message in read if position.index not in self.state.done]
