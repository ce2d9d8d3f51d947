"""Reads rows of the lake without Spark, and turns them into the records of the library."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import groupby
from typing import Any, Final, TypeAlias

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
)

from hourwheel.errors import NotFound
from hourwheel.handover.handover import Transfer
from hourwheel.logs.index_sets import IndexSet, pack, set_of
from hourwheel.model.messages import Message
from hourwheel.pull_log.records import CLOSED, Growth, Moved, Position, PullRow
from hourwheel.times import rfc3339
from hourwheel_pipeline.archive_rows.pull_rows import OUTCOMES
from hourwheel_pipeline.lake.tables import Lake

TableRow: TypeAlias = dict[str, Any]

_CONDITIONS: Final[dict[str, Any]] = {
    "==": EqualTo,
    "!=": NotEqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OUTCOMES = {name: number for number, name in OUTCOMES.items()}


@dataclass
class LakeRows:
    """Reads rows of one subject from the lake. Keeps the rows of each condition, so that they are read once."""

    lake: Lake
    subject: str
    _read: dict[str, Sequence[TableRow]] = field(default_factory=dict)

    def of(
        self, table: str, *conditions: BooleanExpression, columns: Sequence[str] = ("*",), **equal: object
    ) -> Sequence[TableRow]:
        """Returns the rows of the table that meet the conditions; none where there is no such table."""
        equalities = [where(name, "==", value) for name, value in {"subject": self.subject, **equal}.items()]
        condition: BooleanExpression = reduce(And, [*equalities, *conditions])
        key = f"{table} {condition} {columns}"
        if key not in self._read:
            try:
                self._read[key] = self.lake.rows(table, condition, columns).to_pylist()
            except NotFound:
                self._read[key] = []
        return self._read[key]


def where(column: str, operator: str, value: object) -> BooleanExpression:
    """Returns a condition of Iceberg. A condition as text would have to escape the value."""
    condition: BooleanExpression = _CONDITIONS[operator](column, value)
    return condition


def milliseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(milliseconds=1)


def message_of(row: TableRow) -> Message:
    """Returns a message of a queue as a trace shows it."""
    due, produced = row["due_at"], row["produced_at"] or row["accepted_at"]
    return Message(
        body=row["body"],
        body_base64=row["body_bytes"],
        key=row["key"],
        tags=row["tags"],
        headers=None if row["headers"] is None else dict(row["headers"]),
        id=row["id"],
        queue=row["queue"],
        offset=row["sequence"],
        produced_at=rfc3339(milliseconds(produced)),
        due_at=None if due is None else rfc3339(milliseconds(due)),
    )


def pull_row_of(row: TableRow) -> PullRow:
    """Returns a closed row of a pull log, without its claim and its receipts, which are not in the lake."""
    return PullRow(
        consumer=row["consumer"],
        first=Position(row["first_row"], row["first_index"]),
        counts=tuple(row["counts"]),
        end=Position(row["end_row"], row["end_index"]),
        end_seq=row["end_seq"],
        claim=b"",
        claimed_ms=milliseconds(row["claimed_at"]),
        lease_until_ms=milliseconds(row["lease_until"]),
        state=CLOSED,
        outcome=_OUTCOMES[row["outcome"]],
        closed_ms=milliseconds(row["closed_at"]),
        moved=tuple(map(_moved, row["moved"])),
        picks=None if row["picks"] is None else _picks(row),
        growth=_growth(row),
    )


def _growth(row: TableRow) -> Growth | None:
    """Returns how many rows of its source the pull covers at its end whose messages it kept, and released. The table
    counts the others as its messages."""
    ahead, left = 0, sum(row["counts"]) - row["messages"]
    while left > 0:
        ahead += 1
        left -= row["counts"][-ahead]
    return Growth(0, ahead=ahead) if ahead else None


def transfer_of(row: TableRow) -> Transfer:
    """Returns the transfer of one message by a wheel."""
    return Transfer(
        kind=row["kind"],
        log=row["target_log"] or "",
        row_no=row["target_row"] or 0,
        first_seq=0 if row["target_log"] is None else row["target_sequence"] - row["target_index"],
        token=b"",
        at_ms=milliseconds(row["at"]),
        expires_ms=0,
        picks=((row["source_row"], row["source_index"]),),
    )


def _moved(move: Mapping[str, Any]) -> Moved:
    picks = tuple((pick["row"], pick["index"]) for pick in move["picks"])
    return Moved(move["kind"], move["log"], move["row"], move["number"], milliseconds(move["at"]), picks)


def _picks(row: TableRow) -> tuple[IndexSet | None, ...]:
    """Returns for each row that the pull covers the indexes that the pull took; None for a row of which it took
    none."""
    taken = {number: set_of(_indexes(picks)) for number, picks in groupby(row["picks"], lambda pick: pick["row"])}
    return tuple(
        pack(taken[number]) if number in taken else None for number, _ in enumerate(row["counts"], row["first_row"])
    )


def _indexes(picks: Iterable[Mapping[str, int]]) -> list[int]:
    return [pick["index"] for pick in picks]
