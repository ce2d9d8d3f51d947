"""Reads the history of a group from the lake, which has every archived row, also after the logs have expired."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter

from hourwheel.archive.reading import pull_rows
from hourwheel.dead_letters.dead_rows import DeadState
from hourwheel.handover.handover import Transfer
from hourwheel.logs.entries import DueTimes, encode_entry
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group
from hourwheel.model.log_names import is_schedule, pull_log
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.records import SOUGHT, Moved, Position, PullRow, Tail
from hourwheel.retention.chain import read
from hourwheel.trace.claims import Claims
from hourwheel.trace.history import RedrivenCopy, SourceLog
from hourwheel_pipeline.lake.schemas import (
    DEAD,
    DISPATCHES,
    DROP_MARKER,
    MARKERS,
    MESSAGES,
    PULLS,
    RETRY,
    SCHEDULE,
)
from hourwheel_pipeline.tracing.rows import LakeRows, TableRow, milliseconds, pull_row_of, transfer_of, where

_ENDS = ("log", "pull_row", "first_row", "first_index", "end_row", "end_index", "manifest")
_ORDERED_ROWS = 1_000
"""The trace of a message of an ordered group reads at most this many pull rows, as the trace from the
logs does."""

REDRIVEN = "redriven"

_ATTEMPT = ("group", "group_generation", "origin_queue", "origin_offset", "attempt")
"""The columns by which the copies of one attempt in schedule logs are equal."""

_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class LakeHistory:
    """The history of ``group``, from the ``rows`` of its subject. Pull rows of an ordered group are read from the
    ``archive``: the lake does not tell which messages were parked."""

    rows: LakeRows
    archive: Blobs
    group: Group
    at_ms: int

    def now_ms(self) -> int:
        return self.at_ms

    def claims(self, log: SourceLog, position: Position) -> Claims:
        ends = self._ends(log)
        tail = Tail(0, Position(log.origin), 0)
        if ends:
            tail = Tail(ends[-1]["pull_row"] + 1, _end(ends[-1]), 0)
        around = self.rows.of(
            PULLS,
            where("first_row", "<=", position.row_no),
            where("end_row", ">=", position.row_no),
            source=log.name,
        )
        own = sorted((row for row in around if row["log"] == self._log(log)), key=lambda row: row["pull_row"])
        pulls = [(row["pull_row"], pull_row_of(row)) for row in own]
        covering = [(number, row) for number, row in pulls if row.outcome != SOUGHT and row.first <= position < row.end]
        complete = not ends or ends[-1]["pull_row"] + 1 == len(ends)
        forgotten = not covering and not complete and position < tail.position
        return Claims(covering, tail, complete, forgotten)

    def latest_pulls(self, log: SourceLog, position: Position) -> tuple[Sequence[PullRow], bool]:
        since = [row for row in self._ends(log) if _end(row) > position][:_ORDERED_ROWS]
        manifests = sorted({row["manifest"] for row in since})
        numbers = {row["pull_row"] for row in since}
        by_number = {
            row_no: row for number in manifests for row_no, row in self._archived(number, log) if row_no in numbers
        }
        complete = len(by_number) == len(numbers) < _ORDERED_ROWS
        return [by_number[row_no] for row_no in sorted(by_number)], complete

    def row(self, log: str, row_no: int) -> Row | None:
        copies = self._copies(log, row_no)
        if not copies:
            return None
        first = copies[0]
        meta = b""
        if is_schedule(log):
            member = None if first["group"] is None else f"{first['group']}~{first['group_generation']}"
            dues = [milliseconds(copy["due_at"]) for copy in copies]
            meta = encode_entry(DueTimes.of(first["subject"], first["generation"], member, dues))
        expires_ms = 0 if first["expires_at"] is None else milliseconds(first["expires_at"])
        return Row(first["sequence"], len(copies), milliseconds(first["accepted_at"]), expires_ms, meta=meta)

    def removed(self, log: str, row_no: int) -> bool:
        return True  # a row that the lake lacks by now was removed before it could be archived

    def offsets(self, log: str, row_no: int, row: Row) -> list[tuple[int | None, int | None]]:
        return [(copy["origin_queue"], copy["origin_offset"]) for copy in self._copies(log, row_no)]

    def detail(self, log: str, row_no: int, row: Row, index: int) -> str | None:
        return None  # the tables leave the texts of handlers out

    def dispatched(self, log: str, row_no: int, index: int, due_ms: int) -> tuple[Transfer, int, int] | None:
        named = self.rows.of(DISPATCHES, source_log=log, source_row=row_no, source_index=index)
        if not named:
            return None
        last = max(named, key=lambda row: (row["dispatch_row"], row["transfer"]))
        return transfer_of(last), last["target_index"] or 0, milliseconds(last["at"])

    def moved(self, log: str, row_no: int, index: int) -> tuple[str, int] | None:
        """Returns the next copy of the attempt in a schedule log: of those that no wheel has handed over, each but the
        last was moved."""
        (before,) = self.rows.of(MESSAGES, log=log, row=row_no, index=index)
        attempt = dict(zip(_ATTEMPT, itemgetter(*_ATTEMPT)(before), strict=True))
        since = where("accepted_at", ">", before["accepted_at"])
        later = self.rows.of(MESSAGES, since, kind=SCHEDULE, **attempt)
        following = min(later, key=itemgetter("accepted_at"), default=None)
        return None if following is None else (following["log"], following["row"])

    def dead_state(self, row_no: int) -> DeadState | None:
        """Returns the dead letters of the row that were redriven or dropped. The lake has no row about a redrive, but a
        redriven letter has a first attempt in the retry log after its death."""
        drops = self.rows.of(MESSAGES, kind=DROP_MARKER, log=self.group.dead_log, cancelled_row=row_no)
        done, moved = {drop["cancelled_index"] for drop in drops}, []
        for letter in self._copies(self.group.dead_log, row_no):
            retried = self._redriven(letter)
            if retried is not None:
                done.add(letter["index"])
                pick = (row_no, letter["index"])
                at_ms = milliseconds(retried["accepted_at"])
                moved.append(Moved(REDRIVEN, retried["log"], retried["row"], retried["sequence"], at_ms, (pick,)))
        return DeadState(expires_ms=0, done=frozenset(done), moved=tuple(moved)) if done else None

    def redriven(self, queue: int, offset: int, died_ms: int, others: Set[Position]) -> RedrivenCopy | None:
        return None  # rows of dead letters are removed once they are archived: the lake has them

    def _redriven(self, letter: TableRow) -> TableRow | None:
        """Returns the first attempt after the letter's death and before the next death of the message; None if there is
        no such attempt."""
        origin = {"origin_queue": letter["origin_queue"], "origin_offset": letter["origin_offset"]}
        deaths = self.rows.of(MESSAGES, kind=DEAD, log=self.group.dead_log, **origin)
        first_attempts = self.rows.of(MESSAGES, kind=RETRY, log=self.group.retry_log, attempt=1, **origin)
        died = letter["accepted_at"], letter["row"]
        times = ((death["accepted_at"], death["row"]) for death in deaths)
        later = min((time for time in times if time > died), default=(_NEVER, 0))
        between = (attempt for attempt in first_attempts if died[0] <= attempt["accepted_at"] <= later[0])
        return min(between, key=lambda attempt: attempt["row"], default=None)

    def _copies(self, log: str, row_no: int) -> list[TableRow]:
        """Returns the messages of a row, by their index."""
        rows = self.rows.of(MESSAGES, log=log, row=row_no)
        return sorted((row for row in rows if row["kind"] not in MARKERS), key=lambda row: row["index"])

    def _ends(self, log: SourceLog) -> list[TableRow]:
        """Returns the ranges of the group's pull rows, in their order."""
        rows = self.rows.of(PULLS, columns=_ENDS, source=log.name)
        return sorted((row for row in rows if row["log"] == self._log(log)), key=lambda row: row["pull_row"])

    def _archived(self, manifest: int, log: SourceLog) -> list[tuple[int, OrderedRow]]:
        stored, pulls = read(self.archive, manifest), (PULLS, self._log(log))
        return [
            (row_no, row)
            for segment in (stored.segments if stored is not None else ())
            if pulls in {(segment.kind, part.log) for part in segment.parts}
            for name, row_no, row in pull_rows(self.archive, segment)
            if name == self._log(log)
        ]

    def _log(self, log: SourceLog) -> str:
        return pull_log(self.group.member, log.name)


def _end(row: TableRow) -> Position:
    return Position(row["end_row"], row["end_index"])
