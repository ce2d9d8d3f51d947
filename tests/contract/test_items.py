"""Reads, writes and removals of items keep the promises of ``Store`` on every adapter."""

import pytest

from hourwheel.ports.storage import GET_MANY, MAX_VALUE_BYTES, REMOVE_MANY, Key, Record, Refused, Store, Table

from .records import FAR_OFF_MS, record, stored


@pytest.fixture
def key(partition: str) -> Key:
    return Key(Table.CONSUME, partition, "0000")


def test_a_key_that_was_never_written_holds_nothing(store: Store, key: Key) -> None:
    assert store.get(key) is None
    assert store.get(key, consistent=False) is None


def test_a_stored_record_is_read_back_exactly(store: Store, key: Key) -> None:
    every_byte = record(bytes(range(256)))
    assert store.put(key, every_byte, expect=None) is None
    assert store.get(key) == every_byte


def test_a_token_may_hold_any_bytes(store: Store, key: Key) -> None:
    zeros = Record(value=b"", token=bytes(16))
    ones = Record(value=b"", token=b"\xff" * 16)
    assert store.put(key, zeros, expect=None) is None
    assert store.put(key, ones, expect=zeros.token) is None
    assert store.get(key) == ones


def test_an_empty_value_is_a_value(store: Store, key: Key) -> None:
    empty = stored(store, key, b"")
    assert store.get(key) == empty
    assert store.put(key, record(), expect=None) == Refused(empty)


def test_an_inconsistent_read_never_invents_a_record(store: Store, key: Key) -> None:
    written = stored(store, key)
    assert store.get(key, consistent=False) in (None, written)


def test_reads_see_the_writes_before_them(store: Store, key: Key) -> None:
    first = stored(store, key)
    assert store.get(key) == first
    second = record(b"second")
    store.put(key, second, expect=first.token)
    assert store.get(key) == second
    store.delete(key, expect=second.token)
    assert store.get(key) is None


def test_a_put_on_an_empty_key_is_refused_where_there_is_a_record(store: Store, key: Key) -> None:
    first = stored(store, key, b"first")
    assert store.put(key, record(b"second"), expect=None) == Refused(first)
    assert store.get(key) == first


def test_a_put_replaces_the_record_with_the_expected_token(store: Store, key: Key) -> None:
    first = stored(store, key)
    second = record(b"second", expires_ms=FAR_OFF_MS)
    third = record(b"third")
    assert store.put(key, second, expect=first.token) is None
    assert store.put(key, third, expect=second.token) is None
    assert store.get(key) == third


def test_a_put_that_expects_an_older_token_is_refused_with_the_newer_record(store: Store, key: Key) -> None:
    first = stored(store, key)
    second = record(b"second", expires_ms=FAR_OFF_MS)
    store.put(key, second, expect=first.token)
    assert store.put(key, record(b"third"), expect=first.token) == Refused(second)
    assert store.get(key) == second


def test_a_put_that_expects_a_token_is_refused_with_nothing_on_an_empty_key(store: Store, key: Key) -> None:
    assert store.put(key, record(), expect=record().token) == Refused(None)
    assert store.get(key) is None


def test_a_repeated_first_put_is_refused_with_its_own_record(store: Store, key: Key) -> None:
    mine = stored(store, key)
    assert store.put(key, mine, expect=None) == Refused(mine)


def test_a_repeated_replacing_put_is_refused_with_its_own_record(store: Store, key: Key) -> None:
    before = stored(store, key)
    mine = record(b"mine")
    assert store.put(key, mine, expect=before.token) is None
    assert store.put(key, mine, expect=before.token) == Refused(mine)


def test_a_delete_removes_the_record_with_the_expected_token(store: Store, key: Key) -> None:
    first = stored(store, key)
    assert store.delete(key, expect=first.token) is None
    assert store.get(key) is None
    assert store.scan(key.table, key.partition, limit=10) == []


def test_a_delete_that_expects_another_token_is_refused_with_the_record(store: Store, key: Key) -> None:
    first = stored(store, key)
    assert store.delete(key, expect=record().token) == Refused(first)
    assert store.get(key) == first


def test_a_delete_of_an_empty_key_is_refused_with_nothing(store: Store, key: Key) -> None:
    assert store.delete(key, expect=record().token) == Refused(None)


def test_a_repeated_delete_is_refused_with_nothing(store: Store, key: Key) -> None:
    first = stored(store, key)
    assert store.delete(key, expect=first.token) is None
    assert store.delete(key, expect=first.token) == Refused(None)


def test_a_deleted_key_can_be_written_anew(store: Store, key: Key) -> None:
    first = stored(store, key)
    store.delete(key, expect=first.token)
    second = stored(store, key, b"second")
    assert store.get(key) == second


@pytest.mark.parametrize("milliseconds", [0, 1, 500, 999])
def test_the_expiry_is_kept_to_the_millisecond(store: Store, key: Key, milliseconds: int) -> None:
    expiring = record(expires_ms=FAR_OFF_MS + milliseconds)
    assert store.put(key, expiring, expect=None) is None
    assert store.get(key) == expiring
    assert store.put(key, record(), expect=None) == Refused(expiring)
    assert store.scan(key.table, key.partition, limit=1) == [(key.sort, expiring)]


