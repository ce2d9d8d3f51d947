"""Delays are parsed as producers write them."""

import math

import pytest

from hourwheel.errors import Rejected
from hourwheel.model.due import delay_ms, limited_delay_ms
from hourwheel.times import parse_rfc3339


@pytest.mark.parametrize(
    ("delay", "wait_ms"),
    [(0, 0), (1, 1_000), (0.0015, 2), ("500ms", 500), ("1.5s", 1_500), ("2h", 7_200_000), ("90d", 7_776_000_000)],
)
def test_a_delay_is_a_number_of_seconds_or_has_a_unit(delay: float | str, wait_ms: int) -> None:
    assert delay_ms(delay, "delay") == wait_ms


@pytest.mark.parametrize(
    "delay", [-1, -0.001, -1e308, -(10**400), math.nan, -math.inf, "", "2", "2 weeks", "-5s", "1e3s", "٣s", "5S"]
)
def test_what_is_no_delay_is_refused(delay: float | str) -> None:
    with pytest.raises(Rejected) as refusal:
        delay_ms(delay, "messages[3].delay")
    assert (refusal.value.slug, refusal.value.field) == ("field-invalid", "messages[3].delay")
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("delay", [math.inf, 10**400, 1e308, "733d", "999999999999999d"])
def test_what_is_too_long_is_refused_with_the_limit(delay: float | str) -> None:
    with pytest.raises(Rejected, match="two years") as refusal:
        limited_delay_ms(delay, "delay")
    assert refusal.value.slug == "delay-too-long"


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01t01:00:00+01:00", 0),
        ("1970-01-01 00:00:00.0001z", 1),
        ("2026-11-20T09:00:00.123Z", 1_795_165_200_123),
    ],
)
def test_times_are_read_to_the_millisecond_and_never_early(text: str, ms: int) -> None:
    assert parse_rfc3339(text, "deliver_at") == ms


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-20T09:00:00",
        "2026-11-20",
        "2026-02-30T09:00:00Z",
        "2026-W47-5T09:00:00Z",
        "2026-11-20T09:00:00+25:00",
        "2026-11-20T09:00:00\x00Z",
        "tomorrow",
        "",
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(Rejected) as refusal:
        parse_rfc3339(text, "deliver_at")
    assert refusal.value.field == "deliver_at"
    assert "timedelta" not in str(refusal.value)
