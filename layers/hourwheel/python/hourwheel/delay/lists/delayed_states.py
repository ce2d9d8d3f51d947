"""Tells the states of many delayed messages of one bucket, with few reads."""

from collections.abc import Sequence
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
    dispatches = DispatchLog(context, bucket)
    # The clock may have been set back since messages were handed over.
    now_ms = context.clock.now_ms() if closed else max(context.clock.now_ms(), dispatches.last_ms())
    due = [message for message in messages if message.due_ms <= now_ms]
    sent: set[tuple[int, int]] = set()
    certain = True
    if due and not closed:
        since_ms = min(message.due_ms for message in due)
        sent, certain = dispatches.picks_since(since_ms, _DISPATCH_ROWS)
    states: list[DelayedState | None] = []
    for message, pick in zip(messages, picks, strict=True):
        change = changes.get(pick)
        unchanged: DelayedState | None = "waiting"
        if closed:
            # Every message of a closed bucket was handed over, or an undecided cancel kept it back.
            unchanged = "dispatched" if change is None else None
        elif message.due_ms <= now_ms:
            unchanged = "dispatched" if pick in sent else "waiting" if certain else None
        states.append(_decided(change) or unchanged)
    return states


def _decided(change: PendingChange | None) -> DelayedState | None:
    if change is None or change.undecided:
        return None
    if change.state == "cancelled":
        return "cancelled"
    return "dispatched" if change.state == "dispatched" else "moved"
