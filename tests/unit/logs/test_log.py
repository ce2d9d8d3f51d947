"""The log: write-once rows, holes, seal, trim."""

from dataclasses import dataclass

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.adapters.system import SystemIds
from hourwheel.errors import Filled, Sealed
from hourwheel.logs.log import GRACE_MS, Log
from hourwheel.logs.rows import Row
from tests.support import NOON_MS, HandClock


@dataclass
class Desk:
    log: Log
    clock: HandClock

    def row(self, count: int = 1) -> Row:
        return Row(number=-1, count=count, at_ms=self.clock.ms, expires_ms=self.clock.ms + 60_000, block=b"x")

    def numbers(self, start: int = 0) -> list[tuple[int, int]]:
        return [(number, row.count) for number, row in self.log.read(start, 100)]


@pytest.fixture
def desk() -> Desk:
    clock = HandClock()
    return Desk(Log(MemoryStore(), clock, SystemIds(), "orders~1/0"), clock)


def test_rows_and_sequences_rise_without_gaps(desk: Desk) -> None:
    assert [desk.log.append(desk.row(count)) for count in (3, 1, 2)] == [(0, 0), (1, 3), (2, 4)]
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


def test_putting_the_same_batch_again_is_harmless(desk: Desk) -> None:
    place = desk.log.reserve(1)
    desk.log.put(place, desk.row(), b"t" * 16)
    desk.log.put(place, desk.row(), b"t" * 16)
    with pytest.raises(Filled):
        desk.log.put(place, desk.row(), b"u" * 16)


def test_a_sealed_log_gives_out_no_rows_and_keeps_those_given_out(desk: Desk) -> None:
    place = desk.log.reserve(1)
    end = desk.log.seal()
    with pytest.raises(Sealed):
        desk.log.append(desk.row())
    desk.log.put(place, desk.row(), b"t" * 16)
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
