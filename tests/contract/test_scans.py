"""``Store.scan``, ``Store.trim`` and ``Store.collect`` keep their promises on every adapter."""

import pytest

from hourwheel.adapters.sqlite import session as sqlite_session
from hourwheel.ports.storage import MAX_VALUE_BYTES, Key, Refused, Store, Table

from .records import FAR_OFF_MS, filled, record, stored

# These are in order by code point and by UTF-8, but not by UTF-16, by case or by locale.
IN_ORDER = ["10", "9", "B", "Z", "a", "aa", "b", "z", "é", "中", "\ufb03", "\N{GRINNING FACE}"]


def sorts(store: Store, partition: str, *, start: str = "", limit: int = 100, reverse: bool = False) -> list[str]:
    return [sort for sort, _ in store.scan(Table.CONSUME, partition, start=start, limit=limit, reverse=reverse)]


def test_a_partition_never_written_is_empty(store: Store, partition: str) -> None:
    assert sorts(store, partition) == []
    assert sorts(store, partition, start="a", reverse=True) == []


def test_items_come_in_order_of_the_utf8_bytes_of_sort(store: Store, partition: str) -> None:
    assert sorted(IN_ORDER, key=str.encode) == IN_ORDER
    filled(store, partition, IN_ORDER[::2] + IN_ORDER[1::2])
    assert sorts(store, partition) == IN_ORDER
    assert sorts(store, partition, reverse=True) == IN_ORDER[::-1]


def test_items_come_whole(store: Store, partition: str) -> None:
    written = filled(store, partition, "abc")
    assert store.scan(Table.CONSUME, partition, limit=10) == list(written.items())
    assert store.scan(Table.CONSUME, partition, limit=10, consistent=False) in (list(written.items()), [])


def test_start_is_included(store: Store, partition: str) -> None:
    filled(store, partition, "abcd")
    assert sorts(store, partition, start="b") == ["b", "c", "d"]


def test_start_need_not_exist(store: Store, partition: str) -> None:
    filled(store, partition, "abcd")
    assert sorts(store, partition, start="b0") == ["c", "d"]
    assert sorts(store, partition, start="A") == ["a", "b", "c", "d"]
    assert sorts(store, partition, start="e") == []


def test_start_is_compared_by_utf8_bytes(store: Store, partition: str) -> None:
    filled(store, partition, IN_ORDER)
    for position, start in enumerate(IN_ORDER):
        assert sorts(store, partition, start=start) == IN_ORDER[position:]


def test_no_more_than_limit_items_come(store: Store, partition: str) -> None:
    filled(store, partition, "abcd")
    assert sorts(store, partition, limit=0) == []
    assert sorts(store, partition, limit=1) == ["a"]
    assert sorts(store, partition, start="b", limit=2) == ["b", "c"]
    assert sorts(store, partition, limit=4) == ["a", "b", "c", "d"]
    assert sorts(store, partition, limit=5) == ["a", "b", "c", "d"]


def test_reverse_comes_down_from_the_last_item(store: Store, partition: str) -> None:
    filled(store, partition, "abcd")
    assert sorts(store, partition, reverse=True) == ["d", "c", "b", "a"]
    assert sorts(store, partition, reverse=True, limit=2) == ["d", "c"]
    assert sorts(store, partition, reverse=True, limit=0) == []


def test_reverse_stops_at_start_which_is_included(store: Store, partition: str) -> None:
    filled(store, partition, "abcd")
    assert sorts(store, partition, reverse=True, start="b") == ["d", "c", "b"]
    assert sorts(store, partition, reverse=True, start="b0") == ["d", "c"]
    assert sorts(store, partition, reverse=True, start="b", limit=1) == ["d"]
    assert sorts(store, partition, reverse=True, start="e") == []


def test_only_the_partition_asked_for_comes(store: Store, partition: str) -> None:
    filled(store, partition, "b")
    filled(store, f"{partition}0", "a")
    filled(store, partition[:-1], "c")
    filled(store, partition, "d", Table.PULL)
    assert sorts(store, partition) == ["b"]


def test_a_scan_sees_the_writes_before_it(store: Store, partition: str) -> None:
    for position in range(5):
        stored(store, Key(Table.CONSUME, partition, str(position)))
        assert sorts(store, partition) == [str(earlier) for earlier in range(position + 1)]


def test_slices_that_begin_where_the_last_one_ended_make_the_whole(store: Store, partition: str) -> None:
    written = filled(store, partition, [f"{position:04d}" for position in range(23)])
    found = store.scan(Table.CONSUME, partition, limit=7)
    while len(more := store.scan(Table.CONSUME, partition, start=found[-1][0], limit=7)) > 1:
        found += more[1:]
    assert found == list(written.items())


