"""Traces a message through the history of one group: from its queue through retries and dead letters.

A pull row names its consumer and its times, and the target of each message that was not acknowledged. A copy in
the retry log has pull rows of its own, and so on until the message is settled.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from hourwheel.dead_letters.dead import dead_id_of
from hourwheel.handover.copies import ATTEMPTS, REJECTED, RELEASED, RETRY
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import DueTimes, decode_entry
from hourwheel.logs.rows import Row
from hourwheel.model.fields import DEAD_RETENTION_MS
from hourwheel.model.groups import Group
from hourwheel.model.log_names import LogKind, LogName
from hourwheel.model.traces import GroupTrace, TraceEvent, TraceState
from hourwheel.pull_log.ordered_rows import STOPPED_MS, OrderedRow
from hourwheel.pull_log.records import EXPIRED, OPEN, SETTLED, UNREADABLE, Moved, Position, PullRow
from hourwheel.times import rfc3339
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


class _Copy(NamedTuple):
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
    _copies: list[_Copy] = field(default_factory=list)
    _retried: set[Position] = field(default_factory=set)
    """The copies in the retry log that the trace follows already."""
    _complete: bool = True

    @property
    def group(self) -> Group:
        return self.history.group

    def trace(self, log: SourceLog, position: Position) -> GroupTrace:
        """Returns the history in the group of the message at this position of a queue."""
        self._copies.append(_Copy(log, position, 1))
        for _ in range(_HOPS):
            if not self._copies:
                break
            self._follow(self._copies.pop(0))
        self._complete = self._complete and not self._copies
        events = [event for _, event in sorted(self._events, key=lambda entry: entry[0])]
        state: TraceState = next((name for name in _OPEN_FIRST if name in self._states), "unknown")
        # The group of a consumer is named after its broadcast group.
        name = self.group.name.partition("+")[0]
        return GroupTrace(name, state, events, self._complete, self.group.consumer or None)

    def _follow(self, copy: _Copy) -> None:
        if self.group.ordered:
            self._follow_in_order(copy)
            return
        claims = self.history.claims(copy.log, copy.position)
        self._complete = self._complete and claims.complete
        if copy.position >= claims.tail.position:
            self._states.add("waiting" if copy.log.queue is not None else "retrying")
        elif claims.forgotten:
            self._states.add("settled")
        elif not claims.rows:
            self._states.add("before_start" if _is_before_start(copy) else "skipped")
        for _, row in claims.rows:
            self._pulled(copy, row)

    def _follow_in_order(self, copy: _Copy) -> None:
        """Follows a message of an ordered group, which is pulled from its place until it is settled."""
        pulls, complete = self.history.latest_pulls(copy.log, copy.position)
        self._complete = self._complete and complete
        state: TraceState | None = "waiting" if copy.log.queue is not None else "retrying"
        if not complete:
            state = "unknown"
        rows = [row for row in pulls if isinstance(row, OrderedRow)]
        digest = b""
        for row in rows:
            index = next((i for i, position in enumerate(row.positions()) if position == copy.position), None)
            if index is not None:
                digest = row.messages()[index][0]
                state = self._pulled_in_order(copy, row, index)
        if state == "retrying" and digest and self._kept_back(rows, digest, copy.position):
            state = "waiting"
        if state is not None:
            self._states.add(state)

    def _kept_back(self, rows: Sequence[OrderedRow], digest: bytes, position: Position) -> bool:
        """Returns whether another message of the key is in flight, or an earlier one waits for its time."""
        dues_ms: dict[Position, int] = {}
        flying: set[Position] = set()
        for row in rows:
            failed = {index: due_ms for index, _, due_ms in row.order.failed} if row.order else {}
            for index, (key_digest, message) in enumerate(row.messages()):
                if key_digest == digest:
                    dues_ms[message.position] = failed.get(index, 0)
                    (flying.discard if row.decided(index) else flying.add)(message.position)
        now_ms = self.history.now_ms()
        return bool(flying) or any(earlier < position and due_ms > now_ms for earlier, due_ms in dues_ms.items())

    def _pulled_in_order(self, copy: _Copy, row: OrderedRow, index: int) -> TraceState | None:
        """Records the events of the message in a pull row, and returns its state after them; None where the message
        went on in another log, which tells its state."""
        attempt = row.messages()[index][1].attempt
        failure = next((each for each in row.order.failed if each[0] == index), None) if row.order else None
        if row.consumer:
            lease_until = rfc3339(row.lease_until_ms)
            self._note(row.claimed_ms, "pulled", attempt=attempt, consumer=row.consumer, lease_until=lease_until)
        else:
            self._note(row.claimed_ms, "decided", reason="dead" if failure is None else "retry")
        pick = (copy.position.row_no, copy.position.index)
        hand_overs: tuple[HandOver, ...] = (*row.moved, *row.transfers)
        for each in hand_overs:
            if pick in each.picks:
                self._handed_over(copy._replace(attempt=attempt), pick, row, each)
                return None
        if failure is not None:
            return self._failed_in_order(row, attempt, failure)
        if not row.decided(index):
            return "in_flight"
        timed = row.outcome == SETTLED and row.closed_ms > 0
        self._note(row.closed_ms if timed else row.claimed_ms, "acknowledged", timed=timed, attempt=attempt)
        return "acknowledged"

    def _failed_in_order(self, row: OrderedRow, attempt: int, failure: tuple[int, int, int]) -> TraceState:
        """Records that a message was parked again at its place, and returns its state. The row does not tell when a
        part of the pull failed before the rest was settled."""
        index, following, due_ms = failure
        if row.consumer:
            name, due_at = "retried", rfc3339(due_ms) if due_ms < STOPPED_MS else None
            if due_ms == STOPPED_MS:
                name = "stopped"
            elif row.outcome == EXPIRED and due_ms >= row.lease_until_ms:
                name = "lease_ended"
            elif following == attempt:
                name, due_at = "released", None
            timed = row.closed_ms > 0 and (row.outcome == SETTLED or name == "lease_ended")
            at_ms = row.closed_ms if timed else row.claimed_ms
            stops = row.order.stops if row.order else ()
            rejected, detail = next((stop[1:] for stop in stops if stop[0] == index), (None, None))
            reason = None if rejected is None else REJECTED if rejected else ATTEMPTS
            self._note(at_ms, name, timed=timed, attempt=attempt, due_at=due_at, reason=reason, detail=detail)
        if due_ms == STOPPED_MS:
            return "stopped"
        return "retrying" if due_ms <= self.history.now_ms() else "backing_off"

    def _pulled(self, copy: _Copy, row: PullRow) -> None:
        """Records what a pull row that covers the copy did with it, and the state that follows from that."""
        pick = (copy.position.row_no, copy.position.index)
        index = next((i for i, position in enumerate(row.positions()) if position == copy.position), None)
        if index is None:
            # The pull covers the row and not the message.
            unreadable = row.outcome == UNREADABLE or not self._filtered(copy)
            self._states.add("unreadable" if unreadable else "filtered")
            return
        self._note(
            row.claimed_ms,
            "pulled",
            attempt=copy.attempt,
            consumer=row.consumer,
            lease_until=rfc3339(row.lease_until_ms),
        )
        hand_overs: tuple[HandOver, ...] = (*row.moved, *row.transfers)
        handed = [each for each in hand_overs if pick in each.picks]
        for each in handed:
            self._handed_over(copy, pick, row, each)
        if handed:
            return
        if row.state == OPEN and index in row.unsettled():
            self._states.add("in_flight")
            return
        if isinstance(row, OrderedRow) and row.order is not None and index in {entry[0] for entry in row.order.failed}:
            self._note(row.claimed_ms, "retried", timed=False, attempt=copy.attempt)
            self._states.add("unknown")
            return
        # What a row had before it grew last was acknowledged by that growth, or up to two seconds before.
        grown = index < row.base
        timed = row.outcome == SETTLED and row.closed_ms > 0
        # A part of a pull that was acknowledged before the rest has no time of its own: not before the pull.
        at_ms = row.closed_ms if timed and not grown else row.claimed_ms
        self._note(at_ms, "acknowledged", timed=timed or grown, attempt=copy.attempt)
        self._states.add("acknowledged")

    def _handed_over(self, copy: _Copy, pick: tuple[int, int], row: PullRow, each: HandOver) -> None:
        """Records why the copy was handed over, and follows it to its target."""
        index = each.picks.index(pick)
        if each.kind in (ATTEMPTS, REJECTED):
            self._died(copy, each, index)
            return
        ended = row.outcome == EXPIRED and each.at_ms >= row.lease_until_ms
        name = "lease_ended" if ended else "released" if each.kind == RELEASED else "retried"
        attempt = copy.attempt + (each.kind == RETRY)
        if LogName.parse(each.log).kind is LogKind.SCHEDULE:
            self._delayed(copy, each, index, name, attempt)
        else:
            copied = self.history.row(each.log, each.row_no)
            copy_index = None if copied is None or name != "retried" else self._index_in(each, copied, index)
            self._note(each.at_ms, name, attempt=copy.attempt, detail=self._detail(each, copied, copy_index))
            self._served_again(each, index, attempt, copied)

    def _detail(self, each: HandOver, row: Row | None, copy_index: int | None) -> str | None:
        """Returns what a consumer said of the failure, as the copy has it."""
        if row is None or copy_index is None:
            return None
        return self.history.detail(each.log, each.row_no, row, copy_index)

    def _served_again(self, each: HandOver, index: int, attempt: int, row: Row | None) -> None:
        """Follows a copy in a row of the group's retry log."""
        if row is None or row.filler:
            removed = row is None and self.history.removed(each.log, each.row_no)
            self._states.add("expired" if removed or row is not None else "retrying")
            # The copy may have been pulled before it expired, and its index in the removed row is not known.
            self._complete = self._complete and not removed
            return
        copy_index = self._index_in(each, row, index)
        if copy_index is None:
            self._states.add("expired")
        else:
            self._retried.add(Position(each.row_no, copy_index))
            self._copies.append(_Copy(SourceLog(each.log, None), Position(each.row_no, copy_index), attempt))

    def _delayed(self, copy: _Copy, each: HandOver, index: int, name: str, attempt: int) -> None:
        """Follows a copy that waits for its time in a schedule log, or has left it."""
        row = self.history.row(each.log, each.row_no)
        entry = None if row is None or not row.meta else decode_entry(row.meta)
        if row is None or not isinstance(entry, DueTimes):
            # The bucket was removed about a day after its last message was sent: the way from here on is not known.
            self._note(each.at_ms, name, attempt=copy.attempt)
            self._states.add("unknown")
            self._complete = False
            return
        copy_index = self._index_in(each, row, index)
        if copy_index is None:
            self._states.add("expired")
            return
        due_ms = entry.due_ms(copy_index)
        detail = self._detail(each, row, copy_index) if name == "retried" else None
        self._note(each.at_ms, name, attempt=copy.attempt, due_at=rfc3339(due_ms), detail=detail)
        named = self.history.dispatched(each.log, each.row_no, copy_index, due_ms)
        if named is None:
            self._states.add("backing_off")
            return
        transfer, following, at_ms = named
        self._note(at_ms, "due", attempt=attempt)
        self._served_again(transfer, following, attempt, self.history.row(transfer.log, transfer.row_no))

    def _died(self, copy: _Copy, each: HandOver, index: int) -> None:
        """Records that the copy became a dead letter, and follows each redrive of it."""
        row = self.history.row(each.log, each.row_no)
        copy_index = None if row is None or row.filler else self._index_in(each, row, index)
        dead_id = None if copy_index is None else dead_id_of(Position(each.row_no, copy_index))
        detail = self._detail(each, row, copy_index)
        self._note(each.at_ms, "dead", attempt=copy.attempt, reason=each.kind, dead_id=dead_id, detail=detail)
        if row is None:
            self._went_on(each)
            return
        if copy_index is None:
            self._states.add("expired")
            return
        current = self.history.dead_state(each.row_no)
        if current is None or copy_index not in current.done:
            self._states.add("dead")
            return
        pick = (each.row_no, copy_index)
        hand_overs: tuple[HandOver, ...] = (*current.moved, *current.transfers)
        redrives = [redrive for redrive in hand_overs if pick in redrive.picks]
        for redrive in redrives:
            self._note(redrive.at_ms, "redriven", dead_id=dead_id)
            # A redriven message begins again with its first attempt.
            self._served_again(redrive, redrive.picks.index(pick), 1, self.history.row(redrive.log, redrive.row_no))
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
            self._copies.append(_Copy(SourceLog(self.group.retry_log, None), copy.position, 1))
        else:
            self._complete = False
            self._states.add("unknown")

    def _index_in(self, each: HandOver, row: Row, index: int) -> int | None:
        """Returns the index of the message in a row of copies, of which some may be missing; None if it is missing."""
        # Each message was copied: the copies have the order of the picks.
        if row.count == len(each.picks):
            return index
        copied = self.history.offsets(each.log, each.row_no, row)
        return copied.index((self.queue, self.offset)) if (self.queue, self.offset) in copied else None

    def _filtered(self, copy: _Copy) -> bool:
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


def _is_before_start(copy: _Copy) -> bool:
    return copy.position.row_no < copy.log.origin