def test_a_replacing_put_sets_and_takes_back_the_expiry(store: Store, key: Key) -> None:
    lasting = stored(store, key)
    expiring = record(expires_ms=FAR_OFF_MS)
    store.put(key, expiring, expect=lasting.token)
    assert store.get(key) == expiring
    lasting = record()
    store.put(key, lasting, expect=expiring.token)
    assert store.get(key) == lasting


def test_the_largest_value_is_stored_and_read_back_exactly(store: Store, key: Key) -> None:
    largest = record(bytes(range(256)) * (MAX_VALUE_BYTES // 256), expires_ms=FAR_OFF_MS)
    assert len(largest.value) == MAX_VALUE_BYTES
    assert store.put(key, largest, expect=None) is None
    assert store.get(key) == largest
    assert store.put(key, record(), expect=None) == Refused(largest)


def test_one_byte_more_is_an_error_and_nothing_is_stored(store: Store, key: Key) -> None:
    too_large = record(bytes(MAX_VALUE_BYTES + 1))
    with pytest.raises(ValueError, match=str(MAX_VALUE_BYTES)):
        store.put(key, too_large, expect=None)
    assert store.get(key) is None
    small = stored(store, key)
    with pytest.raises(ValueError, match=str(MAX_VALUE_BYTES)):
        store.put(key, too_large, expect=small.token)
    assert store.get(key) == small


@pytest.mark.parametrize("name", ["a/b", " ", "100%_", "'; --", "naïve", "\N{GRINNING FACE}", "a\nb"])
def test_names_are_taken_as_they_are(store: Store, partition: str, name: str) -> None:
    key = Key(Table.KEYS, f"{partition}{name}", name)
    written = stored(store, key)
    assert store.get(key) == written
    assert store.scan(Table.KEYS, key.partition, start=name, limit=2) == [(name, written)]


def test_partition_and_sort_may_have_900_bytes_together(store: Store, partition: str) -> None:
    long_partition = partition.ljust(400, "p")
    key = Key(Table.KEYS, long_partition, "é" * 250)
    largest = record(bytes(MAX_VALUE_BYTES))
    assert store.put(key, largest, expect=None) is None
    assert store.scan(Table.KEYS, long_partition, limit=1) == [(key.sort, largest)]


def test_the_same_key_in_another_table_is_another_key(store: Store, partition: str) -> None:
    written = {table: stored(store, Key(table, partition, "1"), table.encode()) for table in Table}
    for table, kept in written.items():
        assert store.get(Key(table, partition, "1")) == kept
        assert store.scan(table, partition, limit=10) == [("1", kept)]


def test_the_same_sort_in_another_partition_is_another_key(store: Store, partition: str) -> None:
    written = stored(store, Key(Table.PULL, partition, "1"))
    assert store.get(Key(Table.PULL, partition + "1", "1")) is None
    assert store.get(Key(Table.PULL, partition.upper(), "1")) is None
    assert store.get(Key(Table.PULL, partition, "1")) == written


def test_many_keys_are_read_at_once_those_that_are_there(store: Store, partition: str) -> None:
    written = {
        f"{number:04d}": stored(store, Key(Table.SCHEDULE, partition, f"{number:04d}")) for number in range(GET_MANY)
    }
    names = [f"{number:04d}" for number in range(0, 2 * GET_MANY, 2)]
    found = store.get_many(Table.SCHEDULE, partition, names)
    assert found == {name: written[name] for name in names if name in written}
    assert store.get_many(Table.SCHEDULE, partition, []) == {}
    assert store.get_many(Table.SCHEDULE, f"{partition} other", ["0000"]) == {}
    some = store.get_many(Table.SCHEDULE, partition, ["0002", "none"], consistent=False)
    assert some in ({}, {"0002": written["0002"]})


def test_keys_of_many_partitions_are_read_at_once(store: Store, partition: str) -> None:
    keys = [Key(Table.META, f"{partition} {number}", str(number % 2)) for number in range(GET_MANY)]
    written = {key: stored(store, key) for key in keys[::3]}
    assert store.get_keys(keys) == written
    assert store.get_keys([]) == {}
    assert store.get_keys([key._replace(sort="none") for key in keys]) == {}
    assert store.get_keys([key._replace(partition=keys[1].partition) for key in keys[:1]]) == {}
    assert store.get_keys(keys[:2], consistent=False) in ({}, {keys[0]: written[keys[0]]})


def test_many_items_are_removed_by_their_names_and_no_others(store: Store, partition: str) -> None:
    names = [f"{number:04d}" for number in range(REMOVE_MANY + 2)]
    for name in names:
        stored(store, Key(Table.SCHEDULE, partition, name), b"x")
    elsewhere = stored(store, Key(Table.DISPATCH, partition, names[0]), b"x")
    store.remove_many(Table.SCHEDULE, partition, names[1 : REMOVE_MANY + 1])
    left = [name for name, _ in store.scan(Table.SCHEDULE, partition, limit=100)]
    assert left == [names[0], names[-1]]
    assert store.get(Key(Table.DISPATCH, partition, names[0])) == elsewhere


def test_items_that_are_gone_count_as_removed(store: Store, partition: str) -> None:
    stored(store, Key(Table.SCHEDULE, partition, "0000"), b"x")
    for _ in range(2):
        store.remove_many(Table.SCHEDULE, partition, ["0000", "0001"])
    assert store.scan(Table.SCHEDULE, partition, limit=9) == []
