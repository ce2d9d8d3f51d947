"""Rows of the archive become rows of the tables: compared message by message."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.archive import segments
from hourwheel.archive.blocks import SCHEMAS as BLOCK_SCHEMAS
from hourwheel.archive.blocks import Entry, TextColumn
from hourwheel.archive.reading import read_segment
from hourwheel.delay.ownership import Dispatched
from hourwheel.errors import Corrupt
from hourwheel.handover.handover import Transfer
from hourwheel.logs.codec import pack
from hourwheel.logs.entries import CancelMarker, DueTimes, decode_drop_marker, decode_entry, encode_entry
from hourwheel.model.messages import Message, message_bytes
from hourwheel.ports.storage import Blobs
from hourwheel.pull_log.records import CLOSED, EXPIRED, SETTLED, Moved, Position, PullRow
from hourwheel.times import parse_rfc3339, rfc3339
from hourwheel_pipeline.archive_rows.arrow import batches
from hourwheel_pipeline.archive_rows.compression import decompress
from hourwheel_pipeline.archive_rows.pull_rows import OUTCOMES
from hourwheel_pipeline.archive_rows.reading import Work, manifests_from
from hourwheel_pipeline.lake.schemas import DISPATCHES, MARKERS, MESSAGES, PULLS, SCHEMAS
from tests.pipeline.archives import RETENTION_MS, ArchiveBuilder
from tests.pipeline.worlds import World, lively
from tests.unit.archive.reading import Contents, contents

NOON_MS = 1_763_640_000_000
BUCKET = f"{NOON_MS:013d}-60/000"
LATER = f"schedule/{BUCKET}"


def rows_of(archive: Blobs, kind: str = MESSAGES) -> list[dict[str, Any]]:
    """Returns the rows of all segments of the kind."""
    found = []
    for manifest in manifests_from(archive, 0):
        for segment in manifest.segments:
            if segment.kind == kind:
                for batch in batches(kind, read_segment(archive, Work.of(manifest.number, segment)), manifest.number):
                    assert batch.schema.equals(SCHEMAS[kind])
                    batch.validate(full=True)
                    assert not any(batch[field.name].null_count for field in batch.schema if not field.nullable)
                    found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def written(text: str | None) -> datetime | None:
    return None if text is None else moment(parse_rfc3339(text, "time"))


def day(ms: int) -> date:
    return datetime.fromtimestamp(ms // 1_000, UTC).date()


def told(message: Message, log: str, entry: Entry, index: int) -> dict[str, Any]:
    """Returns the expected row for a message, without the number of its manifest."""
    subject, generation, queue, member = taken_apart(log, entry)
    kind = kind_of(log)
    group, _, number = (member or "").rpartition("~")
    due = written(message.due_at)
    if kind == "schedule":
        note = decode_entry(entry.meta)
        assert isinstance(note, DueTimes)
        due = moment(note.due_ms(index))
    sequence = entry.first_seq + index
    return {
        "day": day(entry.at_ms),
        "subject": subject,
        "log": log,
        "kind": kind,
        "generation": generation,
        "queue": queue,
        "group": group or None,
        "group_generation": int(number) if number else None,
        "row": entry.row_no,
        "index": index,
        "sequence": sequence,
        "origin_queue": queue if kind == "queue" else message.queue,
        "origin_offset": sequence if kind == "queue" else message.offset,
        "id": message.id,
        "key": message.key,
        "tags": message.tags,
        "headers": message.headers,
        "body": message.body,
        "body_bytes": message.body_base64,
        "size": message_bytes(message),
        "attempt": 1 if kind == "queue" else message.attempt or None,
        "accepted_at": moment(entry.at_ms),
        "produced_at": written(message.produced_at),
        "due_at": due,
        "died_at": written(message.died_at),
        "reason": message.reason,
        "expires_at": moment(entry.expires_ms) if entry.expires_ms else None,
        "cancelled_row": None,
        "cancelled_index": None,
    }


def kind_of(log: str) -> str:
    if log.startswith("schedule/"):
        return "schedule"
    parts = log.split("/")
    if parts[1:] == ["dead"]:
        return "orphan"
    return parts[1] if len(parts) == 3 else "queue"


def taken_apart(log: str, entry: Entry) -> tuple[str, int, int | None, str | None]:
    """Returns the subject, generation, queue and group in the name of a log."""
    if log.startswith("schedule/"):
        note = decode_entry(entry.meta)
        assert isinstance(note, DueTimes)
        return note.subject, note.generation, None, note.member
    subject, generation, queue, rest = source_of(log)
    return subject, generation, queue, rest[1] if len(rest) == 2 else None


def source_of(log: str) -> tuple[str, int, int | None, list[str]]:
    """Returns the subject, generation and queue in the name ``[cell:]subject~generation/queue[.part]`` of a log, and
    what follows the first slash."""
    owner, *rest = log.rpartition(":")[2].split("/")
    subject, _, generation = owner.rpartition("~")
    queue = rest[0].partition(".")[0]
    return subject, int(generation), int(queue) if len(rest) == 1 and queue.isdigit() else None, rest


def expected(found: Contents) -> list[dict[str, Any]]:
    return [told(message, log, found.entries[log, row], index) for (log, row, index), message in found.messages.items()]


def without_manifest(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "manifest"} for row in rows]


def by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(without_manifest(rows), key=lambda row: (row["log"], row["row"], row["index"]))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Returns a cell that has done everything that a cell can do."""
    found = World(tmp_path_factory.mktemp("world"))
    lively(found)
    found.archived()
    return found


