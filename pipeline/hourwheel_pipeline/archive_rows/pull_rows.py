"""Makes rows of the table ``pulls`` from blocks of the archive."""

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from hourwheel.archive import blocks
from hourwheel.errors import Corrupt
from hourwheel.pull_log.records import EXPIRED, PASSED, SETTLED, SOUGHT, UNREADABLE, Moved, PullRow
from hourwheel_pipeline.archive_rows.columns import batch_of, days, ints, lists, pairs, timestamps
from hourwheel_pipeline.archive_rows.names import pull_log_owner
from hourwheel_pipeline.lake.schemas import PULLS, SCHEMAS

OUTCOMES = {
    SETTLED: "settled",
    EXPIRED: "expired",
    SOUGHT: "sought",
    PASSED: "passed",
    UNREADABLE: "unreadable",
}


def pull_rows(block: memoryview, manifest: int) -> Iterator[pa.RecordBatch]:
    decoded = blocks.decode_pulls(block)
    owners = [pull_log_owner(decoded.logs[log]) for log, _, _ in decoded.rows]
    pulls = [pull for _, _, pull in decoded.rows]
    closed = ints(pull.closed_ms for pull in pulls)
    fields = {
        "day": days(closed),
        "subject": [owner.source.subject for owner in owners],
        "log": [decoded.logs[log] for log, _, _ in decoded.rows],
        "source": [owner.source.log for owner in owners],
        "queue": [owner.source.queue for owner in owners],
        "generation": [owner.source.generation for owner in owners],
        "group": [owner.group for owner in owners],
        "group_generation": [owner.group_generation for owner in owners],
        "pull_row": [row for _, row, _ in decoded.rows],
        "consumer": [pull.consumer for pull in pulls],
        "first_row": [pull.first.row_no for pull in pulls],
        "first_index": [pull.first.index for pull in pulls],
        "end_row": [pull.end.row_no for pull in pulls],
        "end_index": [pull.end.index for pull in pulls],
        "end_seq": [pull.end_seq for pull in pulls],
        "counts": [pull.counts for pull in pulls],
        "picks": [None if pull.picks is None else _picks(pull) for pull in pulls],
        "messages": [pull.size for pull in pulls],
        "claimed_at": timestamps(ints(pull.claimed_ms for pull in pulls)),
        "lease_until": timestamps(ints(pull.lease_until_ms for pull in pulls)),
        "closed_at": timestamps(closed),
        "outcome": [_outcome(pull) for pull in pulls],
        "moved": _moves([pull.moved for pull in pulls]),
    }
    yield batch_of(PULLS, fields, len(pulls), manifest)


def _outcome(pull: PullRow) -> str:
    if pull.outcome not in OUTCOMES:
        raise Corrupt(f"pull was closed by {pull.outcome}, which this version does not know")
    return OUTCOMES[pull.outcome]


def _picks(pull: PullRow) -> list[dict[str, int]]:
    """Returns the positions of the messages that a pull of a group with a filter handed out."""
    return [{"row": position.row_no, "index": position.index} for position in pull.positions()]


def _moves(moves: Sequence[Sequence[Moved]]) -> pa.Array:
    kind = SCHEMAS[PULLS].field("moved").type
    flat = list(chain.from_iterable(moves))
    picked = pairs(chain.from_iterable(move.picks for move in flat))
    pick = pa.StructArray.from_arrays(
        [pa.array(picked[:, 0]), pa.array(picked[:, 1], pa.int32())], fields=list(_struct(kind, "picks").value_type)
    )
    columns = {
        "kind": pa.array([move.kind for move in flat], pa.string()),
        "log": pa.array([move.log for move in flat], pa.string()),
        "row": pa.array(ints(move.row_no for move in flat)),
        "number": pa.array(ints(move.first_seq for move in flat)),
        "at": timestamps(ints(move.at_ms for move in flat)),
        "picks": lists([len(move.picks) for move in flat], pick, _struct(kind, "picks")),
    }
    fields = list(kind.value_type)
    structs = pa.StructArray.from_arrays([columns[field.name] for field in fields], fields=fields)
    return lists([len(of_pull) for of_pull in moves], structs, kind)


def _struct(kind: pa.DataType, name: str) -> pa.DataType:
    return kind.value_type.field(name).type
