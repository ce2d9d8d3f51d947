"""A pusher decides from outcomes and records. These tests need no store and no target."""

from collections.abc import Callable

import pytest

from hourwheel.model.targets import DONE, Outcome, unreached
from hourwheel.push.decisions import (
    FAILURES,
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    SETTLING_SECONDS,
    Decided,
    PusherEnd,
    TargetHealth,
    decide_part,
    decide_pull,
    group_lease_ms,
    printable,
    refused,
    taken_by_another,
)
from hourwheel.push.state import PushState

NOW_MS = 1_763_640_000_000
PART = range(4, 8)
ALL = frozenset(PART)
TOO_LARGE = Outcome(too_large=True, error="too large")
FAILED = Outcome(failed=frozenset({0}), error="busy")


def indexes(*found: int) -> frozenset[int]:
    return frozenset(found)


def test_a_part_that_was_taken_is_done() -> None:
    assert decide_part(PART, DONE, trial=False) == Decided()


def test_each_message_of_a_part_is_settled_by_what_became_of_itself() -> None:
    outcome = Outcome(failed=indexes(0), dead=indexes(2), untouched=indexes(3))
    assert decide_part(PART, outcome, trial=False) == Decided(retry=indexes(4), dead=indexes(6), release=indexes(7))


@pytest.mark.parametrize("trial", [False, True])
def test_a_part_that_the_target_never_saw_is_given_back(trial: bool) -> None:
    assert decide_part(PART, unreached("away"), trial=trial) == Decided(release=ALL)


def test_what_stands_before_the_target_uses_up_an_attempt_of_a_message_on_trial_and_of_no_other() -> None:
    outcome = unreached("403", answered=True)
    assert decide_part(PART, outcome, trial=False) == Decided(release=ALL)
    assert decide_part(PART, outcome, trial=True) == Decided(retry=ALL)


def test_a_part_that_is_too_large_is_halved_and_nothing_else_of_its_outcome_counts() -> None:
    outcome = Outcome(too_large=True, failed=indexes(0), dead=indexes(1))
    assert decide_part(range(4, 9), outcome, trial=False) == Decided(parts=(range(4, 6), range(6, 9)))


def test_one_message_that_is_too_large_is_dead() -> None:
    assert decide_part(range(4, 5), TOO_LARGE, trial=False) == Decided(dead=indexes(4))


def deliverer(answer: Callable[[range], Outcome], seen: list[range]) -> Callable[[range], Outcome]:
    def deliver(part: range) -> Outcome:
        seen.append(part)
        return answer(part)

    return deliver


def test_the_parts_of_a_pull_are_delivered_in_order_until_each_is_small_enough() -> None:
    seen: list[range] = []
    decided = decide_pull(8, deliverer(lambda part: TOO_LARGE if len(part) > 2 else DONE, seen), trial=False)
    assert [part for part in seen if len(part) <= 2] == [range(2), range(2, 4), range(4, 6), range(6, 8)]
    assert seen[:3] == [range(8), range(4), range(2)]
    assert decided == Decided()


def test_a_pull_gathers_what_became_of_its_parts() -> None:
    answers = {0: FAILED, 2: TOO_LARGE, 3: unreached("away")}
    decided = decide_pull(4, lambda part: TOO_LARGE if len(part) > 1 else answers.get(part.start, DONE), trial=False)
    assert decided == Decided(retry=indexes(0), dead=indexes(2), release=indexes(3))


@pytest.mark.parametrize(
    ("outcome", "missed"),
    [
        (DONE, 0),
        (FAILED, 1),
        (Outcome(failed=indexes(0), dead=indexes(1), untouched=indexes(2, 3)), 4),
        (unreached("away"), 5),
        (TOO_LARGE, 5),
    ],
)
def test_the_messages_that_a_target_has_not_taken_are_counted(outcome: Outcome, missed: int) -> None:
    assert refused(outcome, 5) == missed


def failing(times: int, health: TargetHealth = TargetHealth()) -> TargetHealth:  # noqa: B008 - it is frozen
    for _ in range(times):
        health = health.after_delivery(FAILED, 1, NOW_MS)
    return health


