"""Readers of the mark see only complete numbers while another process raises it."""

import sys
from pathlib import Path

import pytest

from hourwheel.adapters.sqlite.synced_mark import NOTHING, Synced, SyncedMark
from tests.processes import Child

RAISES = 500_000

# Both halves of each number are equal, so that a partial write shows.
WRITER = f"""
import sys
from pathlib import Path
from hourwheel.adapters.sqlite.synced_mark import Synced, SyncedMark
mark = SyncedMark(Path(sys.argv[1]))
for number in range(1, {RAISES} + 1):
    twice = number << 32 | number
    mark.raise_to(Synced(twice, twice))
mark.close()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "synced"


def test_a_reader_sees_whole_numbers_only(path: Path) -> None:
    mark = SyncedMark(path)
    last = RAISES << 32 | RAISES
    with Child([sys.executable, "-c", WRITER, str(path)]) as writer:
        found, torn, fallen = NOTHING, 0, 0
        while writer.poll() is None:
            before, found = found, mark.read() or NOTHING
            torn += any(number >> 32 != number & 0xFFFFFFFF for number in found)
            fallen += found.number < before.number
    assert (torn, fallen, mark.read()) == (0, 0, Synced(last, last))
    mark.close()


def test_a_mark_outlives_its_process_and_is_not_taken_back(path: Path) -> None:
    mark = SyncedMark(path)
    assert mark.read() == NOTHING
    mark.raise_to(Synced(7, 1_000))
    mark.raise_to(Synced(5, 900))
    mark.close()
    again = SyncedMark(path)
    assert again.read() == Synced(7, 1_000)
    again.reset(Synced(3, 800))
    assert again.read() == Synced(3, 800)
    again.close()


def test_a_file_that_says_something_else_is_told_apart(path: Path) -> None:
    path.write_bytes(b"1 cnyswh" + bytes(16))
    mark = SyncedMark(path)
    assert mark.read() is None
    mark.reset(Synced(3, 800))
    assert mark.read() == Synced(3, 800)
    mark.close()
