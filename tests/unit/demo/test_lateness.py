"""The lateness of the boarding calls is computed, and drawn."""

from demo.boarding import Seen
from demo.lateness import Lateness, Outage, bars, first_receipts, histogram, resumed_ms, split, summary

OUTAGE = Outage(killed_ms=10_000.0, ready_ms=11_500.0)


def seen(call: str, due_ms: int, late_ms: float) -> Seen:
    return Seen(call, 0, 0, 1, due_ms, due_ms + late_ms)


def test_percentiles_are_values_that_were_measured() -> None:
    assert summary([float(number) for number in range(100, 0, -1)]) == Lateness(50.0, 99.0, 100.0)
    assert summary([3.14159]) == Lateness(3.1, 3.1, 3.1)
    assert summary([]) == Lateness(0.0, 0.0, 0.0)


def test_of_each_call_the_first_receipt_counts() -> None:
    first, again = seen("a", 1_000, 5.0), seen("a", 1_000, 3_000.0)
    assert first_receipts([again, seen("b", 2_000, 1.0), first]) == [first, seen("b", 2_000, 1.0)]


def test_the_outage_lasts_until_calls_come_again() -> None:
    assert OUTAGE.seconds == 1.5
    assert resumed_ms([seen("a", 9_000, 1.0), seen("b", 10_500, 2_000.0)], OUTAGE) == 12_500.0
    assert resumed_ms([seen("a", 9_000, 1.0)], OUTAGE) == OUTAGE.ready_ms


def test_calls_that_the_outage_hit_are_told_apart() -> None:
    before, shortly_before = seen("a", 9_000, 1.0), seen("b", 9_900, 2_600.0)
    within, while_catching_up, after = seen("c", 10_500, 2_100.0), seen("d", 12_700, 90.0), seen("e", 13_000, 2.0)
    assert split([before, shortly_before, within, while_catching_up, after], OUTAGE) == (
        [1.0, 2.0],
        [2_600.0, 2_100.0, 90.0],
    )


def test_the_histogram_counts_by_upper_bound_from_the_first_to_the_last() -> None:
    assert histogram([1.5, 2.0, 7.0, 7.0]) == [("≤ 2 ms", 2), ("≤ 5 ms", 0), ("≤ 10 ms", 2)]
    assert histogram([900.0, 20_000.0])[0] == ("≤ 1 s", 1)
    assert histogram([900.0, 20_000.0])[-1] == ("> 10 s", 1)
    assert histogram([]) == []


def test_bars_are_drawn_in_eighths_or_plainly() -> None:
    rows = [("≤ 1 ms", 1_600), ("≤ 2 ms", 300), ("≤ 5 ms", 0)]
    assert bars(rows, width=4, plain=False) == [
        "   ≤ 1 ms ████   1,600",
        "   ≤ 2 ms ▊        300",
        "   ≤ 5 ms            0",
    ]
    assert bars(rows, width=4, plain=True)[1] == "   ≤ 2 ms #        300"
    assert bars([], width=4, plain=True) == []
