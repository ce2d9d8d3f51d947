"""``Store.add``, ``Store.seal`` and ``Store.counter`` keep their promises on every adapter."""

import pytest

from hourwheel.errors import Sealed
from hourwheel.ports.storage import GET_MANY, Counter, Key, Store, Table

from .records import stored


def test_a_counter_never_added_to_is_zero(store: Store, partition: str) -> None:
    assert store.counter(partition) == Counter(rows=0, numbers=0, sealed=False)


def test_an_add_returns_both_totals_as_they_are_after_it(store: Store, partition: str) -> None:
    assert store.add(partition, rows=1, numbers=10) == Counter(1, 10)
    assert store.add(partition, rows=2, numbers=5) == Counter(3, 15)


def test_an_add_may_leave_one_total_as_it_is(store: Store, partition: str) -> None:
    assert store.add(partition, rows=1, numbers=0) == Counter(1, 0)
    assert store.add(partition, rows=0, numbers=4) == Counter(1, 4)


def test_a_counter_reads_what_was_added_last(store: Store, partition: str) -> None:
    for total in range(1, 6):
        store.add(partition, rows=1, numbers=2)
        assert store.counter(partition) == Counter(total, 2 * total)


def test_totals_are_exact_far_beyond_any_log(store: Store, partition: str) -> None:
    store.add(partition, rows=2**53, numbers=2**62)
    assert store.add(partition, rows=1, numbers=1) == Counter(2**53 + 1, 2**62 + 1)


def test_counters_of_other_names_are_apart(store: Store, partition: str) -> None:
    store.add(partition, rows=1, numbers=1)
    assert store.counter(f"{partition}/") == Counter(0, 0)
    assert store.counter(partition.upper()) == Counter(0, 0)


def test_counters_and_items_of_the_same_name_are_apart(store: Store, partition: str) -> None:
    store.add(partition, rows=1, numbers=1)
    stored(store, Key(Table.META, partition, partition))
    assert store.counter(partition) == Counter(1, 1)


def test_sealing_returns_the_final_totals(store: Store, partition: str) -> None:
    store.add(partition, rows=3, numbers=30)
    assert store.seal(partition) == Counter(3, 30, sealed=True)
    assert store.counter(partition) == Counter(3, 30, sealed=True)


def test_sealing_again_changes_nothing(store: Store, partition: str) -> None:
    store.add(partition, rows=3, numbers=30)
    assert store.seal(partition) == store.seal(partition) == Counter(3, 30, sealed=True)


def test_a_sealed_counter_refuses_adds_without_effect(store: Store, partition: str) -> None:
    store.add(partition, rows=3, numbers=30)
    store.seal(partition)
    for _ in range(2):
        with pytest.raises(Sealed):
            store.add(partition, rows=1, numbers=1)
    assert store.counter(partition) == Counter(3, 30, sealed=True)


def test_a_counter_sealed_before_its_first_add_stays_at_zero(store: Store, partition: str) -> None:
    assert store.seal(partition) == Counter(0, 0, sealed=True)
    with pytest.raises(Sealed):
        store.add(partition, rows=1, numbers=1)
    assert store.counter(partition) == Counter(0, 0, sealed=True)


def test_sealing_one_counter_leaves_the_others_open(store: Store, partition: str) -> None:
    store.seal(partition)
    assert store.add(f"{partition}-next", rows=1, numbers=1) == Counter(1, 1)


def test_a_counter_that_is_begun_counts_on_from_its_numbers(store: Store, partition: str) -> None:
    assert store.begin(partition, numbers=101) == Counter(0, 101)
    assert store.counter(partition) == Counter(0, 101)
    assert store.add(partition, rows=1, numbers=3) == Counter(1, 104)


def test_only_a_new_counter_is_begun(store: Store, partition: str) -> None:
    store.begin(partition, numbers=101)
    assert store.begin(partition, numbers=500) == Counter(0, 101)
    store.add(partition, rows=1, numbers=1)
    assert store.begin(partition, numbers=500) == Counter(1, 102)
    store.seal(partition)
    assert store.begin(partition, numbers=500) == Counter(1, 102, sealed=True)


def test_a_counter_that_was_sealed_first_is_not_begun(store: Store, partition: str) -> None:
    store.seal(partition)
    assert store.begin(partition, numbers=500) == Counter(0, 0, sealed=True)


def test_many_counters_are_read_at_once_zeros_for_those_never_added_to(store: Store, partition: str) -> None:
    names = [f"{partition}/{number}" for number in range(GET_MANY)]
    for number, name in enumerate(names[:70]):
        store.add(name, rows=1, numbers=number)
    store.seal(names[3])
    found = store.counters(names)
    assert list(found) == names
    # An outdated read returns former totals: at most two here.
    for number, name in enumerate(names[:70]):
        assert found[name] in (Counter(0, 0), Counter(1, number), Counter(1, number, sealed=number == 3))
    assert [found[name] for name in names[70:]] == [Counter(0, 0)] * 30
    assert store.counters([]) == {}


def test_many_counters_show_what_was_added_once_some_time_has_passed(store: Store, partition: str) -> None:
    names = [f"{partition}/{number}" for number in range(3)]
    for name in names:
        store.add(name, rows=2, numbers=5)
    wanted = dict.fromkeys(names, Counter(2, 5))
    assert any(store.counters(names) == wanted for _ in range(100))


def test_many_counters_show_at_once_what_was_added_if_they_are_read_consistently(store: Store, partition: str) -> None:
    names = [f"{partition}/{number}" for number in range(3)]
    for number in range(1, 20):
        for name in names:
            store.add(name, rows=1, numbers=2)
        assert store.counters(names, consistent=True) == dict.fromkeys(names, Counter(number, 2 * number))
