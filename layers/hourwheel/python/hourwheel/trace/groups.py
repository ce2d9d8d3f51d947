"""Traces a message through the history of one group: from its queue through retries and dead letters.

A pull row names its consumer and its times, and the target of each message that was not acknowledged. A copy in
the retry log has pull rows of its own, and so on until the message is settled. Nothing is written for traces, but for
where a redrive put a dead letter: a few bytes in the write that ends the redrive.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from hourwheel.dead_letters.dead_rows import dead_id_of
from hourwheel.handover.copies import ATTEMPTS, REJECTED, RELEASED, RETRY
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.rows import Row
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.log_names import LogKind, LogName
from hourwheel.model.traces import GroupTrace, TraceEvent, TraceState
from hourwheel.pull_log.records import EXPIRED, OPEN, UNREADABLE, Moved, Position, PullRow
from hourwheel.times import rfc3339
from hourwheel.trace.claims import Claims
from hourwheel.trace.history import History, SourceLog

_HOPS = 200
"""A trace follows at most this many copies of a message in one group."""

_OPEN_FIRST: tuple[TraceState, ...] = (
    "in_flight",
    "retrying",
    "backing_off",
    "stopped",
    "waiting",
    "dead",
    "acknowledged",
    "dropped",
    "unreadable",
    "filtered",
    "skipped",
    "before_start",
    "settled",
    "expired",
    "unknown",
)
"""After a seek a message takes several ways through the logs: its state is that of the way that is open longest."""

HandOver: TypeAlias = Moved | Transfer


class CopyRow(NamedTuple):
    """The row to which a message was handed over (None: it is not known). ``at``: the index of the message's copy in it
    (None: the row has no copy of the message)."""

    log: str
    row_no: int
    row: Row | None
    at: int | None


class HandOvers(Protocol):
    """A record of the messages that were handed over to other logs."""

    @property
    def moved(self) -> tuple[Moved, ...]: ...

    @property
    def transfers(self) -> tuple[Transfer, ...]: ...


def hand_overs_of(record: HandOvers, pick: tuple[int, int]) -> list[HandOver]:
    """Returns the hand-overs of the message at this place, those first that were carried out."""
    hand_overs: tuple[HandOver, ...] = (*record.moved, *record.transfers)
    return [hand_over for hand_over in hand_overs if pick in hand_over.picks]


class Copy(NamedTuple):
    """A message in a log that the group pulls from, and the attempt that its next pull makes."""

    log: SourceLog
    position: Position
    attempt: int


@dataclass
class GroupReader:
    """Reads the way of one message through the logs of a group. ``queue`` and ``offset`` name the message in its
    copies."""

    history: History
    queue: int
    offset: int
    _events: list[tuple[int, TraceEvent]] = field(default_factory=list)
    _states: set[TraceState] = field(default_factory=set)
    _copies: list[Copy] = field(default_factory=list)
    _retried: set[Position] = field(default_factory=set)
    """The copies in the retry log that the trace follows already."""
    _complete: bool = True

    @property
    def group(self) -> Group:
        return self.history.group

    def trace(self, log: SourceLog, position: Position) -> GroupTrace:
        """Returns the history in the group of the message at this position of a queue."""
        self._copies.append(Copy(log, position, 1))
        hops = 0
        while self._copies and hops < _HOPS:
            self._follow(self._copies.pop(0))
            hops += 1
        self._complete = self._complete and not self._copies
        events = [event for _, event in sorted(self._events, key=lambda entry: entry[0])]
        state: TraceState = next((name for name in _OPEN_FIRST if name in self._states), "unknown")
        # The group of a consumer is named after its broadcast group.
        name = self.group.name.partition("+")[0]
        return GroupTrace(name, state, events, self._complete, self.group.consumer or None)

    def _follow(self, copy: Copy) -> None:
        """Follows a message to the pull rows that cover it, and to its copies from there."""
        claims = self.history.claims(copy.log, copy.position)
        self._complete = self._complete and claims.complete
        if copy.position >= claims.tail.position or not claims.rows:
            self._states.add(self._unclaimed(copy, claims))
        for _, row in claims.rows:
            self._pulled(copy, row)

    def _unclaimed(self, copy: Copy, claims: Claims) -> TraceState:
        """Returns the state of a message that no pull row covers now."""
        if copy.position >= claims.tail.position:
            return self._unpulled(copy)
        if claims.forgotten:
            return "settled"
        return "before_start" if copy.position.row_no < copy.log.origin else "skipped"

    @staticmethod
    def _unpulled(copy: Copy) -> TraceState:
        """Returns the state of a message that was not pulled yet."""
        return "waiting" if copy.log.queue is not None else "retrying"

    def _pulled(self, copy: Copy, row: PullRow) -> None:
        """Records what a pull row that covers the copy did with it, and the state that follows from that."""
        index = index_of(row, copy.position)
        if index is None:
            # The pull covers the row and not the message.
            unreadable = row.outcome == UNREADABLE or not self._filtered(copy)
            self._states.add("unreadable" if unreadable else "filtered")
            return
        if index >= row.size:
            self._kept(copy, row, index)
            return
        self._note_pull(row, index, copy.attempt)
        if self._hand_over(copy, row, every=True):
            return
        if row.state == OPEN and index in row.unsettled():
            self._states.add("in_flight")
        elif row.parked_again(index):
            self._note(row.claimed_ms, "retried", timed=False, attempt=copy.attempt)
            self._states.add("unknown")
        else:
            self._acknowledged(copy, row, index)

    def _kept(self, copy: Copy, row: PullRow, index: int) -> None:
        """Follows a message that a pull row keeps for its consumer, or has released. Nobody was handed it."""
        if index in row.kept:
            self._states.add(self._unpulled(copy))
            return
        pick = (copy.position.row_no, copy.position.index)
        for released in hand_overs_of(row, pick):
            self._served_again(self._copied(released, released.picks.index(pick)), copy.attempt)

    def _acknowledged(self, copy: Copy, row: PullRow, index: int) -> None:
        settled_ms = row.settled_ms_of(index)
        # A part of a pull that was acknowledged before the rest has no time of its own: not before the pull.
        at_ms = settled_ms or row.claimed_ms
        self._note(at_ms, "acknowledged", timed=settled_ms is not None, attempt=copy.attempt)
        self._states.add("acknowledged")

    def _note_pull(self, row: PullRow, index: int, attempt: int) -> None:
        timed = row.tells_time_of(index)
        lease_until = rfc3339(row.lease_until_ms) if timed else None
        self._note(
            row.claimed_ms, "pulled", timed=timed, attempt=attempt, consumer=row.consumer, lease_until=lease_until
        )

    def _hand_over(self, copy: Copy, row: PullRow, *, every: bool = False) -> bool:
        """Follows the copy to the target to which the row handed it over, or with ``every`` to all of them. Returns
        whether there is one."""
        pick = (copy.position.row_no, copy.position.index)
        handed = hand_overs_of(row, pick)
        for hand_over in handed if every else handed[:1]:
            self._handed_over(copy, pick, row, hand_over)
        return bool(handed)

    def _handed_over(self, copy: Copy, pick: tuple[int, int], row: PullRow, hand_over: HandOver) -> None:
        """Records why the copy was handed over, and follows it to its target."""
        copied = self._copied(hand_over, hand_over.picks.index(pick))
        if hand_over.kind in (ATTEMPTS, REJECTED):
            self._died(copy, hand_over, copied)
            return
        name = _name_of(hand_over, row)
        detail = self._detail(copied) if name == "retried" else None
        attempt = copy.attempt + (hand_over.kind == RETRY)
        if LogName.parse(hand_over.log).kind is LogKind.SCHEDULE:
            self._delayed(copied, attempt, partial(self._note, hand_over.at_ms, name, attempt=copy.attempt), detail)
        else:
            self._note(hand_over.at_ms, name, attempt=copy.attempt, detail=detail)
            self._served_again(copied, attempt)

    def _copied(self, hand_over: HandOver, index: int) -> CopyRow:
        """Looks for the copy with this index among those that the hand-over put. A transfer from the lake names one
        message alone, so that the index is not its place among the picks."""
        row = self.history.row(hand_over.log, hand_over.row_no)
        at = None if row is None or row.filler else self._index_in(hand_over, row, index)
        return CopyRow(hand_over.log, hand_over.row_no, row, at)

    def _detail(self, copied: CopyRow) -> str | None:
        """Returns what a consumer said of the failure, as the copy has it."""
        if copied.row is None or copied.at is None:
            return None
        return self.history.detail(copied.log, copied.row_no, copied.row, copied.at)

    def _served_again(self, copied: CopyRow, attempt: int) -> None:
        """Follows a copy in a row of the group's retry log."""
        if copied.at is not None:
            position = Position(copied.row_no, copied.at)
            self._retried.add(position)
            self._copies.append(Copy(SourceLog(copied.log, None), position, attempt))
            return
        removed = copied.row is None and self.history.removed(copied.log, copied.row_no)
        self._states.add("expired" if removed or copied.row is not None else "retrying")
        # The copy may have been pulled before it expired, and its index in the removed row is not known.
        self._complete = self._complete and not removed

    def _delayed(self, copied: CopyRow, attempt: int, record: Callable[..., None], detail: str | None) -> None:
        """Follows a copy that waits for its time in a schedule log, or has left it. ``record`` records why it waits."""
        entry = None if copied.row is None or not copied.row.meta else decode_entry(copied.row.meta)
        if not isinstance(entry, DueTimes):
            # The bucket was removed about a day after its last message was sent: the way from here on is not known.
            record()
            self._states.add("unknown")
            self._complete = False
        elif copied.at is None:
            self._states.add("expired")
        else:
            due_ms = entry.due_ms(copied.at)
            record(due_at=rfc3339(due_ms), detail=detail)
            self._came_due(copied, copied.at, due_ms, attempt)

    def _came_due(self, copied: CopyRow, index: int, due_ms: int, attempt: int) -> None:
        """Follows a delayed copy to the log to which it was dispatched, if it was, or to the time to which it was
        moved."""
        named = self.history.dispatched(copied.log, copied.row_no, index, due_ms)
        moved = self.history.moved(copied.log, copied.row_no, index) if named is None else None
        if moved is not None:
            self._moved(moved, attempt)
            return
        if named is None:
            self._states.add("backing_off")
            return
        transfer, following, at_ms = named
        self._note(at_ms, "due", attempt=attempt)
        self._served_again(self._copied(transfer, following), attempt)

    def _moved(self, moved: tuple[str, int], attempt: int) -> None:
        """Follows a delayed copy that somebody has moved to another time."""
        row = self.history.row(*moved)
        at = None if row is None or row.filler else 0
        self._delayed(CopyRow(*moved, row, at), attempt, lambda **_: None, None)

    def _died(self, copy: Copy, hand_over: HandOver, copied: CopyRow) -> None:
        """Records that the copy became a dead letter, and follows each redrive of it."""
        index = copied.at
        dead_id = None if index is None else dead_id_of(Position(hand_over.row_no, index))
        detail = self._detail(copied)
        self._note(hand_over.at_ms, "dead", attempt=copy.attempt, reason=hand_over.kind, dead_id=dead_id, detail=detail)
        if index is not None:
            self._left_dead_log(hand_over.row_no, index)
        elif copied.row is None:
            self._went_on(hand_over)
        else:
            self._states.add("expired")

    def _left_dead_log(self, row_no: int, copy_index: int) -> None:
        """Follows each redrive of a dead letter, if it was redriven."""
        current = self.history.dead_state(row_no)
        if current is None or copy_index not in current.done:
            self._states.add("dead")
            return
        pick = (row_no, copy_index)
        redrives = hand_overs_of(current, pick)
        for redrive in redrives:
            self._note(redrive.at_ms, "redriven", dead_id=dead_id_of(Position(*pick)))
            # A redriven message begins again with its first attempt.
            self._served_again(self._copied(redrive, redrive.picks.index(pick)), 1)
        if not redrives:
            self._states.add("dropped")

    def _went_on(self, death: HandOver) -> None:
        """Follows a dead letter whose row is not there. The row is removed once all its dead letters were redriven or
        dropped, and the state that told which of the two with it."""
        if not self.history.removed(death.log, death.row_no):
            self._states.add("dead")  # its row is still to be stored
        elif death.at_ms + DEAD_RETENTION_MS <= self.history.now_ms():
            self._complete = False
            self._states.add("expired")
        elif (copy := self.history.redriven(self.queue, self.offset, death.at_ms, self._retried)) is not None:
            self._note(copy.at_ms, "redriven")
            self._retried.add(copy.position)
            self._copies.append(Copy(SourceLog(self.group.retry_log, None), copy.position, 1))
        else:
            self._complete = False
            self._states.add("unknown")

    def _index_in(self, hand_over: HandOver, row: Row, index: int) -> int | None:
        """Returns the index of the message in a row of copies, of which some may be missing; None if it is missing."""
        # Each message was copied: the copies have the order of the picks.
        if row.count == len(hand_over.picks):
            return index
        copied = self.history.offsets(hand_over.log, hand_over.row_no, row)
        return copied.index((self.queue, self.offset)) if (self.queue, self.offset) in copied else None

    def _filtered(self, copy: Copy) -> bool:
        """Returns whether the group's filter applies: it does to queues, and not to the retries of messages that it
        took."""
        return self.group.filter is not None and copy.log.queue is not None

    def _note(
        self,
        at_ms: int,
        event: str,
        *,
        timed: bool = True,
        attempt: int | None = None,
        consumer: str | None = None,
        lease_until: str | None = None,
        due_at: str | None = None,
        reason: str | None = None,
        dead_id: str | None = None,
        detail: str | None = None,
    ) -> None:
        at = rfc3339(at_ms) if timed else None
        noted = TraceEvent(event, at, attempt, consumer, lease_until, due_at, reason, dead_id, detail)
        self._events.append((at_ms, noted))


def _name_of(hand_over: HandOver, row: PullRow) -> str:
    """Returns the name of the event by which a message was handed over to be tried again."""
    if row.outcome == EXPIRED and hand_over.at_ms >= row.lease_until_ms:
        return "lease_ended"
    return "released" if hand_over.kind == RELEASED else "retried"


def index_of(row: PullRow, position: Position) -> int | None:
    """Returns the index of the message at this position in the pull of a row; None if it is not part of it."""
    return next((index for index, own_position in enumerate(row.positions()) if own_position == position), None)
