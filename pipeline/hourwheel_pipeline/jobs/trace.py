"""Shows where a message is and what each group did with it, from the lake. It needs no server and no Spark, and
finds messages that expired long ago.

The answer has the form of the API's trace: the code of ``hourwheel/trace`` reads the rows of the lake here. The lake
has the archived rows alone: a message that is not compacted yet, and a pull that is open, are in the logs only.
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, timedelta

from pydantic import AwareDatetime, Field, PositiveInt
from pyiceberg.expressions import BooleanExpression

from hourwheel.buckets.scheduled_ids import unchecked_position
from hourwheel.errors import NotFound, Rejected
from hourwheel.model.log_names import shared_name
from hourwheel.model.traces import GroupTrace, MessageTrace, TracePage
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.records import Position
from hourwheel.times import rfc3339
from hourwheel.trace.history import SourceLog
from hourwheel.trace.key_reader import reader_of
from hourwheel.trace.messages import GROUPS, MOST, MessagePosition, accepted_trace, given_ms
from hourwheel.wire.answer_size import answerable
from hourwheel_pipeline.judging.changed_subjects import day_of
from hourwheel_pipeline.lake.schemas import MESSAGES, QUEUE, SCHEDULE, SCHEMAS
from hourwheel_pipeline.runs.job_options import ArchiveOptions
from hourwheel_pipeline.runs.option_faults import Name
from hourwheel_pipeline.tracing.history import LakeHistory
from hourwheel_pipeline.tracing.registry import readers_of
from hourwheel_pipeline.tracing.rows import LakeRows, TableRow, message_of, milliseconds, where
from hourwheel_pipeline.tracing.scheduled import Outcome, Scheduled

__all__ = ["TraceOptions", "run"]


class TraceOptions(ArchiveOptions):
    """The options of ``trace``. ``message`` of ``subject`` is ``queue:offset``, a scheduled id, or the id of a message;
    ``since`` and ``until`` say when a message with this id was accepted. The trace tells of the first 20 groups, or of
    ``group``. Of a subject that was created again the newest ``generation`` with the message counts. ``after`` is
    ``next`` of the answer before.

    Raises:
        ValidationError: an option is unknown, missing or out of its range.

    Example:
        >>> options = trace.TraceOptions(
        ...     archive="orders-data/archive", lake="orders-data/lake", subject="orders", message="0:0"
        ... )
        >>> options.group is None
        True
    """

    subject: Name
    message: str = Field(min_length=1)
    group: Name | None = None
    generation: PositiveInt | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    after: str | None = None


def run(options: TraceOptions, now_ms: int) -> TracePage:
    """Returns the traces of the message, or of the first messages with this id.

    Raises:
        NotFound: the lake has no such message.
        Broken: the lake was copied or moved.

    Example:
        >>> options = trace.TraceOptions(
        ...     archive="orders-data/archive", lake="orders-data/lake", subject="orders", message="0:0"
        ... )
        >>> trace.run(options, now_ms).messages[0].message.body
        'order 1'
    """
    lake = options.find_lake()
    if lake is None:
        raise NotFound("lake-unknown", f"there is no lake in {options.lake}: run compact first")
    with closing(lake):
        last_manifest = max(lake.last_manifest(name) for name in SCHEMAS)
        rows = LakeRows(lake, options.subject)
        return _LakeTrace(options, rows, options.open_archive(), last_manifest, now_ms).page()


@dataclass(frozen=True)
class _LakeTrace:
    options: TraceOptions
    rows: LakeRows
    archive: Blobs
    last_manifest: int
    now_ms: int

    def page(self) -> TracePage:
        named = self.options.message
        target = MessagePosition.parse(named)
        if target is not None:
            return TracePage([self._trace(self._at(target))], None)
        position = unchecked_position(named)
        if position is None:
            return self._by_id(named)
        return TracePage([self._waiting(self._scheduled.look(position), named)], None)

    @property
    def _scheduled(self) -> Scheduled:
        return Scheduled(self.rows, LakeRows(self.rows.lake, ""))

    def _at(self, target: MessagePosition) -> TableRow:
        rows = self._newest(self.rows.of(MESSAGES, kind=QUEUE, queue=target.queue, sequence=target.offset))
        if not rows:
            raise NotFound("message-unknown", f"the lake has no message at {target}")
        return rows[0]

    def _by_id(self, message_id: str) -> TracePage:
        accepted = self._newest(self.rows.of(MESSAGES, *self._span(message_id), kind=QUEUE, id=message_id))
        by_position = {MessagePosition(row["queue"], row["sequence"]): row for row in accepted}
        start = self._after
        ordered = sorted(position for position in by_position if start is None or position >= start)
        if ordered or start is not None:
            following = str(ordered[MOST]) if len(ordered) > MOST else None
            return TracePage([self._trace(by_position[position]) for position in ordered[:MOST]], following)
        waiting = self._newest(self.rows.of(MESSAGES, *self._span(message_id), kind=SCHEDULE, id=message_id))
        # A message that was moved to another time has the time of sending in ``produced_at`` of its later rows.
        sent = [row for row in waiting if row["group"] is None and row["produced_at"] is None]
        if not sent:
            raise NotFound("message-unknown", f"the lake has no message with the id {message_id[:100]!r} in this time")
        return TracePage([self._waiting(self._scheduled.outcome(row)) for row in sent[:MOST]], None)

    def _span(self, message_id: str) -> list[BooleanExpression]:
        """Returns the conditions on the time at which the message was stored. The time in its id sets no upper limit: a
        delayed message is stored again when it falls due, long after."""
        since, until = self.options.since, self.options.until
        at_ms = given_ms(message_id, self.now_ms)
        conditions: list[BooleanExpression] = []
        if since is not None:
            conditions += [where("day", ">=", since.astimezone(UTC).date().isoformat())]
            conditions += [where("accepted_at", ">=", since.isoformat())]
        elif at_ms is not None:
            # A day earlier, because clocks differ.
            conditions += [where("day", ">=", (day_of(at_ms) - timedelta(days=1)).isoformat())]
        return conditions if until is None else [*conditions, where("accepted_at", "<", until.isoformat())]

    @property
    def _after(self) -> MessagePosition | None:
        if self.options.after is None:
            return None
        start = MessagePosition.parse(self.options.after)
        if start is None:
            raise Rejected("field-invalid", f"after is next of the answer before, got {self.options.after!r}")
        return start

    def _newest(self, rows: Sequence[TableRow]) -> list[TableRow]:
        """Returns the rows of the requested generation, or of the newest one, each once."""
        generation = self.options.generation or max((row["generation"] for row in rows), default=0)
        by_row = {(row["log"], row["row"], row["index"]): row for row in rows if row["generation"] == generation}
        return list(by_row.values())

    def _waiting(self, outcome: Outcome, scheduled_id: str | None = None) -> MessageTrace:
        """Returns the trace of a delayed message, which may be in a queue by now."""
        if outcome.state == "accepted":
            trace = self._trace(outcome.row)
            trace.scheduled_id = scheduled_id
            return trace
        due_at = rfc3339(milliseconds(outcome.row["due_at"]))
        name, message_id = self.options.subject, outcome.row["id"] or ""
        return MessageTrace(name, message_id, outcome.state, due_at=due_at, scheduled_id=scheduled_id)

    def _trace(self, row: TableRow) -> MessageTrace:
        message = answerable(message_of(row))
        target = MessagePosition(row["queue"], row["sequence"])
        trace = accepted_trace(self.options.subject, target, milliseconds(row["accepted_at"]), message)
        trace.groups, trace.more_groups = self._groups(row)
        return trace

    def _groups(self, row: TableRow) -> tuple[list[GroupTrace], bool]:
        name, generation, log = self.options.subject, row["generation"], row["log"]
        readers = readers_of(self.archive, self.last_manifest, name, generation, log)
        if self.options.group is not None:
            readers = [reader for reader in readers if shared_name(reader.group.name) == self.options.group]
            if not readers:
                raise NotFound("group-unknown", f"the archive knows no group {self.options.group!r} of {name!r}")
        position = Position(row["row"], row["index"])
        traces = [
            reader_of(
                LakeHistory(self.rows, self.archive, reader.group, self.now_ms), row["queue"], row["sequence"]
            ).trace(SourceLog(log, row["queue"], reader.origin), position)
            for reader in readers[:GROUPS]
        ]
        return traces, len(readers) > GROUPS
