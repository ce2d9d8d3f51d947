"""The decisions of the sweeper follow from records alone, without a store."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from hourwheel.groups.progress import LogLag
from hourwheel.logs.rows import Row
from hourwheel.model.groups import Group, PushTarget
from hourwheel.model.subjects import Subject
from hourwheel.ports.storage import Counter
from hourwheel.pull_log.records import Position, Tail
from hourwheel.sweep.decisions import (
    EARLY_MS,
    LINES,
    MAINTENANCE_MS,
    REST_MS,
    GroupLag,
    LastLook,
    SubjectSnapshot,
    expired_below,
    groups_to_push,
    lag_of_group,
    lag_report,
    needs_maintenance,
    next_rest_ms,
    rests,
)

NOW_MS = 1_763_640_000_000
LONGEST_MS = 32 * 60_000
TARGET = PushTarget(kind="sqs", address="arn:aws:sqs:us-east-1:123456789012:orders")
SUBJECT = Subject(name="orders", generation=1, queues=1, retention_seconds=60, created_ms=0)


def group(name: str = "billing", push: PushTarget | None = None, *, paused: bool = False) -> Group:
    return Group(
        subject="orders",
        subject_generation=1,
        name=name,
        generation=1,
        start="earliest",
        max_attempts=16,
        created_ms=0,
        push=push,
        paused=paused,
    )


def lag(waiting: int = 0, retrying: int = 0, in_flight: int = 0, oldest_ms: int | None = None) -> GroupLag:
    return GroupLag("orders", "billing", waiting, in_flight, retrying, oldest_ms, pullable=waiting + retrying)


FOUND = SubjectSnapshot(
    at_ms=NOW_MS,
    subject=SUBJECT,
    groups=[group()],
    totals={"orders~1/0": Counter(3, 30)},
    dead=[Counter(0, 0)],
    tails=[Tail(2, Position(3), 30)],
    leased=[0],
)
PUSHED = replace(FOUND, groups=[group(push=TARGET)])


def after(found: SubjectSnapshot = FOUND, *, rest_ms: int = 0, maintained_ms: int = NOW_MS) -> LastLook:
    return LastLook(found, maintained_ms, rest_ms)


CHANGES = {
    "a message was stored": replace(FOUND, totals={"orders~1/0": Counter(4, 31)}),
    "a message died": replace(FOUND, dead=[Counter(1, 1)]),
    "a pull claimed messages": replace(FOUND, tails=[Tail(3, Position(3), 30)]),
    "nobody can tell where a group stands": replace(FOUND, tails=[None]),
    "a group was added": replace(FOUND, groups=[group(), group("audit")]),
    "the subject was changed": replace(
        FOUND, subject=Subject(name="orders", generation=1, queues=2, retention_seconds=60, created_ms=0)
    ),
}


def test_a_later_look_that_finds_the_same_finds_no_change() -> None:
    assert replace(FOUND, at_ms=NOW_MS + 60_000, leased=[4]).unchanged(FOUND)


@pytest.mark.parametrize("found", CHANGES.values(), ids=CHANGES.keys())
def test_a_look_finds_a_change_when(found: SubjectSnapshot) -> None:
    assert not found.unchanged(FOUND)


def test_a_subject_rests_until_shortly_before_its_rest_is_over() -> None:
    last = after(rest_ms=REST_MS)
    assert rests(last, SUBJECT, FOUND.groups, NOW_MS + REST_MS - EARLY_MS - 1)
    assert not rests(last, SUBJECT, FOUND.groups, NOW_MS + REST_MS - EARLY_MS)


def test_a_subject_at_which_nobody_looked_does_not_rest() -> None:
    assert not rests(None, SUBJECT, FOUND.groups, NOW_MS)
    assert not rests(after(rest_ms=0), SUBJECT, FOUND.groups, NOW_MS)


def test_a_change_of_subject_or_groups_ends_the_rest() -> None:
    last = after(rest_ms=REST_MS)
    assert not rests(last, SUBJECT, [group(), group("audit")], NOW_MS + 1)
    assert not rests(last, CHANGES["the subject was changed"].subject, FOUND.groups, NOW_MS + 1)


def test_a_clock_that_went_back_ends_the_rest() -> None:
    assert not rests(after(rest_ms=REST_MS), SUBJECT, FOUND.groups, NOW_MS - 1)


def test_a_subject_that_has_not_rested_gets_maintenance_at_each_look() -> None:
    assert needs_maintenance(None, FOUND)
    assert needs_maintenance(after(rest_ms=0), FOUND)


def test_a_subject_that_rested_gets_maintenance_twice_a_day() -> None:
    last = after(rest_ms=REST_MS)
    assert not needs_maintenance(last, replace(FOUND, at_ms=NOW_MS + MAINTENANCE_MS - 1))
    assert needs_maintenance(last, replace(FOUND, at_ms=NOW_MS + MAINTENANCE_MS))


@pytest.mark.parametrize("found", CHANGES.values(), ids=CHANGES.keys())
def test_a_subject_that_rested_gets_maintenance_when(found: SubjectSnapshot) -> None:
    assert needs_maintenance(after(rest_ms=REST_MS), found)


def test_a_subject_of_which_a_message_is_leased_gets_maintenance() -> None:
    assert needs_maintenance(after(rest_ms=REST_MS), replace(FOUND, leased=[0, 1]))


def test_the_first_look_and_one_that_finds_a_change_are_followed_by_the_next_sweep() -> None:
    assert next_rest_ms(None, FOUND, [lag()], LONGEST_MS) == 0
    for found in CHANGES.values():
        assert next_rest_ms(after(rest_ms=REST_MS), found, [lag()], LONGEST_MS) == 0


def test_rests_double_from_a_minute_up_to_the_longest() -> None:
    rest_ms, seen = 0, []
    for _ in range(8):
        rest_ms = next_rest_ms(after(rest_ms=rest_ms), FOUND, [lag()], LONGEST_MS)
        seen.append(rest_ms // 60_000)
    assert seen == [1, 2, 4, 8, 16, 32, 32, 32]


@pytest.mark.parametrize("waits", [lag(waiting=1), lag(retrying=1), lag(in_flight=1), None], ids=str)
def test_a_subject_does_not_rest_while_a_group_has(waits: GroupLag | None) -> None:
    assert next_rest_ms(after(rest_ms=REST_MS), FOUND, [lag(), waits], LONGEST_MS) == 0


def test_a_subject_that_is_pushed_rests_for_no_more_than_a_minute() -> None:
    assert next_rest_ms(after(PUSHED, rest_ms=REST_MS), PUSHED, [lag()], LONGEST_MS) == REST_MS


def test_a_push_is_started_for_groups_with_a_target_for_which_something_waits_or_may_wait() -> None:
    groups = [group(str(n), push=TARGET if n < 5 else None) for n in range(6)]
    lags: Sequence[GroupLag | None] = [lag(), lag(waiting=1), lag(retrying=1), None, lag(in_flight=1), lag(waiting=9)]
    assert [found.name for found in groups_to_push(SUBJECT, groups, lags)] == ["1", "2", "3"]


def test_no_push_is_started_for_what_is_paused() -> None:
    groups = [group("1", push=TARGET, paused=True), group("2", push=TARGET)]
    waiting = [lag(waiting=1), lag(waiting=1)]
    assert [found.name for found in groups_to_push(SUBJECT, groups, waiting)] == ["2"]
    assert groups_to_push(msgspec.structs.replace(SUBJECT, paused=True), groups, waiting) == []


def test_the_lag_of_a_group_adds_up_its_queues_and_its_retries() -> None:
    queues = [LogLag(3, 50, 0, 3), LogLag(0, None, 7, 7), LogLag(2, 40, 0, 2)]
    found = lag_of_group(group(), [LogLag(1, 60, 0, 1)], queues, [4, 0, 1, 0])
    assert found == GroupLag("orders", "billing", waiting=5, in_flight=5, retrying=1, oldest_ms=40, pullable=6)
    assert found.total == 6


def test_messages_that_are_kept_for_a_consumer_wait_and_wake_nobody() -> None:
    found = lag_of_group(group(), [], [LogLag(3, 50, 0, 3, kept=2)], [1])
    assert found == GroupLag("orders", "billing", waiting=3, in_flight=1, retrying=0, oldest_ms=50, pullable=1)


def test_a_group_that_has_no_message_waiting_has_no_oldest_one() -> None:
    found = lag_of_group(group(), [], [LogLag(0, None, 7, 7)], [2])
    assert (found.oldest_ms, found.oldest_seconds(NOW_MS)) == (None, 0.0)


def test_the_report_has_the_groups_that_are_behind_the_largest_lag_first() -> None:
    lags = [lag(waiting=1, oldest_ms=NOW_MS - 5_000), lag(in_flight=9), lag(waiting=1, retrying=2, oldest_ms=NOW_MS)]
    report = lag_report(lags, NOW_MS)
    assert [one.total for one in report.lines] == [3, 1]
    assert (report.waiting, report.oldest_seconds) == (4, 5.0)


def test_the_report_counts_the_groups_that_it_has_no_line_for() -> None:
    report = lag_report([lag(waiting=1)] * (LINES + 20), NOW_MS)
    assert (len(report.lines), report.waiting) == (LINES, LINES + 20)


def test_a_time_ahead_of_the_clock_counts_as_no_wait() -> None:
    assert lag(waiting=1, oldest_ms=NOW_MS + 9_000).oldest_seconds(NOW_MS) == 0.0


def row(expires_ms: int) -> Row:
    return Row(first_seq=0, count=1, at_ms=0, expires_ms=expires_ms)


def test_a_log_is_trimmed_up_to_the_first_row_that_is_live() -> None:
    rows = [(4, row(NOW_MS - 1)), (5, row(NOW_MS)), (6, row(NOW_MS + 1)), (7, row(0))]
    assert expired_below(rows, 4, NOW_MS) == (6, True)


def test_a_log_whose_rows_have_all_expired_is_trimmed_behind_the_last() -> None:
    assert expired_below([(4, row(0)), (6, row(0))], 4, NOW_MS) == (7, False)
    assert expired_below([], 4, NOW_MS) == (4, False)
