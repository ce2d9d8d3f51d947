"""A pass of the archive is a value, and decides without a store."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hourwheel.archive.passes import MANIFEST_EVERY_MS, LogRead, Pass, commit_is_full
from hourwheel.retention.watermarks import ArchiveHead

BEGAN_MS = 1_763_640_000_000
NOW_MS = BEGAN_MS + 90_000

READ, LEFT_OUT, FULL = LogRead.TO_ITS_END, LogRead.ROWS_LEFT, LogRead.COMMIT_FULL


def walk(begun: Pass, reads: Sequence[LogRead], logs: str = "abc", stop_at: str = "") -> Pass:
    """Returns the pass after these logs were read; the commit has no room behind ``stop_at``."""
    current = begun
    for log, read in zip(logs, reads, strict=False):
        if log == logs[-1]:
            return current.after_last(log, read)
        current = current.after(log, read)
        if log == stop_at:
            current = current.stopped()
        if current.commit_full:
            break
    return current


BEGUN = Pass.of(ArchiveHead(), BEGAN_MS)


def test_a_pass_that_has_read_each_log_to_its_end_is_complete() -> None:
    ended = walk(BEGUN, [READ, READ, READ])
    assert (ended.complete_ms, ended.commit_full) == (BEGAN_MS, False)
    assert ended.head(ArchiveHead(number=7, resume="x", pass_ms=1)) == ArchiveHead(number=7)


def test_a_pass_that_left_a_row_out_ends_and_is_not_complete() -> None:
    ended = walk(BEGUN, [READ, LEFT_OUT, READ])
    assert (ended.complete_ms, ended.commit_full) == (0, False)
    assert ended.head(ArchiveHead()).complete, "the next pass begins with nothing left out"


def test_a_commit_that_is_full_within_a_log_goes_on_with_the_rest_of_that_log() -> None:
    stopped = walk(BEGUN, [READ, FULL])
    assert (stopped.commit_full, stopped.last, stopped.complete) == (True, "a", True)
    assert stopped.head(ArchiveHead()) == ArchiveHead(resume="a", pass_ms=BEGAN_MS, complete=True)


def test_a_log_that_fills_a_commit_by_itself_gives_others_their_turn() -> None:
    stopped = walk(BEGUN, [FULL])
    assert (stopped.commit_full, stopped.last, stopped.complete) == (True, "a", False)
    assert stopped.head(ArchiveHead()) == ArchiveHead(resume="a", pass_ms=BEGAN_MS, complete=False)


def test_a_last_log_that_fills_a_commit_by_itself_ends_a_pass_that_is_not_complete() -> None:
    ended = walk(replace(BEGUN, first="b", last="b"), [FULL], logs="c")
    assert (ended.commit_full, ended.complete_ms) == (False, 0)


def test_a_commit_that_is_full_between_two_logs_goes_on_behind_the_first() -> None:
    stopped = walk(BEGUN, [READ, READ, READ], stop_at="b")
    assert (stopped.commit_full, stopped.last, stopped.complete, stopped.complete_ms) == (True, "b", True, 0)


def test_a_commit_that_is_full_behind_the_last_log_ends_the_pass() -> None:
    ended = walk(BEGUN, [READ, READ, READ], stop_at="c")
    assert (ended.commit_full, ended.complete_ms) == (False, BEGAN_MS)


@pytest.mark.parametrize("read", [READ, LEFT_OUT])
def test_a_pass_in_several_commits_is_complete_when_each_of_them_left_nothing_out(read: LogRead) -> None:
    head = walk(BEGUN, [read, READ, READ], stop_at="b").head(ArchiveHead())
    going_on = Pass.of(head, NOW_MS)
    assert (going_on.began_ms, going_on.first) == (BEGAN_MS, "b")
    ended = walk(going_on, [READ], logs="c")
    assert ended.complete_ms == (BEGAN_MS if read is READ else 0)


def test_a_pass_that_found_nothing_moves_the_head_to_when_it_began_and_never_back() -> None:
    ended = walk(BEGUN, [READ, READ, READ])
    assert ended.noted(ArchiveHead(complete_ms=5)).complete_ms == BEGAN_MS
    assert ended.noted(ArchiveHead(complete_ms=BEGAN_MS + 1)).complete_ms == BEGAN_MS + 1
    assert walk(BEGUN, [LEFT_OUT]).noted(ArchiveHead(complete_ms=5)).complete_ms == 5


def test_a_manifest_is_written_for_rows_and_once_an_hour_without_any() -> None:
    ended = walk(BEGUN, [READ, READ, READ])
    head = ArchiveHead(last_manifest_ms=BEGAN_MS - MANIFEST_EVERY_MS + 1)
    assert ended.needs_manifest(head, has_rows=True)
    assert not ended.needs_manifest(head, has_rows=False)
    assert ended.needs_manifest(ArchiveHead(last_manifest_ms=BEGAN_MS - MANIFEST_EVERY_MS), has_rows=False)


def test_a_pass_that_is_not_complete_writes_no_manifest_without_rows() -> None:
    assert not walk(BEGUN, [LEFT_OUT]).needs_manifest(ArchiveHead(), has_rows=False)


def test_a_commit_is_full_by_bytes_or_by_time() -> None:
    assert [commit_is_full(size, 10, now_ms, 100) for size, now_ms in ((9, 99), (10, 99), (9, 100))] == [
        False,
        True,
        True,
    ]