def test_of_a_real_cell_each_message_becomes_the_row_that_it_should(world: World) -> None:
    archive = FileBlobs(world.archive)
    rows = rows_of(archive)
    assert {row["kind"] for row in rows} == {"queue", "retry", "dead", "orphan", "schedule", *MARKERS}
    assert by_place([row for row in rows if row["kind"] not in MARKERS]) == by_place(expected(contents(archive)))


def test_of_a_real_cell_each_dead_letter_that_was_dropped_has_a_row(world: World) -> None:
    archive = FileBlobs(world.archive)
    drops = [
        (log, row, decode_drop_marker(entry.meta))
        for (log, row), entry in contents(archive).entries.items()
        if entry.meta and kind_of(log) == "dead" and not entry.count
    ]
    expected_rows = [(log, row, drop.row_no, index) for log, row, drop in drops for index in drop.indexes]
    rows = [row for row in rows_of(archive) if row["kind"] == "drop_marker"]
    assert [(row["log"], row["row"], row["cancelled_row"], row["cancelled_index"]) for row in rows] == expected_rows
    assert expected_rows
    assert {row["group"] for row in rows} == {"billing"}


def test_of_a_real_cell_each_cancel_marker_becomes_a_row(world: World) -> None:
    archive = FileBlobs(world.archive)
    found = contents(archive)
    waiting = [(log, row, entry) for (log, row), entry in found.entries.items() if kind_of(log) == "schedule"]
    notes = [(log, row, decode_entry(entry.meta)) for log, row, entry in waiting if entry.meta]
    cancel_markers = sorted(
        (log, row, note.row_no, note.index) for log, row, note in notes if isinstance(note, CancelMarker)
    )
    rows = [row for row in rows_of(archive) if row["kind"] == "cancel_marker"]
    assert (
        sorted((row["log"], row["row"], row["cancelled_row"], row["cancelled_index"]) for row in rows) == cancel_markers
    )
    assert cancel_markers


def test_of_a_real_cell_each_pull_becomes_the_row_that_it_should(world: World) -> None:
    archive = FileBlobs(world.archive)
    rows = {(row["log"], row["pull_row"]): row for row in rows_of(archive, PULLS)}
    pulls = contents(archive).pulls
    assert rows.keys() == pulls.keys()
    for (log, number), pull in pulls.items():
        assert_told(rows[log, number], log, pull)