def test_failures_in_a_row_make_a_pause_and_no_sooner() -> None:
    assert failing(FAILURES - 1) == TargetHealth(failures=FAILURES - 1, error="busy")
    assert failing(FAILURES) == TargetHealth(FAILURES, 1, "busy", NOW_MS + FIRST_PAUSE_MS)


@pytest.mark.parametrize(
    "outcome", [DONE, Outcome(failed=indexes(0, 1)), Outcome(dead=indexes(0, 1, 2)), TOO_LARGE], ids=str
)
def test_the_target_is_well_again_when_it_takes_a_message_or_refuses_one_for_good(outcome: Outcome) -> None:
    assert failing(FAILURES - 1).after_delivery(outcome, 3, NOW_MS) == TargetHealth()


def test_a_target_that_cannot_be_reached_is_paused_at_once() -> None:
    health = TargetHealth().after_delivery(unreached("away"), 3, NOW_MS)
    assert health == TargetHealth(1, 1, "away", NOW_MS + FIRST_PAUSE_MS)


def test_a_target_on_trial_is_paused_by_one_failure() -> None:
    health = TargetHealth(failures=1, pauses=1).after_delivery(FAILED, 1, NOW_MS)
    assert (health.pauses, health.resumes_ms) == (2, NOW_MS + 2 * FIRST_PAUSE_MS)


def test_pauses_double_up_to_the_longest() -> None:
    health, lengths = TargetHealth(), []
    for _ in range(60):
        health = TargetHealth.of(health.after_delivery(unreached("away"), 1, NOW_MS).state)
        lengths.append(TargetHealth(pauses=health.pauses - 1).after_failure("", 0, pause=True).resumes_ms)
    assert lengths[:4] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS, 8 * FIRST_PAUSE_MS]
    assert set(lengths[8:]) == {LONGEST_PAUSE_MS}


@pytest.mark.parametrize(("asked_seconds", "pause_ms"), [(0.5, FIRST_PAUSE_MS), (60, 60_000), (1e9, LONGEST_PAUSE_MS)])
def test_a_pause_lasts_at_least_as_long_as_the_target_asks_within_the_longest(
    asked_seconds: float, pause_ms: int
) -> None:
    health = TargetHealth().after_delivery(unreached("429", asked_seconds), 1, NOW_MS)
    assert health.resumes_ms == NOW_MS + pause_ms


def test_deliveries_that_were_under_way_when_a_pause_was_decided_change_nothing() -> None:
    paused = failing(FAILURES)
    assert paused.pausing
    assert failing(3, paused) == paused.after_delivery(DONE, 1, NOW_MS) == paused


def test_the_record_of_a_pusher_that_left_names_no_owner_and_the_next_one_begins_after_the_pause() -> None:
    left = failing(FAILURES).state
    assert (left.owner, left.until_ms, left.resumes_ms) == ("", 0, NOW_MS + FIRST_PAUSE_MS)
    begun = TargetHealth.of(left)
    assert (begun.failures, begun.on_trial, begun.pausing) == (FAILURES, True, False)


def test_an_error_is_stored_short_and_printable() -> None:
    assert printable("a\nb\x1b[2J\udc80") == "a b [2J?"
    assert len(printable("x" * 9_000)) == 300


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        (PushState(), None),
        (PushState(owner="p2", until_ms=NOW_MS + 1), PusherEnd.BUSY),
        (PushState(owner="p2", until_ms=NOW_MS), None),
        (PushState(resumes_ms=NOW_MS + 1), PusherEnd.PAUSED),
        (PushState(resumes_ms=NOW_MS), None),
    ],
)
def test_a_pusher_begins_unless_another_one_pushes_or_the_target_is_paused(
    state: PushState, ended: PusherEnd | None
) -> None:
    assert taken_by_another(state, NOW_MS) is ended


def test_the_lease_of_a_group_lasts_for_two_deliveries() -> None:
    assert group_lease_ms(NOW_MS, 10) == NOW_MS + 2 * 1_000 * (10 + SETTLING_SECONDS)
