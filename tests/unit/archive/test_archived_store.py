"""An archive belongs to one store: rows stay until they are archived, and another store's archive is refused."""

import copy
from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive.rebuild import rebuild
from hourwheel.archive.rebuild_records import Rebuilding
from hourwheel.errors import Conflict
from hourwheel.logs.cas import CasRecord
from hourwheel.ports.storage import Key, Record, Table
from tests.support import Bench, CallByCall
from tests.unit.archive.archiving import HOUR, run
from tests.unit.archive.reading import contents


class CountedReads(CallByCall):
    """Counts the rows of consume logs that are read."""

    rows = 0

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        found = super().scan(table, partition, **how)
        self.rows += len(found) if table == Table.CONSUME else 0
        return found


def test_nothing_is_removed_before_it_is_archived(bench: Bench, archive: MemoryBlobs) -> None:
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("a", "b")
    bench.send_later("later", delay=60)
    (pull,) = bench.pull()
    bench.settle(pull, dead=[0])
    bench.turn(120)
    bench.clock.pass_time(40 * 24 * HOUR)
    for _ in range(3):
        bench.deployment.sweeper.sweep()
        bench.clock.pass_time(60)
    run(bench, archive)
    found = contents(archive)
    assert found.bodies("orders~1/0") == ["a", "b", "later"]
    assert found.bodies("orders~1/dead/billing~1") == ["a"]
    assert len(found.pulls) == 1
    assert [transfer.kind for row in found.dispatches.values() for transfer in row.transfers] == ["due"]
    bench.clock.pass_time(3 * 24 * HOUR)
    bench.deployment.sweeper.sweep()
    assert bench.store.scan(Table.CONSUME, "orders~1/0", limit=10) == []
    assert bench.store.scan(Table.PULL, "billing~1@orders~1/0", limit=10) == []


def test_rows_that_would_go_by_their_time_are_renewed_while_the_archive_is_behind(
    bench: Bench, archive: MemoryBlobs
) -> None:
    run(bench, archive)
    bench.deployment.subjects.put("orders", retention_seconds=60)
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull)
    for _ in range(20):
        bench.clock.pass_time(12 * HOUR)
        bench.deployment.sweeper.sweep()
        bench.send("more")
    consume = bench.store.scan(Table.CONSUME, "orders~1/0", limit=100)
    pulls = bench.store.scan(Table.PULL, "billing~1@orders~1/0", limit=100)
    assert len(consume) == 21
    assert all(record.expires_ms > bench.clock.now_ms() for _, record in [*consume, *pulls] if record.expires_ms)


def test_a_deleted_subject_is_no_obstacle(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    bench.send("never archived")
    bench.deployment.subjects.delete("orders")
    bench.send("anew")
    assert run(bench, archive).complete
    found = contents(archive)
    assert found.bodies("orders~1/0") == ["a"]
    assert found.bodies("orders~2/0") == ["anew"]


def test_an_empty_store_does_not_go_on_with_the_archive_of_a_lost_one(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b")
    run(bench, archive)
    before = archive.list("")
    lost = Bench(settings=bench.settings, clock=bench.clock)
    for _ in range(2):
        with pytest.raises(Conflict, match="rebuild the store from it"):
            run(lost, archive)
    assert archive.list("") == before
    lost.deployment.sweeper.sweep()
    assert rebuild(lost.deployment.context, archive, gap=10).messages == 2
    lost.send("c")
    assert run(lost, archive).complete
    assert contents(archive).bodies("orders~1/0") == ["a", "b", "c"]


def test_a_store_that_is_older_than_its_archive_is_refused(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    older = MemoryStore()
    vars(older).update({name: copy.deepcopy(kept) for name, kept in vars(bench.store).items() if "lock" not in name})
    bench.send("b")
    bench.send("c")
    run(bench, archive)
    restored = Bench(store=older, settings=bench.settings, clock=bench.clock)
    restored.send("something else")
    with pytest.raises(Conflict, match="rebuild the store from it"):
        run(restored, archive)


def test_the_archive_of_another_store_is_refused(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    bench.send("b")
    elsewhere = MemoryBlobs()
    with pytest.raises(Conflict, match="it is the archive of another store"):
        run(bench, elsewhere)
    assert elsewhere.list("manifests/") == []


def test_a_store_that_is_half_rebuilt_is_not_archived(bench: Bench, archive: MemoryBlobs) -> None:
    context = bench.deployment.context
    record = CasRecord(context.store, context.ids, Key(Table.META, "rebuild", "state"), Rebuilding)
    record.swap(None, Rebuilding(began_ms=context.clock.now_ms(), end_manifest=1))
    with pytest.raises(Conflict, match="half rebuilt"):
        run(bench, archive)
    assert archive.list("") == []


def test_rows_that_wait_for_the_archive_are_not_read_by_each_sweep(bench: Bench, archive: MemoryBlobs) -> None:
    run(bench, archive)
    counted = CountedReads(bench.store)
    watched = Bench(store=counted, settings=bench.settings, clock=bench.clock)
    for _ in range(300):
        watched.send("waits")
    bench.clock.pass_time(7 * HOUR)
    reads = []
    for _ in range(3):
        counted.rows = 0
        watched.send("more")
        watched.deployment.sweeper.sweep()
        bench.clock.pass_time(60)
        reads.append(counted.rows)
    assert max(reads[1:]) < 100
