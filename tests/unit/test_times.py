from datetime import UTC, datetime

import pytest

from hourwheel.client.due import checked_moment, utc_text
from hourwheel.times import parse_rfc3339, rfc3339, within


def test_the_end_of_a_period_is_not_within_it() -> None:
    assert [within(100, now_ms, 10) for now_ms in (99, 100, 109, 110)] == [False, True, True, False]


@pytest.mark.parametrize("year", [1, 999, 1000, 1969, 2026, 9999])
def test_a_time_has_a_year_of_four_digits_and_is_read_again(year: int) -> None:
    moment = datetime(year, 1, 2, 3, 4, 5, 6_000, tzinfo=UTC)
    text = checked_moment(moment)
    assert text == utc_text(moment) == f"{year:04d}-01-02T03:04:05.006Z"
    assert rfc3339(parse_rfc3339(text, "deliver_at")) == text
