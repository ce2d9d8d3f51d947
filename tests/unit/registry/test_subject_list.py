"""The list of subjects: its order, its shards, and what crashes leave in it."""

from typing import Any
from zlib import crc32

import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Conflict, Throttled
from hourwheel.ports.storage import Key, Record, Refused, Table
from hourwheel.registry import subject_list
from hourwheel.registry.records import subject_key
from hourwheel.registry.subject_list import SubjectList
from tests.support import AT_ONCE, Bench, CallByCall


class Stopping(CallByCall):
    """Notes the keys that are put, and fails before a put to the key ``stop``."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.puts: list[Key] = []
        self.stop: Key | None = None

    def put(self, key: Key, record: Record, *, expect: bytes | None) -> Refused | None:
        if key == self.stop:
            raise Throttled("the process ends here")
        self.puts.append(key)
        return super().put(key, record, expect=expect)


def make_bench(**how: Any) -> Bench:
    return Bench(Stopping(), settings=Settings(retry=AT_ONCE, registry_seconds=0, **how))


@pytest.fixture
def bench() -> Bench:
    return make_bench()


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_list, "_MOST_NAMES", 5)


def entry(name: str, shard: int = 0) -> Key:
    return Key(Table.META, f"subjects/{shard}", name)


def names(bench: Bench, **how: Any) -> list[str]:
    return [listed.name for listed in bench.deployment.registry.listed.entries(**how)]


def living(bench: Bench) -> list[str]:
    return [subject.name for subject in bench.deployment.registry.all_subjects() if not subject.deleted]


def pages(bench: Bench, limit: int, after: str = "") -> list[str]:
    page, following = bench.deployment.subjects.page(after, limit)
    assert len(page) == limit or following is None
    return [subject.name for subject in page] + (pages(bench, limit, following) if following else [])


def store_of(bench: Bench) -> Stopping:
    assert isinstance(bench.store, Stopping)
    return bench.store


@pytest.mark.parametrize("store", [MemoryStore, Stopping])
def test_subjects_are_listed_in_the_order_of_their_names_whatever_the_page(store: Any) -> None:
    bench = Bench(store(), settings=Settings(retry=AT_ONCE, registry_seconds=0))
    made = [f"s-{number * 7919 % 1000:03d}" for number in range(230)]
    for name in made:
        bench.deployment.subjects.put(name)
    for limit in (1, 7, 100):
        assert pages(bench, limit) == sorted(made)
    assert names(bench, after="s-500") == [name for name in sorted(made) if name > "s-500"]
    assert names(bench, prefix="s-1") == [name for name in sorted(made) if name.startswith("s-1")]
    assert names(bench, prefix="s-9", after="s-950") == [name for name in sorted(made) if name > "s-950"]
    assert names(bench, prefix="t") == []


def test_a_creation_stores_the_entry_before_the_record_and_nothing_else(bench: Bench) -> None:
    bench.deployment.subjects.put("orders")
    assert store_of(bench).puts == [entry("orders"), subject_key("orders")]
    store_of(bench).puts.clear()
    bench.deployment.subjects.put("orders", retention_seconds=86_400)
    assert store_of(bench).puts == [subject_key("orders")]


def test_an_entry_whose_process_stopped_before_the_record_is_passed_over(bench: Bench) -> None:
    bench.deployment.subjects.put("a")
    bench.deployment.subjects.put("z")
    store_of(bench).stop = subject_key("orders")
    with pytest.raises(Throttled):
        bench.deployment.subjects.put("orders")
    store_of(bench).stop = None
    assert (names(bench), living(bench), pages(bench, 1)) == (["a", "orders", "z"], ["a", "z"], ["a", "z"])
    assert bench.deployment.sweeper.sweep().subjects == 2
    bench.deployment.subjects.put("orders")
    assert (names(bench), living(bench)) == (["a", "orders", "z"], ["a", "orders", "z"])


def test_a_process_that_stops_before_the_entry_leaves_no_record(bench: Bench) -> None:
    store_of(bench).stop = entry("orders")
    with pytest.raises(Throttled):
        bench.deployment.subjects.put("orders")
    assert bench.store.get(subject_key("orders")) is None


def test_a_subject_that_is_refused_for_its_number_leaves_no_entry() -> None:
    bench = make_bench(max_subjects=2)
    for name in ("a", "b"):
        bench.deployment.subjects.put(name)
    with pytest.raises(Conflict):
        bench.deployment.subjects.put("c")
    assert names(bench) == ["a", "b"]


def test_entries_without_a_record_do_not_count_for_the_limit() -> None:
    bench = make_bench(max_subjects=2)
    listed = bench.deployment.registry.listed
    for name in ("x", "y"):
        listed.add(bench.store, name)
    for name in ("a", "b"):
        bench.deployment.subjects.put(name)
    with pytest.raises(Conflict):
        bench.deployment.subjects.put("c")
    bench.deployment.subjects.delete("a")
    bench.deployment.subjects.put("c")
    assert living(bench) == ["b", "c"]


def test_the_entry_of_an_erased_subject_says_so_and_costs_no_read(bench: Bench) -> None:
    bench.deployment.subjects.put("orders")
    bench.deployment.subjects.delete("orders")
    assert list(bench.deployment.registry.listed.entries()) == [("orders", 1)]
    bench.deployment.sweeper.sweep()
    store_of(bench).calls.clear()
    assert living(bench) == []
    assert store_of(bench).calls == [("get", Table.META), ("scan", Table.META)]
    bench.deployment.subjects.put("orders")
    assert list(bench.deployment.registry.listed.entries()) == [("orders", 0)]
    assert living(bench) == ["orders"]


def test_the_sweeper_notes_an_erasure_whose_process_stopped_before_it_did(bench: Bench) -> None:
    bench.deployment.subjects.put("orders")
    store_of(bench).stop = entry("orders")
    with pytest.raises(Throttled):
        bench.deployment.subjects.delete("orders")
    store_of(bench).stop = None
    assert list(bench.deployment.registry.listed.entries()) == [("orders", 0)]
    bench.deployment.sweeper.sweep()
    assert list(bench.deployment.registry.listed.entries()) == [("orders", 1)]


@pytest.mark.usefixtures("small_shards")
def test_more_subjects_are_spread_over_more_shards(bench: Bench) -> None:
    first = [f"a{number:02d}" for number in range(12)]
    for name in first:
        bench.deployment.subjects.put(name)
    assert len(bench.store.scan(Table.META, "subjects/0", limit=100)) == 12
    bench.deployment.sweeper.sweep()
    bench.deployment = bench.another_process()
    later = [f"b{number:02d}" for number in range(20)]
    for name in later:
        bench.deployment.subjects.put(name)
    shards = [len(bench.store.scan(Table.META, f"subjects/{shard}", limit=100)) for shard in range(5)]
    assert (sum(shards), shards[4]) == (32, 0)
    assert all(shards[:4])
    assert names(bench) == first + later
    assert pages(bench, 3) == first + later


@pytest.mark.usefixtures("small_shards")
def test_a_subject_that_is_created_again_in_more_shards_is_listed_once(bench: Bench) -> None:
    made = [f"a{number:02d}" for number in range(12)]
    for name in made:
        bench.deployment.subjects.put(name)
    old = bench.another_process()
    bench.deployment.sweeper.sweep()
    bench.deployment = bench.another_process()
    for name in made:
        bench.deployment.subjects.delete(name)
    for name in made:  # half of them by a process that knows one shard
        (old if name < "a06" else bench.deployment).subjects.put(name)
    assert list(bench.deployment.registry.listed.entries()) == [(name, 0) for name in made]


@pytest.mark.usefixtures("small_shards")
def test_a_subject_with_two_entries_is_listed_once_and_erased_in_both(bench: Bench) -> None:
    """Two processes that know other numbers of shards may put an entry each at the same moment."""
    name = next(name for name in map(str, range(99)) if crc32(name.encode()) % 4)
    listed = bench.deployment.registry.listed
    bench.deployment.subjects.put(name)
    listed.divide(20)
    bench.store.put(entry(name, crc32(name.encode()) % 4), Record(b"\x00", b"x" * 16), expect=None)
    assert list(listed.entries()) == [(name, 0)]
    bench.deployment.subjects.delete(name)
    assert list(listed.entries()) == [(name, 1)]
    tokens = listed.tokens(name)
    assert len(tokens) == 2
    SubjectList(bench.deployment.context).add(bench.store, name)
    assert list(listed.entries()) == [(name, 0)]
    listed.mark_erased(tokens, 1)
    assert list(listed.entries()) == [(name, 0)], "it was created again since the tokens were read"


@pytest.mark.usefixtures("small_shards")
def test_a_store_without_limits_of_a_partition_keeps_one_shard() -> None:
    bench = Bench(MemoryStore(), settings=Settings(retry=AT_ONCE))
    for number in range(12):
        bench.deployment.subjects.put(f"a{number}")
    bench.deployment.sweeper.sweep()
    assert bench.store.scan(Table.META, "subjects", limit=1) == []


def test_the_number_of_shards_only_grows(bench: Bench) -> None:
    for subjects, shards in ((5_000, None), (5_001, b"\x02"), (40_000, b"\x08"), (6_000, b"\x08"), (10**7, b"\x40")):
        bench.another_process().registry.listed.divide(subjects)
        head = bench.store.get(Key(Table.META, "subjects", "shards"))
        assert (None if head is None else head.value) == shards


DAMAGED = [b"\xc1", b"\x00", b"\xff", b"\x03", b"\xcd\x10\x00", b"\xa1x"]
"""Records that cannot be decoded, or that name a number of shards that there cannot be."""


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_damaged_number_of_shards_hides_no_subject_and_a_sweep_replaces_it(bench: Bench, damaged: bytes) -> None:
    made = [f"a{number:02d}" for number in range(12)]
    for name in made[:8]:
        bench.deployment.subjects.put(name)
    bench.deployment.sweeper.sweep()
    head = Key(Table.META, "subjects", "shards")
    before = bench.store.get(head)
    assert before is not None
    assert before.value == b"\x02"
    bench.store.put(head, Record(damaged, b"x" * 16), expect=before.token)
    bench.deployment = bench.another_process()
    for name in made[8:]:
        bench.deployment.subjects.put(name)
    assert names(bench) == made
    bench.deployment.subjects.delete("a01")
    assert bench.deployment.sweeper.sweep().subjects == 11
    after = bench.store.get(head)
    assert after is not None
    assert after.value == b"\x40"
    bench.deployment = bench.another_process()
    assert living(bench) == [name for name in made if name != "a01"]


def test_a_number_of_shards_that_was_raised_counts_at_once(bench: Bench) -> None:
    listed = bench.deployment.registry.listed
    assert list(listed.entries(consistent=False)) == []
    listed.divide(20_000)
    listed.add(bench.store, "orders")
    assert bench.store.get(entry("orders", crc32(b"orders") % 4)) is not None
