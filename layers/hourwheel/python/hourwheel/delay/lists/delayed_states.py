"""Tells the states of many delayed messages of one bucket, with few reads."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from hourwheel.buckets.buckets import Bucket
from hourwheel.context import Context
from hourwheel.delay.ownership import DispatchLog
from hourwheel.delay.pending_changes import PendingChange, PendingChanges
from hourwheel.model.pages import DelayedState

_DISPATCH_ROWS = 1_000
"""The rows of the dispatch log that are searched. Where it has more, a message that these rows do not name has no
state."""


class DueMessage(Protocol):
    """The position of a message in the bucket's schedule log, and when it is due."""

    @property
    def due_ms(self) -> int: ...

    @property
    def row_no(self) -> int: ...

    @property
    def index(self) -> int: ...


def states_of(
    context: Context, bucket: Bucket, messages: Sequence[DueMessage], *, closed: bool
) -> list[DelayedState | None]:
    """Returns the states of up to ``GET_MANY`` messages of the bucket; None where telling one would take many reads. A
    change that is not decided yet counts as none.

    One batch of gets, and of an open bucket the last row of the dispatch log. Where messages are due there: a binary
    search in that log, and up to ``_DISPATCH_ROWS`` rows of it.
    """
    # The changes are read first: a message that is moved afterwards is still in neither log of its old bucket.
    picks = [(message.row_no, message.index) for message in messages]
    changes = PendingChanges(context).of_many(bucket, picks)
    unchanged = _states_in_closed(changes, picks) if closed else _states_in_open(context, bucket, messages)
    return [_decided(changes.get(pick)) or state for pick, state in zip(picks, unchanged, strict=True)]


def _states_in_closed(
    changes: Mapping[tuple[int, int], PendingChange], picks: Sequence[tuple[int, int]]
) -> list[DelayedState | None]:
    # Every message of a closed bucket was handed over, or an undecided cancel kept it back.
    return [None if pick in changes else "dispatched" for pick in picks]


def _states_in_open(context: Context, bucket: Bucket, messages: Sequence[DueMessage]) -> list[DelayedState | None]:
    """Returns the states that messages of an open bucket have, unless they are changed."""
    dispatches = DispatchLog(context, bucket)
    # The clock may have been set back since messages were handed over.
    now_ms = max(context.clock.now_ms(), dispatches.last_ms())
    dues = [message.due_ms for message in messages if message.due_ms <= now_ms]
    sent, certain = dispatches.picks_since(min(dues), _DISPATCH_ROWS) if dues else (set[tuple[int, int]](), True)

    def state_of(message: DueMessage) -> DelayedState | None:
        if message.due_ms > now_ms:
            return "waiting"
        if (message.row_no, message.index) in sent:
            return "dispatched"
        return "waiting" if certain else None

    return [state_of(message) for message in messages]


def _decided(change: PendingChange | None) -> DelayedState | None:
    if change is None or change.undecided:
        return None
    if change.state == "cancelled":
        return "cancelled"
    return "dispatched" if change.state == "dispatched" else "moved"