def assert_told(row: dict[str, Any], log: str, pull: PullRow) -> None:
    member, _, source = log.partition("@")
    group, _, number = member.rpartition("~")
    assert (row["group"], row["group_generation"], row["source"]) == (group, int(number), source)
    assert (row["subject"], row["generation"], row["queue"]) == source_of(source)[:3]
    assert Position(row["first_row"], row["first_index"]) == pull.first
    assert Position(row["end_row"], row["end_index"]) == pull.end
    assert (row["end_seq"], row["consumer"]) == (pull.end_seq, pull.consumer)
    assert (tuple(row["counts"]), row["messages"]) == (pull.counts, sum(pull.counts))
    picks = None if row["picks"] is None else [Position(pick["row"], pick["index"]) for pick in row["picks"]]
    assert picks == (None if pull.picks is None else pull.positions())
    assert (row["claimed_at"], row["lease_until"]) == (moment(pull.claimed_ms), moment(pull.lease_until_ms))
    assert (row["closed_at"], row["day"]) == (moment(pull.closed_ms), day(pull.closed_ms))
    assert row["outcome"] == OUTCOMES[pull.outcome]
    moved = [
        Moved(
            kind=one["kind"],
            log=one["log"],
            row_no=one["row"],
            first_seq=one["number"],
            at_ms=round(one["at"].timestamp() * 1_000),
            picks=tuple((pick["row"], pick["index"]) for pick in one["picks"]),
        )
        for one in row["moved"]
    ]
    assert tuple(moved) == pull.moved


def test_of_a_real_cell_each_dispatched_message_becomes_a_row(world: World) -> None:
    archive = FileBlobs(world.archive)
    rows = rows_of(archive, DISPATCHES)
    tag_filter = [
        (bucket, number, place, transfer, at, pick)
        for (bucket, number), dispatched in contents(archive).dispatches.items()
        for place, transfer in enumerate(dispatched.transfers)
        for at, pick in enumerate(transfer.picks)
    ]
    assert tag_filter
    found = {(r["bucket"], r["dispatch_row"], r["transfer"], r["source_row"], r["source_index"]): r for r in rows}
    assert len(found) == len(rows) == len(tag_filter)
    for bucket, number, place, transfer, at, pick in tag_filter:
        row = found[bucket, number, place, *pick]
        assert row["source_log"] == f"schedule/{bucket}"
        assert (row["kind"], row["target_log"]) == (transfer.kind, transfer.log or None)
        assert row["subject"] == (source_of(transfer.log)[0] if transfer.log else "")
        target = (transfer.row_no, at, transfer.first_seq + at) if transfer.log else (None, None, None)
        assert (row["target_row"], row["target_index"], row["target_sequence"]) == target
        assert (row["at"], row["day"]) == (moment(transfer.at_ms), day(transfer.at_ms))


texts = st.none() | st.text(min_size=1, max_size=8)
times = st.none() | st.integers(0, 4_000_000_000_000).map(rfc3339)
generated = st.builds(
    Message,
    body=texts,
    body_base64=st.none() | st.binary(max_size=8),
    key=texts,
    tags=st.none() | st.lists(st.text(max_size=4), max_size=3),
    headers=st.none() | st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=3),
    id=texts,
    queue=st.none() | st.integers(0, 63),
    offset=st.none() | st.integers(0, 2**62),
    attempt=st.integers(0, 20),
    produced_at=times,
    due_at=times,
    died_at=times,
    reason=texts,
).map(lambda message: message if message.body is not None else msgspec.structs.replace(message, body_base64=b"x"))

LOGS = ("a~1/0", "a~2/3", "b.c~1/retry/g~2", "b.c~1/dead/g~2", "b.c~1/dead", LATER)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(LOGS), st.lists(generated, max_size=4)), max_size=12), st.integers(1, 5))
def test_any_messages_become_the_rows_that_they_should(batch: list[tuple[str, list[Message]]], block_rows: int) -> None:
    archive = MemoryBlobs()
    builder = ArchiveBuilder(archive, block_rows=block_rows)
    for at, (log, messages) in enumerate(batch):
        plan = DueTimes.of(
            "s", 1, "g~1" if at % 2 else None, [NOON_MS + at, *range(NOON_MS, NOON_MS + len(messages) - 1)]
        )
        note = encode_entry(plan) if log == LATER and messages else b""
        builder.row(log, messages, NOON_MS + 1_000 * at, note=note)
    builder.commit()
    rows = rows_of(archive)
    assert by_place(rows) == by_place(expected(contents(archive)))
    assert all(row["manifest"] == 0 for row in rows)


def test_rows_that_hold_no_messages_become_no_rows() -> None:
    archive = MemoryBlobs()
    builder = ArchiveBuilder(archive)
    builder.row("a~1/0", [], NOON_MS)
    builder.row("a~1/0", [Message(body="x")], NOON_MS)
    builder.row("a~1/0", [], NOON_MS)
    builder.commit()
    assert [(row["row"], row["sequence"]) for row in rows_of(archive)] == [(1, 0)]


