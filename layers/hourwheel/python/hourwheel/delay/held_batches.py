"""Remembers the messages of a wheel that cannot be handed over because their cell is out of reach, or because the store
refuses writes to their log: other destinations of the bucket go on.

A message that is not handed over yet goes back into the queue of its destination or log, and is tried again some
seconds later: a cancel still finds it there. A transfer that a dispatch row names, but whose row could not be put,
stays *open*. Each further dispatch row names it again, so that the next owner of the bucket finds it in the last one.
"""

from dataclasses import dataclass, field

from hourwheel.delay.due_messages import QueueName
from hourwheel.delay.outgoing_batches import OutgoingBatch
from hourwheel.delay.timing import pack
from hourwheel.handover.handover import Transfer
from hourwheel.logs.rows import Row
from hourwheel.reach.pauses import Pauses, paused_with
from hourwheel.reach.storages import at_home

_MOST_OPEN_PICKS = 5_000
_MOST_OPEN = 100
"""With this many open transfers, or messages in them, no message goes to another cell: a dispatch row has room for
these, and for one step that opens as many."""

_MOST_OPEN_HOME_PICKS = 8_000
_MOST_OPEN_HOME = 200
"""With this many, no step begins: with the longest names, and 9 bytes for each message, a dispatch row of 350 KB has
room for these and for one step."""


@dataclass
class HeldPositions:
    """The positions that go back into one queue of due messages: in front of the others there, or behind them."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    rests_until_ms: int = 0
    """When the queue has its next turn; 0 if it may have it at once."""


@dataclass
class HeldBatches:
    """Remembers what waits for cells that one wheel could not reach. For one thread."""

    pauses: Pauses
    open: list[Transfer] = field(default_factory=list)
    """The transfers whose rows are not put, in the order in which they were reserved."""
    rows: dict[bytes, Row] = field(default_factory=dict)
    """The rows of open transfers by their token, as far as they are stored as objects: each new try to build one would
    store another object."""
    queued: set[str] = field(default_factory=set)
    """The logs of which messages waited in a queue of their own before this step."""
    _held: dict[QueueName, HeldPositions] = field(default_factory=dict)

    @property
    def busy(self) -> frozenset[str]:
        """The cells, and the single logs of the home cell, to which an earlier transfer is open."""
        return frozenset(paused_with(transfer.log) for transfer in self.open)

    def is_behind(self, batch: OutgoingBatch) -> bool:
        """Returns whether messages for the same log, which were due before those of the batch, wait in its queue."""
        log = batch.target.log
        return log in self.queued and batch.queue != log and batch.named is None

    def waits(self, log: str, busy: frozenset[str]) -> bool:
        """Returns whether nothing goes to the log now. It did not answer a moment ago, or it is ``busy``. A log in
        another cell also waits while there are as many open transfers as may be."""
        if self.pauses.holds(log) or paused_with(log) in busy:
            return True
        return not at_home(log) and self._full()

    def hold(self, batch: OutgoingBatch) -> None:
        """Keeps messages that are not handed over until their next try, in the order of their log. If all messages of
        their queue go to it, they stay in front of the others there."""
        log, positions = batch.target.log, [pack(row_no, index) for row_no, index in batch.picks]
        if batch.is_alone or batch.queue == log:
            held = self._held.setdefault(batch.queue, HeldPositions())
            held.first += positions
        else:
            held = self._held.setdefault(log, HeldPositions())
            held.last += positions
            if log in self.queued:
                return  # these wait for their turn behind the others, whose rest is known
            self.queued.add(log)
        held.rests_until_ms = self.pauses.next_ms(log)

    def keep_row(self, transfer: Transfer, row: Row) -> None:
        """Keeps the row of a transfer whose put has to be repeated, if it is stored as an object."""
        if row.large_batch is not None:
            self.rows[transfer.token] = row

    def open_groups(self) -> tuple[list[list[Transfer]], list[list[Transfer]]]:
        """Returns the open transfers in groups, each of those that pause together: the paused ones, and the others."""
        groups: dict[str, list[Transfer]] = {}
        for transfer in self.open:
            groups.setdefault(paused_with(transfer.log), []).append(transfer)
        paused = [group for group in groups.values() if self.pauses.holds(group[0].log)]
        return paused, [group for group in groups.values() if group not in paused]

    def keep_open(self, transfers: list[Transfer]) -> None:
        """Notes which transfers are still open."""
        self.open = transfers
        tokens = {transfer.token for transfer in transfers}
        self.rows = {token: row for token, row in self.rows.items() if token in tokens}

    def retry_times(self) -> list[int]:
        """Returns when the next of the open transfers is tried again."""
        return [min(self.pauses.end_ms(transfer.log) for transfer in self.open)] if self.open else []

    @property
    def has_room(self) -> bool:
        """Whether a dispatch row has room for the open transfers and one step. If not, the store refuses calls on
        hundreds of logs, and all messages wait until some rows are put."""
        picks = sum(len(transfer.picks) for transfer in self.open)
        return len(self.open) < _MOST_OPEN_HOME and picks < _MOST_OPEN_HOME_PICKS

    def held(self) -> dict[QueueName, HeldPositions]:
        """Returns what was held since the last call, by the queue in which it waits."""
        held, self._held = self._held, {}
        return held

    def _full(self) -> bool:
        return len(self.open) >= _MOST_OPEN or sum(len(transfer.picks) for transfer in self.open) >= _MOST_OPEN_PICKS
