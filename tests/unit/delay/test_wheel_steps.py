"""The next step of a wheel is decided from times and row numbers, without a store."""

import pytest

from hourwheel.buckets.buckets import LEAD_MS
from hourwheel.delay.wheel_steps import (
    RELAY_MS,
    SETTLED_MS,
    WheelState,
    WheelStep,
    may_sleep,
    step_before_hand_over,
    step_of_closing,
    step_of_relay,
    wake_time_ms,
)
from hourwheel.logs.log import GRACE_MS

NOW_MS = 1_763_640_000_000
END_MS = NOW_MS + 3_600_000


@pytest.mark.parametrize("read_below", [5, 6])
def test_a_wheel_that_has_read_what_it_must_hands_over(read_below: int) -> None:
    assert (
        step_before_hand_over(read_below=read_below, must_read=5, opened_ms=NOW_MS, now_ms=NOW_MS)
        is WheelStep.HAND_OVER
    )


@pytest.mark.parametrize(
    ("waited_ms", "step"), [(0, WheelStep.WAIT), (GRACE_MS - 1, WheelStep.WAIT), (GRACE_MS, WheelStep.FILL)]
)
def test_a_row_that_is_missing_is_waited_for_and_then_filled(waited_ms: int, step: WheelStep) -> None:
    now_ms = NOW_MS + waited_ms
    assert step_before_hand_over(read_below=4, must_read=5, opened_ms=NOW_MS, now_ms=now_ms) is step
    closing = {"read_below": 4, "end": 5, "waiting": 0}
    assert step_of_closing(WheelState.CLOSING, sealed_ms=NOW_MS, now_ms=now_ms, **closing) is step


def test_a_wheel_that_may_stay_calls_nobody_and_never_leaves() -> None:
    assert step_of_relay(called=False, leaves_ms=0, now_ms=NOW_MS) is WheelStep.WAIT


@pytest.mark.parametrize(
    ("left_ms", "called", "step"),
    [
        (RELAY_MS + 1, False, WheelStep.WAIT),
        (RELAY_MS, False, WheelStep.CALL),
        (RELAY_MS, True, WheelStep.WAIT),
        (1, True, WheelStep.WAIT),
        (0, True, WheelStep.LEAVE),
        (0, False, WheelStep.LEAVE),
        (-9_000, True, WheelStep.LEAVE),
    ],
)
def test_a_wheel_calls_its_successor_once_and_leaves_when_its_time_is_over(
    left_ms: int, called: bool, step: WheelStep
) -> None:
    assert step_of_relay(called=called, leaves_ms=NOW_MS + left_ms, now_ms=NOW_MS) is step


def test_a_sleeping_wheel_wakes_before_the_next_message_is_due_or_at_the_end_of_its_bucket() -> None:
    assert wake_time_ms(END_MS - 600_000, END_MS) == END_MS - 600_000 - LEAD_MS
    assert wake_time_ms(END_MS + LEAD_MS + 1, END_MS) == END_MS
    assert wake_time_ms(None, END_MS) == END_MS


@pytest.mark.parametrize(
    ("wakes_in_ms", "turned_ms", "sleeps"),
    [
        (LEAD_MS + 1, SETTLED_MS, True),
        (LEAD_MS, SETTLED_MS, False),
        (LEAD_MS + 1, SETTLED_MS - 1, False),
    ],
)
def test_a_wheel_sleeps_when_nothing_is_due_soon_and_it_has_turned_for_a_while(
    wakes_in_ms: int, turned_ms: int, sleeps: bool
) -> None:
    assert may_sleep(wakes_ms=NOW_MS + wakes_in_ms, opened_ms=NOW_MS - turned_ms, now_ms=NOW_MS) is sleeps


def test_the_schedule_log_is_sealed_before_its_end_is_known() -> None:
    step = step_of_closing(WheelState.TURNING, read_below=9, end=0, sealed_ms=0, waiting=0, now_ms=NOW_MS)
    assert step is WheelStep.SEAL


def test_a_bucket_is_closed_when_its_log_is_read_to_the_end_and_everything_is_handed_over() -> None:
    def step(read_below: int, waiting: int) -> WheelStep:
        return step_of_closing(
            WheelState.CLOSING, read_below=read_below, end=5, sealed_ms=NOW_MS, waiting=waiting, now_ms=NOW_MS
        )

    assert [step(4, 0), step(5, 1), step(5, 0)] == [WheelStep.WAIT, WheelStep.WAIT, WheelStep.CLOSE]