def test_a_cancel_marker_is_a_row_among_messages() -> None:
    archive = MemoryBlobs()
    builder = ArchiveBuilder(archive)
    note = encode_entry(DueTimes("a", 1, None, NOON_MS + 5, (0, 7)))
    builder.row(LATER, [Message(body="x"), Message(body="y")], NOON_MS, note=note)
    builder.row(LATER, [], NOON_MS + 1, note=encode_entry(CancelMarker(0, 1)))
    builder.commit()
    first, second, cancel_marker = rows_of(archive)
    assert [row["due_at"] for row in (first, second)] == [moment(NOON_MS + 5), moment(NOON_MS + 12)]
    assert (cancel_marker["kind"], cancel_marker["subject"], cancel_marker["row"]) == ("cancel_marker", "", 1)
    assert (
        cancel_marker["cancelled_row"],
        cancel_marker["cancelled_index"],
        cancel_marker["body"],
        cancel_marker["size"],
    ) == (0, 1, None, None)
    assert cancel_marker["accepted_at"] == moment(NOON_MS + 1)


def pull(**given: Any) -> PullRow:
    values = {
        "consumer": "c",
        "first": Position(0, 1),
        "counts": (2, 0, 1),
        "end": Position(2, 1),
        "end_seq": 4,
        "claim": b"",
        "claimed_ms": NOON_MS,
        "lease_until_ms": NOON_MS + 30_000,
        "state": CLOSED,
        "outcome": SETTLED,
        "closed_ms": NOON_MS + 1_000,
    }
    return PullRow(**{**values, **given})


def test_pulls_with_and_without_moves_become_rows() -> None:
    archive = MemoryBlobs()
    builder = ArchiveBuilder(archive)
    moves = (
        Moved("retry", "a~1/retry/g~1", 4, 9, NOON_MS + 1, ((0, 1), (2, 0))),
        Moved("rejected", "a~1/dead/g~1", 0, 0, NOON_MS + 2, ((0, 2),)),
    )
    pulls = [pull(), pull(moved=moves, outcome=EXPIRED), pull(moved=moves[:1])]
    for one in pulls:
        builder.pull("g~1@a~1/0", one)
    builder.commit()
    rows = rows_of(archive, PULLS)
    for row, one in zip(rows, pulls, strict=True):
        assert_told(row, "g~1@a~1/0", one)


def test_a_dropped_message_has_no_target_and_no_subject() -> None:
    archive = MemoryBlobs()
    builder = ArchiveBuilder(archive)
    due = Transfer(
        kind="due",
        log="a~1/0",
        row_no=3,
        first_seq=7,
        token=b"",
        at_ms=NOON_MS,
        expires_ms=NOON_MS + 1,
        picks=((0, 1), (5, 0)),
    )
    dropped = Transfer(
        kind="dropped", log="", row_no=0, first_seq=0, token=b"", at_ms=NOON_MS, expires_ms=NOON_MS, picks=((1, 0),)
    )
    builder.dispatch(BUCKET, Dispatched(owner="o", at_ms=NOON_MS))
    builder.dispatch(BUCKET, Dispatched(owner="o", at_ms=NOON_MS, transfers=(due, dropped)))
    builder.commit()
    first, second, third = rows_of(archive, DISPATCHES)
    assert [(row["target_row"], row["target_index"], row["target_sequence"]) for row in (first, second, third)] == [
        (3, 0, 7),
        (3, 1, 8),
        (None, None, None),
    ]
    assert (third["subject"], third["target_log"], third["expires_at"]) == ("", None, None)
    assert (first["expires_at"], third["transfer"], third["dispatch_row"]) == (moment(NOON_MS + 1), 1, 1)


def test_only_dispatch_rows_without_transfers_make_no_batch() -> None:
    archive = MemoryBlobs()
    builder = ArchiveBuilder(archive)
    builder.dispatch(BUCKET, Dispatched(owner="o", at_ms=NOON_MS))
    builder.commit()
    assert rows_of(archive, DISPATCHES) == []


def spoilt(payload: object, kind: str = MESSAGES, count: int = 1) -> bytes:
    """Returns a valid segment whose one block has this content."""
    block = pack(msgspec.msgpack.encode(payload), count, BLOCK_SCHEMAS[kind], 3)
    return segments.join(kind, [block])


