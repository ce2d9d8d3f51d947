"""The log writes rows once, fills holes, seals its end and trims expired rows."""

from dataclasses import dataclass, replace

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.errors import Corrupt, Filled, Sealed
from hourwheel.logs.codec import encode
from hourwheel.logs.large_batches import messages_of
from hourwheel.logs.log import FILLER_MS, GRACE_MS, Log
from hourwheel.logs.rows import Row, row_key
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Key, Record, Refused, Table
from hourwheel.system import SystemIds
from tests.support import NOON_MS, CallByCall, HandClock, ListMeter


@dataclass
class Desk:
    log: Log
    clock: HandClock

    def row(self, count: int = 1) -> Row:
        return Row(first_seq=-1, count=count, at_ms=self.clock.ms, expires_ms=self.clock.ms + 60_000, block=b"x")

    def numbers(self, start: int = 0) -> list[tuple[int, int]]:
        return [(number, row.count) for number, row in self.log.read(start, 100)]


@pytest.fixture
def desk() -> Desk:
    clock = HandClock()
    return Desk(Log(MemoryStore(), clock, SystemIds(), ListMeter(), "orders~1/0"), clock)


def test_rows_and_sequences_rise_without_gaps(desk: Desk) -> None:
    added = [desk.log.append(desk.row(count)) for count in (3, 1, 2)]
    assert [(each.row_no, each.first_seq) for each in added] == [(0, 0), (1, 3), (2, 4)]
    assert desk.numbers() == [(0, 3), (1, 1), (2, 2)]


def test_a_reader_stops_before_a_young_hole(desk: Desk) -> None:
    desk.log.append(desk.row())
    desk.log.reserve(1)
    desk.log.append(desk.row())
    assert desk.numbers() == [(0, 1)]


def test_an_old_hole_is_filled_and_its_late_writer_takes_another_row(desk: Desk) -> None:
    late = desk.log.reserve(1)
    desk.log.append(desk.row())
    desk.clock.pass_time(GRACE_MS / 1_000)
    assert desk.numbers() == [(0, 0), (1, 1)]
    with pytest.raises(Filled):
        desk.log.put(late, desk.row(), b"t" * 16)


def test_a_writer_that_is_faster_than_the_filler_is_read(desk: Desk) -> None:
    late = desk.log.reserve(2)
    desk.log.append(desk.row())
    desk.clock.pass_time(GRACE_MS / 1_000)
    desk.log.put(late, desk.row(2), b"t" * 16)
    assert desk.numbers() == [(0, 2), (1, 1)]


def test_a_row_that_is_written_between_a_look_and_the_filler_is_read(desk: Desk) -> None:
    late = desk.log.reserve(2)
    desk.log.append(desk.row())
    desk.clock.pass_time(GRACE_MS / 1_000)

    class Between(CallByCall):
        """The writer of the row comes just before its filler."""

        def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
            desk.log.put(late, desk.row(2), b"t" * 16)
            return super().put(key, record, expect=expect)

    reader = replace(desk.log, store=Between(desk.log.store))
    assert [(row_no, row.count) for row_no, row in reader.read(0, 9)] == [(0, 2), (1, 1)]


def test_putting_the_same_batch_again_is_harmless(desk: Desk) -> None:
    position = desk.log.reserve(1)
    desk.log.put(position, desk.row(), b"t" * 16)
    desk.log.put(position, desk.row(), b"t" * 16)
    with pytest.raises(Filled):
        desk.log.put(position, desk.row(), b"u" * 16)


def test_a_sealed_log_gives_out_no_rows_and_keeps_those_given_out(desk: Desk) -> None:
    position = desk.log.reserve(1)
    end = desk.log.seal()
    with pytest.raises(Sealed):
        desk.log.append(desk.row())
    desk.log.put(position, desk.row(), b"t" * 16)
    assert (end.rows, desk.numbers()) == (1, [(0, 1)])


def test_a_reader_below_the_trim_mark_begins_at_it(desk: Desk) -> None:
    for _ in range(5):
        desk.log.append(desk.row())
    desk.log.trim(3)
    assert [number for number, _ in desk.numbers()] == [3, 4]
    first = desk.log.first()
    assert first is not None
    assert first[0] == 3


def test_a_hole_at_the_trim_mark_is_still_a_hole(desk: Desk) -> None:
    desk.log.append(desk.row())
    desk.log.reserve(1)
    desk.log.append(desk.row())
    desk.log.trim(1)
    assert desk.numbers() == []
    desk.clock.pass_time(GRACE_MS / 1_000)
    assert desk.numbers() == [(1, 0), (2, 1)]
    assert desk.clock.ms == NOON_MS + GRACE_MS


def test_a_long_hole_is_filled_piece_by_piece(desk: Desk) -> None:
    for _ in range(1_000):
        desk.log.reserve(1)
    desk.log.append(desk.row())
    desk.clock.pass_time(GRACE_MS / 1_000)
    store = CallByCall(desk.log.store)
    rows = Log(store, desk.clock, SystemIds(), ListMeter(), desk.log.name).read(0, 64)
    assert ([number for number, _ in rows], len(store.writes)) == (list(range(64)), 64)
    assert len(desk.log.read(64, 2_000)) == 937


def test_a_filler_outlives_every_idempotency_key(desk: Desk) -> None:
    desk.log.reserve(1)
    desk.log.append(desk.row())
    desk.clock.pass_time(50)
    (_, filler), _ = desk.log.read(0, 9)
    assert (filler.filler, filler.expires_ms) == (True, desk.clock.ms + FILLER_MS)


def test_rows_below_the_trim_mark_that_a_crash_has_left_are_removed(desk: Desk) -> None:
    for _ in range(3):
        desk.log.append(desk.row())
    left = desk.log.store.get(row_key(desk.log.name, 0))
    assert left is not None
    desk.log.trim(2)
    desk.log.store.put(row_key(desk.log.name, 0), left, expect=None)
    desk.log.clear()
    stored = desk.log.store.scan(Table.CONSUME, desk.log.name, limit=9)
    assert [int(sort) for sort, _ in stored] == [2]


def test_the_trim_mark_never_falls(desk: Desk) -> None:
    for _ in range(3):
        desk.log.append(desk.row())
    desk.log.trim(2)
    desk.log.trim(1)
    assert desk.log.trimmed() == 2


def test_a_row_of_another_number_of_messages_than_its_block_is_corrupt() -> None:
    block = encode([NewMessage(body="a")]).data
    with pytest.raises(Corrupt, match="row of 2 messages"):
        messages_of(Row(first_seq=0, count=2, at_ms=0, expires_ms=1, block=block), MemoryBlobs())
