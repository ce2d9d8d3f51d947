"""Traces a message through an ordered group, which pulls it from its place until it is settled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hourwheel.handover.copies import ATTEMPTS, REJECTED
from hourwheel.model.traces import TraceState
from hourwheel.pull_log.ordered_rows import STOPPED_MS, OrderedRow
from hourwheel.pull_log.records import EXPIRED, Position
from hourwheel.times import rfc3339
from hourwheel.trace.groups import Copy, GroupReader, index_of
from hourwheel.trace.history import History


def reader_of(history: History, queue: int, offset: int) -> GroupReader:
    """Returns the reader of a message's way through a group; ``queue`` and ``offset`` name the message."""
    reader = KeyReader if history.group.ordered else GroupReader
    return reader(history, queue, offset)


@dataclass
class KeyReader(GroupReader):
    """Reads the way of one message through the logs of an ordered group."""

    def _follow(self, copy: Copy) -> None:
        pulls, complete = self.history.latest_pulls(copy.log, copy.position)
        self._complete = self._complete and complete
        state: TraceState | None = self._unpulled(copy) if complete else "unknown"
        rows = [row for row in pulls if isinstance(row, OrderedRow)]
        digest = b""
        for row, index in _rows_with(rows, copy.position):
            digest = row.messages()[index][0]
            state = self._pulled_by_key(copy, row, index)
        if state == "retrying" and self._kept_back(rows, digest, copy.position):
            state = "waiting"
        self._states.update([state] if state is not None else ())

    def _kept_back(self, rows: Sequence[OrderedRow], digest: bytes, position: Position) -> bool:
        """Returns whether another message of the key is in flight, or an earlier one waits for its time. No message has
        the digest of a key that is not known (empty)."""
        dues_ms: dict[Position, int] = {}
        flying: set[Position] = set()
        for row, index, held in _messages_of(rows, digest):
            failure = row.failure_of(index)
            dues_ms[held] = 0 if failure is None else failure[2]
            (flying.discard if row.decided(index) else flying.add)(held)
        now_ms = self.history.now_ms()
        return bool(flying) or any(earlier < position and due_ms > now_ms for earlier, due_ms in dues_ms.items())

    def _pulled_by_key(self, copy: Copy, row: OrderedRow, index: int) -> TraceState | None:
        """Records the events of the message in a pull row, and returns its state after them; None where the message
        went on in another log, which tells its state."""
        attempt, failure = row.messages()[index][1].attempt, row.failure_of(index)
        if row.consumer:
            self._note_pull(row, index, attempt)
        else:
            self._note(row.claimed_ms, "decided", reason="dead" if failure is None else "retry")
        if self._hand_over(copy._replace(attempt=attempt), row):
            return None
        if failure is not None:
            return self._failed(row, attempt, failure)
        if not row.decided(index):
            return "in_flight"
        settled_ms = row.settled_ms_of(index)
        self._note(settled_ms or row.claimed_ms, "acknowledged", timed=settled_ms is not None, attempt=attempt)
        return "acknowledged"

    def _failed(self, row: OrderedRow, attempt: int, failure: tuple[int, int, int]) -> TraceState:
        """Records that a message was parked again at its place, and returns its state."""
        index, following, due_ms = failure
        if row.consumer:
            self._note_failure(row, index, attempt, following, due_ms)
        if due_ms == STOPPED_MS:
            return "stopped"
        return "retrying" if due_ms <= self.history.now_ms() else "backing_off"

    def _note_failure(self, row: OrderedRow, index: int, attempt: int, following: int, due_ms: int) -> None:
        """Records why a message failed. The row does not tell when a part of the pull failed before the rest was
        settled."""
        name = _name_of(row, attempt, following, due_ms)
        due_at = None if name in ("released", "stopped") else rfc3339(due_ms)
        # The lease of the whole pull ended at one time.
        failed_ms = row.closed_ms or None if name == "lease_ended" else row.settled_ms_of(index)
        at_ms, timed = failed_ms or row.claimed_ms, failed_ms is not None
        reason, detail = _reason_of(row, index)
        self._note(at_ms, name, timed=timed, attempt=attempt, due_at=due_at, reason=reason, detail=detail)


def _rows_with(rows: Sequence[OrderedRow], position: Position) -> Iterator[tuple[OrderedRow, int]]:
    """Yields the rows that pulled the message at this position, each with the message's index in the pull."""
    indexes = ((row, index_of(row, position)) for row in rows)
    return ((row, index) for row, index in indexes if index is not None)


def _messages_of(rows: Sequence[OrderedRow], digest: bytes) -> Iterator[tuple[OrderedRow, int, Position]]:
    """Yields the pulls of the key's messages: the row, the index of the message in it, and its position."""
    for row in rows:
        messages = enumerate(row.messages())
        yield from ((row, index, message.position) for index, (key, message) in messages if key == digest)


def _name_of(row: OrderedRow, attempt: int, following: int, due_ms: int) -> str:
    """Returns the name of the event by which a message failed that is tried again at this time, as the ``following``
    attempt."""
    if due_ms == STOPPED_MS:
        return "stopped"
    if row.outcome == EXPIRED and due_ms >= row.lease_until_ms:
        return "lease_ended"
    return "released" if following == attempt else "retried"


def _reason_of(row: OrderedRow, index: int) -> tuple[str | None, str | None]:
    """Returns why the message with this index of the pull stopped its key, and what its consumer said; None for what is
    not known."""
    stops = {} if row.order is None else {stopped: (rejected, detail) for stopped, rejected, detail in row.order.stops}
    if index not in stops:
        return None, None
    rejected, detail = stops[index]
    return REJECTED if rejected else ATTEMPTS, detail