def an_entry(**given: Any) -> list[Any]:
    values = {
        "log": 0,
        "row_no": 0,
        "first_seq": 0,
        "count": 1,
        "present": 1,
        "at_ms": NOON_MS,
        "expires_ms": 0,
        "meta": b"",
    }
    return list({**values, **given}.values())


def texts(*values: str) -> TextColumn:
    return TextColumn.of(values)


BODY = {"body": texts("x")}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ([["a~1/0"], [an_entry(at_ms=-1)], BODY], "is out of range"),
        ([["a~1/0"], [an_entry(at_ms=2**60)], BODY], "is out of range"),
        ([["a~1/0"], [an_entry(row_no=2**63)], BODY], "no column can"),
        ([["a~1/0"], [an_entry()], {}], "holds no bodies"),
        ([["a~1/0"], [an_entry()], {**BODY, "produced_at": texts("soon")}], "no column can"),
        ([["a~1/0"], [an_entry()], {**BODY, "attempt": [2**40]}], "no column can"),
        ([["a~1/0"], [an_entry()], {"body": [b"\1\0\0\0", b"\xff"]}], "a text that is none"),
        ([["a~1/0"], [an_entry(count=2, present=2)], {"body": [b"\1\0\0\0" * 2, "é".encode()]}], "a text that is none"),
        ([["a~1/0"], [an_entry()], {"body": [b"\1\0\0\0", b""]}], "their lengths say 1"),
        ([["a~1/0"], [an_entry()], {"body": [b"\0\0\0\0", b"x"]}], "their lengths say 0"),
        ([["a~1/0"], [an_entry()], {"body": [b"\1\0\0", b"x"]}], "body of 0.75"),
        ([["a~1/0"], [an_entry()], {"body": [b"\1\0\0\0\0\0\0\0", b"x"]}], "body of 2.0"),
        ([["a~1/0"], [an_entry()], {"body": ["x"]}], "holds no messages"),
        ([["a"], [an_entry()], BODY], "not the name of a log"),
        ([["a~1/retry"], [an_entry()], BODY], "not the name of a log"),
        ([[LATER], [an_entry(meta=b"?")], BODY], "not an entry of a schedule row"),
        ([[LATER], [an_entry(meta=encode_entry(DueTimes("a", 1, "g", 5)))], BODY], "not the name of a group"),
        ([[LATER], [an_entry(meta=encode_entry(DueTimes("a", 1, None, 5, (1, 2))))], BODY], "due times for 2"),
    ],
)
def test_a_block_that_makes_no_sense_is_corrupt(payload: object, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason):
        list(batches(MESSAGES, spoilt(payload), 0))


def test_a_pull_closed_in_a_way_that_is_not_known_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="closed by 77"):
        list(batches(PULLS, spoilt([["g~1@a~1/0"], [[0, 0, pull(outcome=77)]]], PULLS), 0))


@pytest.mark.parametrize("name", ["a~1/0", "g@a~1/0", "g~1@schedule/x"])
def test_pulls_of_a_log_that_has_none_are_corrupt(name: str) -> None:
    with pytest.raises(Corrupt, match="not the name"):
        list(batches(PULLS, spoilt([[name], [[0, 0, pull()]]], PULLS), 0))


@pytest.mark.parametrize("claimed", [0, 99, 101])
def test_a_payload_of_another_size_than_its_block_claims_is_corrupt(claimed: int) -> None:
    packed = memoryview(pa.compress(b"m" * 100, "zstd", asbytes=True))
    assert decompress(packed, 100) == b"m" * 100
    with pytest.raises(Corrupt, match="does not unpack"):
        decompress(packed, claimed)


def test_blocks_come_one_by_one() -> None:
    archive = MemoryBlobs()
    builder = ArchiveBuilder(archive, block_rows=2)
    for at in range(5):
        builder.row("a~1/0", [Message(body=str(at))], NOON_MS, expires_ms=NOON_MS + RETENTION_MS)
    (segment,) = builder.commit().segments
    found: Iterator[pa.RecordBatch] = batches(MESSAGES, archive.get(segment.key), 0)
    assert [batch.num_rows for batch in found] == [2, 2, 1]
