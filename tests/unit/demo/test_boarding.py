"""The account of the boarding calls notices each error."""

import dataclasses

import pytest

from demo.boarding import Account, Call, Seen, account, timetable
from demo.flights import Flight

CALLS = [
    Call("a", "UA", 1_000, cancelled=False),
    Call("b", "UA", 2_000, cancelled=False),
    Call("gone", "AA", 3_000, cancelled=True),
]
ANSWERS = {"gone": "cancelled"}
DUE_MS = {call.id: call.due_ms for call in CALLS}
OFFSETS = {"a": 0, "b": 1, "gone": 2}


def seen(call: str, *, late_ms: float = 4.0, **changes: int) -> Seen:
    due_ms = DUE_MS.get(call, 5_000)
    found = Seen(call, 0, OFFSETS.get(call, 9), 1, due_ms, due_ms + late_ms)
    return dataclasses.replace(found, **changes)


def settle(*receipts: Seen, answers: dict[str, str] | None = None) -> Account:
    return account(CALLS, ANSWERS if answers is None else answers, receipts)


def test_each_call_received_once_and_the_cancelled_one_never_is_in_order() -> None:
    assert settle(seen("a"), seen("b", late_ms=0.0)) == Account(
        calls=3,
        cancelled=1,
        too_late=0,
        delivered=2,
        redelivered=0,
        early=0,
        double=0,
        missing=0,
        delivered_though_cancelled=0,
        wrong=(),
    )


def test_a_call_that_comes_again_from_the_same_place_is_redelivered_not_double() -> None:
    found = settle(seen("a"), seen("a", attempt=2, late_ms=5_000.0), seen("b"))
    assert (found.redelivered, found.double, found.wrong) == (1, 0, ())


def test_a_call_that_was_dispatched_before_it_was_cancelled_is_told_and_received() -> None:
    found = settle(seen("a"), seen("b"), seen("gone"), answers={"gone": "dispatched"})
    assert (found.cancelled, found.too_late, found.delivered, found.wrong) == (0, 1, 3, ())


@pytest.mark.parametrize(
    ("receipts", "metric", "sentence"),
    [
        ([seen("a", late_ms=-0.1), seen("b")], "early", "1 received before they were due"),
        ([seen("a"), seen("a", offset=7), seen("b")], "double", "1 in the queue more than once"),
        ([seen("a"), seen("a", queue=1), seen("b")], "double", "1 in the queue more than once"),
        ([seen("a")], "missing", "1 never received"),
        (
            [seen("a"), seen("b"), seen("gone")],
            "delivered_though_cancelled",
            "1 received though they were cancelled",
        ),
    ],
)
def test_what_must_not_be_is_counted_and_said(receipts: list[Seen], metric: str, sentence: str) -> None:
    found = settle(*receipts)
    assert getattr(found, metric) == 1
    assert found.wrong == (sentence,)


@pytest.mark.parametrize(
    ("receipts", "answers", "sentence"),
    [
        ([seen("a"), seen("b")], {"gone": "dispatched"}, "1 never received"),
        ([seen("a"), seen("b"), seen("gone")], {}, "1 to be cancelled without an answer"),
        ([seen("a"), seen("b"), seen("gone")], {"gone": "waiting"}, "1 to be cancelled without an answer"),
        ([seen("a")], {**ANSWERS, "b": "cancelled"}, "1 cancelled although their flights left"),
        ([seen("a"), seen("b", due_ms=1_999)], ANSWERS, "1 due at another time than they were sent for"),
        ([seen("a"), seen("b"), seen("ghost")], ANSWERS, "1 received that nobody sent"),
    ],
)
def test_answers_and_receipts_that_do_not_fit_are_said(
    receipts: list[Seen], answers: dict[str, str], sentence: str
) -> None:
    assert sentence in settle(*receipts, answers=answers).wrong


def test_a_wrong_due_time_does_not_excuse_a_call_that_came_before_the_time_asked_for() -> None:
    assert settle(seen("a", due_ms=900, late_ms=-50.0), seen("b")).early == 1


def test_calls_are_due_when_their_flights_leave_on_the_shortened_clock() -> None:
    later = Flight("later", "UA", minute=1_440, cancelled=False, body="")
    sooner = Flight("sooner", "AA", minute=300, cancelled=True, body="")
    assert timetable([later, sooner], 1_000_000, 1.5) == [
        Call("sooner", "AA", 1_000_450, cancelled=True),
        Call("later", "UA", 1_002_160, cancelled=False),
    ]
