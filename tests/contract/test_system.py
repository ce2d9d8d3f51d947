"""``Clock`` and ``Ids`` keep their promises with the clock and the random source of the machine."""

import time

from hourwheel.system import SystemClock, SystemIds

MANY = 2_000


def test_the_clock_tells_unix_time_in_milliseconds() -> None:
    before = time.time()
    told = SystemClock().now_ms()
    assert before * 1000 - 1 <= told <= time.time() * 1000


def test_the_clock_sleeps_as_long_as_it_is_told() -> None:
    began = time.monotonic()
    SystemClock().sleep(0.01)
    assert time.monotonic() - began >= 0.01


def test_tokens_are_16_bytes_and_all_different() -> None:
    tokens = {SystemIds().token() for _ in range(MANY)}
    assert len(tokens) == MANY
    assert {len(token) for token in tokens} == {16}


def test_unique_names_are_28_hex_digits_and_all_different() -> None:
    names = {SystemIds().unique(1_800_000_000_000) for _ in range(MANY)}
    assert len(names) == MANY
    assert all(len(name) == 28 and set(name) <= set("0123456789abcdef") for name in names)


def test_unique_names_sort_by_time() -> None:
    moments = [0, 1, 999, 1_000, 1_800_000_000_000, 1_800_000_000_001, 2**48 - 1]
    names = [SystemIds().unique(moment) for moment in moments]
    assert names == sorted(names)
    assert [int(name[:12], 16) for name in names] == moments


def test_jitter_is_spread_over_nought_to_one() -> None:
    drawn = [SystemIds().jitter() for _ in range(MANY)]
    assert all(0 <= value < 1 for value in drawn)
    assert {int(value * 10) for value in drawn} == set(range(10))
