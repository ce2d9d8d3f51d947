"""The timing wheel takes the messages that a plain list of due times would take."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.delay.timing import DueGroup, TimingWheel, pack, unpack

TICK_MS = 500

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20_000)),
        st.tuples(st.just("strike"), st.integers(0, 60)),
        st.tuples(st.just("take"), st.integers(0, 3_000)),
    ),
    max_size=80,
)


def positions(groups: list[DueGroup]) -> list[int]:
    return [packed for group in groups for packed in group.positions]


@given(st.sampled_from([0, 10, 100, 120, TICK_MS]), steps)
def test_it_takes_what_a_list_of_due_times_would_give(tick_ms: int, todo: list[tuple[str, int]]) -> None:
    discarded, cancelled = set[int](), set[int]()
    wheel, model = TimingWheel(tick_ms, discarded), dict[int, int]()
    length_ms = max(1, tick_ms)
    now_ms = added = 0
    for verb, number in todo:
        if verb == "add":
            wheel.add(added, number)
            model[added] = number
            added += 1
        elif verb == "strike":
            if number < added:
                discarded.add(number)
                cancelled.add(number)
        else:
            now_ms += number
            taken = positions(wheel.take(now_ms))
            due = {position for position, due_ms in model.items() if -(-due_ms // length_ms) * length_ms <= now_ms}
            # Of a herd the caller leaves them out.
            assert sorted(set(taken) - discarded) == sorted(due - cancelled)
            for position in due:
                del model[position]
    assert wheel.waiting == len(model)
    following = min((-(-due_ms // length_ms) * length_ms for due_ms in model.values()), default=None)
    assert wheel.next_ms() == following


@given(st.integers(0, 100_000), st.integers(0, 100_000))
def test_nothing_is_taken_early_or_more_than_a_tick_late(due_ms: int, now_ms: int) -> None:
    wheel = TimingWheel(TICK_MS, set())
    wheel.add(1, due_ms)
    taken = positions(wheel.take(now_ms)) == [1]
    assert not (taken and now_ms < due_ms)
    assert taken or now_ms < due_ms + TICK_MS


@given(st.integers(0, 2**40), st.integers(0, 999))
def test_positions_are_packed_in_order(row: int, index: int) -> None:
    assert unpack(pack(row, index)) == (row, index)
    assert pack(row, 999) < pack(row + 1, 0)


def test_messages_of_one_tick_keep_their_order_and_a_late_one_comes_with_the_next() -> None:
    wheel = TimingWheel(TICK_MS, set())
    wheel.add_all(range(5, 10), 1_200)
    wheel.add_all(range(5), 1_300)
    wheel.add(20, 700)
    assert positions(wheel.take(1_500)) == [20, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    wheel.add(30, 100)
    assert positions(wheel.take(1_501)) == [30]


def test_without_ticks_messages_are_taken_at_their_millisecond_in_the_order_of_their_due_times() -> None:
    wheel = TimingWheel(0, set())
    for packed, due_ms in enumerate((1_003, 1_001, 1_240, 1_001)):
        wheel.add(packed, due_ms)
    assert positions(wheel.take(1_000)) == []
    assert wheel.next_ms() == 1_001
    assert positions(wheel.take(1_003)) == [1, 3, 0]
    wheel.add(4, 1_100)  # its neighbours have been spread over their milliseconds
    assert wheel.next_ms() == 1_100
    assert positions(wheel.take(1_300)) == [4, 2]


@pytest.mark.parametrize("tick_ms", [0, 100, 500])
def test_the_messages_of_an_hour_take_little_memory_whatever_the_tick(tick_ms: int) -> None:
    tracemalloc.start()
    wheel = TimingWheel(tick_ms, set())
    for packed in range(200_000):
        wheel.add(packed, packed * 7_919 % 3_600_000)
    positions(wheel.take(10_000))
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 200_000 * 40
