"""The tables of a deployment state their format: a version that must not use them is refused with a sentence."""

from collections.abc import Callable

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells.store_formats import FORMAT_KEY, check_format, check_formats, keep_format, repair_format
from hourwheel.errors import Corrupt, DataVersion
from hourwheel.logs.formats import CURRENT, FORMAT, StoreFormat
from hourwheel.model.subjects import Subject
from hourwheel.ports.machine import Ids
from hourwheel.ports.storage import CellStorage, Key, Record, Store, Table
from hourwheel.retention.archive_format import PREFIX, check_archive, keep_archive_format
from hourwheel.system import SystemIds
from tests.support import Bench, CallByCall

IDS = SystemIds()
PLACE = "the deployment"
LATER = StoreFormat(format=FORMAT + 4, least_reader=FORMAT + 3, written_by="0.9.0")
READABLE = StoreFormat(format=FORMAT + 1, least_reader=FORMAT, written_by="0.2.0")


def store_with(found: StoreFormat) -> CallByCall:
    store = MemoryStore()
    store.put(FORMAT_KEY, Record(msgspec.msgpack.encode(found), IDS.token()), expect=None)
    return CallByCall(store)


def stored(store: Store) -> StoreFormat | None:
    record = store.get(FORMAT_KEY)
    return None if record is None else msgspec.msgpack.decode(record.value, type=StoreFormat)


def test_an_empty_store_gets_the_format() -> None:
    store = CallByCall(MemoryStore())
    check_format(store, IDS, PLACE)
    assert stored(store) is None
    keep_format(store, IDS, PLACE)
    assert stored(store) == CURRENT


def test_each_later_start_takes_one_read() -> None:
    store = store_with(CURRENT)
    for start in (check_format, keep_format):
        store.calls.clear()
        start(store, IDS, PLACE)
        assert store.calls == [("get", "meta")]


@pytest.mark.parametrize("start", [check_format, keep_format])
def test_a_store_that_only_later_versions_read_is_refused(start: Callable[[Store, Ids, str], None]) -> None:
    store = store_with(LATER)
    with pytest.raises(DataVersion) as refused:
        start(store, IDS, PLACE)
    assert str(refused.value) == (
        f"the deployment has format {FORMAT + 4}, of Hourwheel 0.9.0, and this version of Hourwheel reads format"
        f" {FORMAT}: use Hourwheel 0.9.0 or a later version, or restore a backup that this version has made"
    )
    assert store.writes == []
    assert stored(store) == LATER


def test_a_version_reads_what_the_next_one_writes_and_leaves_its_mark() -> None:
    store = store_with(READABLE)
    check_format(store, IDS, PLACE)
    keep_format(store, IDS, PLACE)
    assert stored(store) == READABLE


def test_a_store_of_before_the_first_release_is_refused_from_then_on() -> None:
    store = CallByCall(MemoryStore())
    of_before = Subject(name="orders", generation=1, created_ms=1)
    key = Key(Table.META, "subjects", "orders")
    store.put(key, Record(msgspec.msgpack.encode(of_before), IDS.token()), expect=None)
    for start in (keep_format, check_format, keep_format):
        with pytest.raises(DataVersion, match=r"the deployment has format 2, .*: use the version that wrote it"):
            start(store, IDS, PLACE)
    assert store.get(key) is not None


def test_a_store_with_many_subjects_is_one_of_this_format() -> None:
    bench = Bench()
    bench.store.put(Key(Table.META, "subjects", "shards"), Record(msgspec.msgpack.encode(4), IDS.token()), expect=None)
    bench.send("a")
    keep_format(bench.store, IDS, PLACE)
    assert stored(bench.store) == CURRENT


def test_the_formats_of_all_cells_are_kept() -> None:
    there = CellStorage(MemoryStore(), MemoryBlobs())
    bench = Bench(cells={"fast": there})
    bench.deployment.cells.add("fast")
    check_formats(bench.deployment.context, keep=False)
    assert stored(bench.store) is None
    check_formats(bench.deployment.context, keep=True)
    assert (stored(bench.store), stored(there.store)) == (CURRENT, CURRENT)


def test_a_cell_that_must_not_be_used_does_not_stop_the_others() -> None:
    there = CellStorage(store_with(LATER), MemoryBlobs())
    bench = Bench(cells={"fast": there})
    bench.deployment.cells.add("fast")
    check_formats(bench.deployment.context, keep=True)
    assert (stored(bench.store), stored(there.store)) == (CURRENT, LATER)


def test_two_processes_that_start_at_once_store_it_once() -> None:
    store = MemoryStore()

    class Slow(CallByCall):
        def scan(self, table: Table, partition: str, **how: object) -> list[tuple[str, Record]]:
            keep_format(store, IDS, PLACE)
            return super().scan(table, partition, **how)

    keep_format(Slow(store), IDS, PLACE)
    assert stored(store) == CURRENT


def test_an_archive_states_its_format() -> None:
    archive = MemoryBlobs()
    assert check_archive(archive) is None
    for _ in range(2):
        keep_archive_format(archive)
    assert check_archive(archive) == CURRENT
    assert archive.list(PREFIX) == [f"{PREFIX}{FORMAT:04d}"]
    archive.put(f"{PREFIX}{FORMAT + 1:04d}", msgspec.json.encode(READABLE))
    keep_archive_format(archive)
    assert check_archive(archive) == READABLE
    archive.put(f"{PREFIX}{FORMAT + 4:04d}", msgspec.json.encode(LATER))
    for start in (check_archive, keep_archive_format):
        with pytest.raises(DataVersion, match=r"the archive has format 7, of Hourwheel 0\.9\.0"):
            start(archive)


def test_the_sweeper_repeats_what_a_cell_out_of_reach_did_not_get() -> None:
    there = CellStorage(MemoryStore(), MemoryBlobs())
    cells = {"fast": there}
    bench = Bench(cells=cells)
    bench.deployment.cells.add("fast")
    bench.deployment.cells.set_state("fast", "offline")
    assert not check_formats(bench.deployment.context, keep=True)
    assert stored(there.store) is None
    bench.deployment.cells.set_state("fast", "normal")
    assert check_formats(bench.deployment.context, keep=True)
    assert stored(there.store) == CURRENT


@pytest.mark.parametrize("start", [check_format, keep_format])
def test_a_damaged_record_names_its_repair(start: Callable[[Store, Ids, str], None]) -> None:
    store = MemoryStore()
    store.put(FORMAT_KEY, Record(b"\xc1", IDS.token()), expect=None)
    with pytest.raises(Corrupt, match="format of the deployment is damaged: run make repair-format"):
        start(store, IDS, PLACE)
    assert repair_format(store, IDS)
    start(store, IDS, PLACE)
    assert stored(store) == CURRENT


@pytest.mark.parametrize("found", [LATER, CURRENT])
def test_a_record_that_can_be_read_is_not_repaired(found: StoreFormat) -> None:
    store = store_with(found)
    assert not repair_format(store, IDS)
    assert stored(store) == found
