"""Finds the state of a delayed message in the lake: it waits, was cancelled, or is in a queue."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from hourwheel.buckets.scheduled_ids import SchedulePosition
from hourwheel.errors import NotFound
from hourwheel_pipeline.lake.schemas import CANCEL_MARKER, DISPATCHES, MESSAGES, QUEUE, SCHEDULE
from hourwheel_pipeline.tracing.rows import LakeRows, TableRow

State: TypeAlias = Literal["scheduled", "cancelled", "accepted"]


class Outcome(NamedTuple):
    """The state of a delayed message: its row in the queue if it is ``accepted``, otherwise in a schedule log."""

    state: State
    row: TableRow


@dataclass(frozen=True)
class Scheduled:
    """Looks up delayed messages of one subject. ``unnamed``: the rows that name no subject."""

    rows: LakeRows
    unnamed: LakeRows

    def look(self, position: SchedulePosition) -> Outcome:
        """Returns the state of the message that was stored at the position. Raises ``NotFound`` if the lake has no
        message there."""
        columns: dict[str, Any] = {"log": position.bucket.log, "row": position.row_no, "index": position.index}
        planned = self.rows.of(MESSAGES, kind=SCHEDULE, **columns)
        if not planned:
            raise NotFound("message-unknown", f"the lake has no delayed message of {self.rows.subject!r} with this id")
        return self.outcome(planned[0])

    def outcome(self, planned: TableRow) -> Outcome:
        """Returns the state of the message in a row of a schedule log. Follows a message that was moved to another
        time."""
        while True:
            stored = self._handed_over(planned)
            if stored is not None:
                return stored
            cancelled_at = self._cancelled_at(planned)
            if cancelled_at is None:
                return Outcome("scheduled", planned)
            moved = self._moved(planned)
            if moved is None:
                return Outcome("cancelled", planned)
            planned = moved

    def _handed_over(self, planned: TableRow) -> Outcome | None:
        source: dict[str, Any] = {
            "source_log": planned["log"],
            "source_row": planned["row"],
            "source_index": planned["index"],
        }
        named = [*self.rows.of(DISPATCHES, **source), *self.unnamed.of(DISPATCHES, **source)]
        if not named:
            return None
        last = max(named, key=lambda row: (row["dispatch_row"], row["transfer"]))
        target: dict[str, Any] = {
            "log": last["target_log"] or "",
            "row": last["target_row"],
            "index": last["target_index"],
        }
        stored = self.rows.of(MESSAGES, kind=QUEUE, **target) if last["kind"] == "due" else ()
        return Outcome("accepted", stored[0]) if stored else Outcome("scheduled", planned)

    def _cancelled_at(self, planned: TableRow) -> object:
        markers = self.unnamed.of(
            MESSAGES,
            kind=CANCEL_MARKER,
            log=planned["log"],
            cancelled_row=planned["row"],
            cancelled_index=planned["index"],
        )
        return min((marker["accepted_at"] for marker in markers), default=None)

    def _moved(self, planned: TableRow) -> TableRow | None:
        """Returns the row to which a cancelled message was moved. The row has the time of sending in ``produced_at``,
        and is the next one of the message."""
        born = planned["produced_at"] or planned["accepted_at"]
        copies: Sequence[TableRow] = self.rows.of(MESSAGES, kind=SCHEDULE, id=planned["id"])
        later = [
            row
            for row in copies
            if row["produced_at"] == born and row["group"] is None and row["accepted_at"] > planned["accepted_at"]
        ]
        return min(later, key=lambda row: row["accepted_at"], default=None)
