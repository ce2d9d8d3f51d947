from hourwheel.times import within


def test_the_end_of_a_period_is_not_within_it() -> None:
    assert [within(100, now_ms, 10) for now_ms in (99, 100, 109, 110)] == [False, True, True, False]