def test_a_scan_goes_on_beyond_a_megabyte(store: Store, partition: str) -> None:
    written = {
        sort: stored(store, Key(Table.CONSUME, partition, sort), sort.encode() * MAX_VALUE_BYTES) for sort in "abcde"
    }
    whole = list(written.items())
    assert store.scan(Table.CONSUME, partition, limit=5) == whole
    assert store.scan(Table.CONSUME, partition, limit=100) == whole
    assert store.scan(Table.CONSUME, partition, limit=4, reverse=True) == whole[:0:-1]
    assert store.scan(Table.CONSUME, partition, start="b", limit=3) == whole[1:4]


def test_a_trim_keeps_what_is_not_below(store: Store, partition: str) -> None:
    written = filled(store, partition, "abcd")
    store.trim(Table.CONSUME, partition, below="c")
    found = dict(store.scan(Table.CONSUME, partition, limit=10))
    assert found["c"] == written["c"]
    assert found["d"] == written["d"]


def test_a_trim_changes_nothing_that_it_does_not_remove(store: Store, partition: str) -> None:
    written = filled(store, partition, "abcd")
    store.trim(Table.CONSUME, partition, below="c")
    found = dict(store.scan(Table.CONSUME, partition, limit=10))
    assert found.items() <= written.items()
    assert all(store.get(Key(Table.CONSUME, partition, sort)) == found.get(sort) for sort in written)


def test_a_trim_leaves_other_partitions_and_tables_alone(store: Store, partition: str) -> None:
    filled(store, f"{partition}0", "a")
    filled(store, partition, "a", Table.PULL)
    filled(store, partition, "a")
    store.trim(Table.CONSUME, partition, below="z")
    assert sorts(store, f"{partition}0") == ["a"]
    assert len(store.scan(Table.PULL, partition, limit=10)) == 1


def test_a_trim_may_be_repeated_and_find_nothing(store: Store, partition: str) -> None:
    store.trim(Table.CONSUME, partition, below="z")
    filled(store, partition, "ab")
    store.trim(Table.CONSUME, partition, below="a")
    store.trim(Table.CONSUME, partition, below="a")
    assert sorts(store, partition) == ["a", "b"]


def test_a_trim_goes_on_beyond_what_it_removes_at_once(
    store: Store, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_session, "_TRIM_ROWS", 2)
    written = filled(store, partition, "abcdefg")
    store.trim(Table.CONSUME, partition, below="f")
    found = dict(store.scan(Table.CONSUME, partition, limit=10))
    assert {sort: written[sort] for sort in "fg"}.items() <= found.items()
    assert len(found) in (2, 7), "a store that leaves this to its TTL removes nothing, any other removes all of it"


def test_collecting_goes_on_beyond_what_it_removes_at_once(
    store: Store, partition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_session, "_COLLECT_ROWS", 2)
    for sort in "abcde":
        store.put(Key(Table.KEYS, partition, sort), record(expires_ms=FAR_OFF_MS), expect=None)
    store.collect(Table.KEYS, FAR_OFF_MS + 1)
    assert len(store.scan(Table.KEYS, partition, limit=10)) in (0, 5)


def test_collecting_removes_nothing_before_its_time(store: Store, partition: str) -> None:
    lasting = filled(store, partition, "a", Table.KEYS)["a"]
    expiring = record(expires_ms=FAR_OFF_MS)
    store.put(Key(Table.KEYS, partition, "b"), expiring, expect=None)
    store.collect(Table.KEYS, FAR_OFF_MS - 1)
    assert store.scan(Table.KEYS, partition, limit=10) == [("a", lasting), ("b", expiring)]


def test_collecting_keeps_what_never_expires_and_the_other_tables(store: Store, partition: str) -> None:
    lasting = filled(store, partition, "a", Table.KEYS)["a"]
    elsewhere = record(expires_ms=FAR_OFF_MS)
    store.put(Key(Table.PULL, partition, "b"), elsewhere, expect=None)
    store.put(Key(Table.KEYS, partition, "b"), record(expires_ms=FAR_OFF_MS), expect=None)
    store.collect(Table.KEYS, FAR_OFF_MS + 1)
    assert store.get(Key(Table.KEYS, partition, "a")) == lasting
    assert store.get(Key(Table.PULL, partition, "b")) == elsewhere


def test_a_key_that_was_collected_is_empty_throughout(store: Store, partition: str) -> None:
    key = Key(Table.KEYS, partition, "a")
    expiring = record(expires_ms=FAR_OFF_MS)
    store.put(key, expiring, expect=None)
    store.collect(Table.KEYS, FAR_OFF_MS + 1)
    left = store.get(key)
    assert left in (None, expiring)
    assert store.scan(Table.KEYS, partition, limit=1) == ([("a", left)] if left else [])
    assert store.put(key, record(), expect=None) == (Refused(left) if left else None)
