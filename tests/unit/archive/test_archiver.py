import copy
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive import collecting
from hourwheel.archive.archiver import Archived, Archiver, Limits
from hourwheel.archive.rebuild import Rebuilding, rebuild
from hourwheel.context import Settings
from hourwheel.errors import Broken, Conflict, HourwheelError, Unavailable
from hourwheel.logs.cas import CasRecord
from hourwheel.logs.rows import Row
from hourwheel.model import NewMessage
from hourwheel.ports import Blobs, Counter, Key, Record, Table
from hourwheel.retention import manifests
from hourwheel.retention.watermarks import archived_ms
from tests.support import AT_ONCE, Bench, CallByCall
from tests.unit.archive.reading import contents

T = TypeVar("T")

HOUR = 3_600


def archiver(bench: Bench, archive: Blobs, **limits: int) -> Archiver:
    cell = bench.another_process()
    return Archiver(cell.context, cell.registry, archive, Limits(**limits))


def run(bench: Bench, archive: Blobs, **limits: int) -> Archived:
    return archiver(bench, archive, **limits).run(bench.clock.now_ms() + 600_000)


def test_every_row_of_every_log_is_archived_once(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b", "c")
    bench.send_later("later", delay=60)
    (pull,) = bench.pull()
    bench.settle(pull, retry=[0], dead=[1])
    (again,) = bench.pull()
    bench.settle(again)
    bench.turn(90)
    report = run(bench, archive)
    found = contents(archive)
    assert set(found.rows.values()) == {1}
    assert found.bodies("orders~1/0") == ["a", "b", "c", "later"]
    assert found.bodies("orders~1/retry/billing~1") == ["a"]
    assert found.bodies("orders~1/dead/billing~1") == ["b"]
    assert [log for log in {log for log, _, _ in found.messages} if log.startswith("schedule/")]
    moved = {one.kind: one.picks for one in found.pulls["billing~1@orders~1/0", 0].moved}
    assert moved == {"retry": ((0, 0),), "rejected": ((0, 1),)}
    assert [transfer.kind for row in found.dispatches.values() for transfer in row.transfers] == ["due"]
    assert found.catalog is not None
    assert [subject.name for subject in found.catalog.subjects] == ["orders"]
    assert report.complete
    assert report.messages == 7


def test_a_run_without_anything_new_writes_nothing(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    before = archive.list("")
    bench.clock.pass_time(HOUR / 2)
    assert run(bench, archive) == Archived(complete=True)
    assert archive.list("") == before
    assert archived_ms(bench.cell.context) == bench.clock.now_ms()


def test_once_an_hour_a_manifest_says_that_there_is_nothing_new(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    for _ in range(6):
        bench.clock.pass_time(HOUR / 2)
        run(bench, archive)
    told = [manifest.complete_ms for manifest in manifests.manifests(archive)]
    assert len(told) == 4
    assert told[-1] == bench.clock.now_ms()


def test_a_row_without_messages_changes_nothing_in_what_a_manifest_says_of_sequences(
    bench: Bench, archive: MemoryBlobs
) -> None:
    bench.send("a", "b")
    log = bench.cell.context.log("orders~1/0")
    log.abandon(log.reserve(3), Row(first_seq=-1, count=0, at_ms=bench.clock.now_ms(), expires_ms=0))
    run(bench, archive)
    (first,) = manifests.manifests(archive)
    (part,) = [part for segment in first.segments for part in segment.parts if part.log == "orders~1/0"]
    assert (part.start, part.end) == (0, 2)
    assert (part.first, part.following, part.messages) == (0, 2, 2)


def test_rows_of_an_hour_lie_in_its_folder(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("noon")
    bench.clock.pass_time(HOUR)
    bench.send("one")
    run(bench, archive)
    folders = {key.rpartition("/")[0] for key in archive.list("segments/messages/")}
    assert folders == {"segments/messages/2025-11-20/12", "segments/messages/2025-11-20/13"}


def test_a_backlog_is_archived_in_bounded_commits_and_by_turns(bench: Bench, archive: MemoryBlobs) -> None:
    for subject in ("a", "b", "c"):
        for _ in range(20):
            bench.send("x" * 1_000, subject=subject)
    report = run(bench, archive, commit_bytes=15_000, log_bytes=5_000)
    assert report.complete
    assert report.commits >= 4
    assert report.messages == 60
    first = next(iter(manifests.manifests(archive)))
    assert {span.log for span in first.spans} == {"a~1/0", "b~1/0", "c~1/0"}
    assert set(contents(archive).rows.values()) == {1}


def test_what_is_larger_than_its_row_is_copied(bench: Bench, archive: MemoryBlobs) -> None:
    body = "x" * 50_000
    bench.settings = msgspec.structs.replace(bench.settings, inline_bytes=1_024, compression_level=1)
    large = bench.another_process()
    large.produce("orders", [NewMessage(body=body + str(at)) for at in range(40)])
    run(bench, archive)
    for key in bench.blobs.list(""):
        bench.blobs.delete(key)
    assert contents(archive).bodies("orders~1/0") == [body + str(at) for at in range(40)]


def damage(bench: Bench, row: int, old: bytes, new: bytes) -> None:
    key = Key(Table.CONSUME, "orders~1/0", f"{row:016d}")
    current = bench.store.get(key)
    assert current is not None
    assert old in current.value
    broken = msgspec.structs.replace(current, value=current.value.replace(old, new))
    bench.store.put(key, broken, expect=current.token)


def test_messages_that_cannot_be_read_are_named_and_hold_nobody_up(bench: Bench, archive: MemoryBlobs) -> None:
    for body in ("before", "middle", "behind"):
        bench.send(body)
    damage(bench, 1, b"middle", b"muddle")
    report = run(bench, archive)
    assert (report.damaged, report.complete) == (1, True)
    (manifest,) = manifests.manifests(archive)
    assert [(one.log, one.row_no, one.messages) for one in manifest.unreadable] == [("orders~1/0", 1, 1)]
    assert contents(archive).bodies("orders~1/0") == ["before", "behind"]


def test_a_row_that_cannot_be_read_holds_up_its_log_alone(bench: Bench, archive: MemoryBlobs) -> None:
    for body in ("before", "middle"):
        bench.send(body)
    bench.send("elsewhere", subject="others")
    damage(bench, 1, b"HWB1", b"HWB")
    report = run(bench, archive)
    assert not report.complete
    assert ("Faults", 1) in bench.meter.figures
    assert contents(archive).bodies("others~1/0") == ["elsewhere"]
    assert archived_ms(bench.cell.context) == 0


def test_an_open_pull_is_archived_once_it_is_closed(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b")
    first, second = bench.pull(1)[0], bench.pull(1)[0]
    bench.settle(second)
    assert run(bench, archive).complete
    assert contents(archive).pulls == {}
    bench.settle(first)
    run(bench, archive)
    assert len(contents(archive).pulls) == 2


class CountedReads(CallByCall):
    """Counts the rows of consume logs that are read."""

    rows = 0

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        found = super().scan(table, partition, **how)
        self.rows += len(found) if table == Table.CONSUME else 0
        return found


class Dying:
    """Storage of a process that ends at its ``calls``-th call of these verbs, before or after it takes effect."""

    def __init__(self, inner: object, left: list[int], after: bool, error: type[HourwheelError]) -> None:
        self._inner, self._left, self._after, self._error = inner, left, after, error

    def __getattr__(self, verb: str) -> object:
        call = getattr(self._inner, verb)
        if verb == "transact":
            raise AttributeError(verb)

        def dying(*args: object, **named: object) -> object:
            self._left[0] -= 1
            if self._left[0] == 0 and not self._after:
                raise self._error("the end of the process")
            answer = call(*args, **named)
            if self._left[0] == 0:
                raise self._error("the end of the process")
            return answer

        return dying


def dying_at(inner: T, left: list[int], after: bool, error: type[HourwheelError] = Unavailable) -> T:
    return cast(T, Dying(inner, left, after, error))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [Unavailable, Broken])
def test_an_archiver_that_ends_at_any_call_neither_loses_nor_doubles(after: bool, error: type[HourwheelError]) -> None:
    calls, left = 0, [0]
    while left[0] <= 0:
        calls += 1
        bench, archive = Bench(settings=Settings(retry=AT_ONCE, archive=True)), MemoryBlobs()
        bench.send("a", "b")
        bench.send_later("later", delay=60)
        (pull,) = bench.pull()
        bench.settle(pull, retry=[0])
        left = [calls]
        dying = Bench(
            store=dying_at(bench.store, left, after, error),
            blobs=bench.blobs,
            clock=bench.clock,
            settings=bench.settings,
        )
        with suppress(error):
            # Small commits: segments are written while others are still being read.
            run(dying, dying_at(archive, left, after, error), commit_bytes=1)
        bench.send("c")
        run(bench, archive)
        found = contents(archive)
        assert set(found.rows.values()) == {1}
        assert found.bodies("orders~1/0") == ["a", "b", "c"]
        assert found.bodies("orders~1/retry/billing~1") == ["a"]
    assert calls > 30


def test_what_lies_behind_a_row_that_may_still_come_is_not_complete(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    log = bench.cell.context.log("orders~1/0")
    log.reserve(1)
    bench.send("behind")
    report = run(bench, archive)
    assert (report.messages, report.complete) == (1, False)
    bench.clock.pass_time(2)
    report = run(bench, archive)
    assert (report.messages, report.complete) == (1, True)
    log.reserve(1)
    assert run(bench, archive).complete


def test_of_two_at_once_one_commits(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")

    class Overtaken(MemoryBlobs):
        """Just before a manifest is put another archiver is done."""

        def put(self, key: str, data: bytes) -> None:
            if key.startswith("manifests/") and not archive.list("manifests/"):
                run(bench, archive)
                bench.send("b")
            archive.put(key, data)

        def get(self, key: str, **part: int | None) -> bytes:
            return archive.get(key, **part)

    report = run(bench, Overtaken())
    assert report.lost_races == 1
    assert report.complete
    found = contents(archive)
    assert set(found.rows.values()) == {1}
    assert found.bodies("orders~1/0") == ["a", "b"]


def test_nothing_is_removed_before_it_is_archived(bench: Bench, archive: MemoryBlobs) -> None:
    bench.cell.put_subject("orders", retention_seconds=60)
    bench.send("a", "b")
    bench.send_later("later", delay=60)
    (pull,) = bench.pull()
    bench.settle(pull, dead=[0])
    bench.turn(120)
    bench.clock.pass_time(40 * 24 * HOUR)
    for _ in range(3):
        bench.cell.sweep()
        bench.clock.pass_time(60)
    run(bench, archive)
    found = contents(archive)
    assert found.bodies("orders~1/0") == ["a", "b", "later"]
    assert found.bodies("orders~1/dead/billing~1") == ["a"]
    assert len(found.pulls) == 1
    assert [transfer.kind for row in found.dispatches.values() for transfer in row.transfers] == ["due"]
    bench.clock.pass_time(3 * 24 * HOUR)
    bench.cell.sweep()
    assert bench.store.scan(Table.CONSUME, "orders~1/0", limit=10) == []
    assert bench.store.scan(Table.PULL, "billing~1@orders~1/0", limit=10) == []


def test_what_was_removed_all_the_same_is_named(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    bench.send("b")
    bench.send("c")
    bench.cell.context.log("orders~1/0").trim(2)
    report = run(bench, archive)
    assert (report.gone, report.complete) == (1, True)
    assert [(one.log, one.start, one.end) for one in list(manifests.manifests(archive))[-1].missing] == [
        ("orders~1/0", 1, 2)
    ]
    assert contents(archive).bodies("orders~1/0") == ["a", "c"]


def test_what_went_before_there_was_an_archive_is_not_missed(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    bench.send("b")
    bench.cell.context.log("orders~1/0").trim(1)
    assert run(bench, archive).gone == 0
    assert contents(archive).bodies("orders~1/0") == ["b"]


def test_rows_that_would_go_by_their_time_are_renewed_while_the_archive_is_behind(
    bench: Bench, archive: MemoryBlobs
) -> None:
    run(bench, archive)
    bench.cell.put_subject("orders", retention_seconds=60)
    bench.send("a")
    (pull,) = bench.pull()
    bench.settle(pull)
    for _ in range(20):
        bench.clock.pass_time(12 * HOUR)
        bench.cell.sweep()
        bench.send("more")
    consume = bench.store.scan(Table.CONSUME, "orders~1/0", limit=100)
    pulls = bench.store.scan(Table.PULL, "billing~1@orders~1/0", limit=100)
    assert len(consume) == 21
    assert all(record.expires_ms > bench.clock.now_ms() for _, record in [*consume, *pulls] if record.expires_ms)


def test_a_deleted_subject_is_no_obstacle(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    bench.send("never archived")
    bench.cell.delete_subject("orders")
    bench.send("anew")
    assert run(bench, archive).complete
    found = contents(archive)
    assert found.bodies("orders~1/0") == ["a"]
    assert found.bodies("orders~2/0") == ["anew"]


def test_a_metric_says_how_far_the_archive_is_behind(bench: Bench, archive: MemoryBlobs) -> None:
    def behind() -> float:
        bench.meter.figures.clear()
        bench.cell.sweep()
        (found,) = [value for name, value in bench.meter.figures if name == "ArchiveBehindSeconds"]
        return found

    assert behind() == 0
    bench.send("a")
    bench.clock.pass_time(HOUR)
    assert behind() == HOUR, "also before the first run"
    run(bench, archive)
    assert behind() == 0


class FailsOnce(MemoryBlobs):
    """Of the segments the second one cannot be written, once."""

    puts = 0

    def put(self, key: str, data: bytes) -> None:
        self.puts += 1
        if self.puts == 2:
            raise Broken("no leave to write")
        super().put(key, data)


def test_what_cannot_be_written_is_not_taken_for_archived(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "_OPEN_BYTES", 5_000)
    monkeypatch.setattr(collecting, "_RELIEF_BYTES", 1_000)
    for subject in ("a", "b", "c"):
        for _ in range(5):
            bench.send("x" * 1_000, subject=subject)
    archive = FailsOnce()
    with pytest.raises(Broken, match="no leave to write"):
        run(bench, archive)
    assert list(manifests.manifests(archive)) == []
    assert run(bench, archive).complete
    found = contents(archive)
    assert (set(found.rows.values()), len(found.messages)) == ({1}, 15)


def test_an_empty_store_does_not_go_on_with_the_archive_of_a_lost_one(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b")
    run(bench, archive)
    before = archive.list("")
    lost = Bench(settings=bench.settings, clock=bench.clock)
    for _ in range(2):
        with pytest.raises(Conflict, match="rebuild the store from it"):
            run(lost, archive)
    assert archive.list("") == before
    lost.cell.sweep()
    assert rebuild(lost.cell.context, archive, gap=10).messages == 2
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
    with pytest.raises(Conflict, match="it is not that of this store"):
        run(bench, elsewhere)
    assert elsewhere.list("manifests/") == []


def test_a_store_that_is_half_rebuilt_is_not_archived(bench: Bench, archive: MemoryBlobs) -> None:
    context = bench.cell.context
    record = CasRecord(context.store, context.ids, Key(Table.META, "rebuild", "state"), Rebuilding)
    record.swap(None, Rebuilding(began_ms=context.clock.now_ms(), through=1))
    with pytest.raises(Conflict, match="half rebuilt"):
        run(bench, archive)
    assert archive.list("") == []


def test_with_more_logs_than_one_commit_takes_it_becomes_complete_all_the_same(
    bench: Bench, archive: MemoryBlobs
) -> None:
    for subject in range(10):
        bench.send("a", subject=f"s{subject}")
    run(bench, archive)
    began_ms = bench.clock.now_ms()
    for subject in range(10):
        bench.clock.pass_time(1)
        bench.send("b", subject=f"s{subject}")
        archiver(bench, archive, commit_spans=1).run(bench.clock.now_ms() + 1)
    assert archived_ms(bench.cell.context) > began_ms
    assert set(contents(archive).rows.values()) == {1}


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
        watched.cell.sweep()
        bench.clock.pass_time(60)
        reads.append(counted.rows)
    assert max(reads[1:]) < 100


class Slow(CallByCall):
    """Each call takes 5 ms."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.store)
        self._clock = bench.clock

    def counter(self, counter: str) -> Counter:
        self._clock.pass_time(0.005)
        return super().counter(counter)

    def scan(self, table: Table, partition: str, **how: Any) -> list[tuple[str, Record]]:
        self._clock.pass_time(0.005)
        return super().scan(table, partition, **how)


def test_a_circle_that_takes_longer_than_a_run_comes_to_its_end(bench: Bench, archive: MemoryBlobs) -> None:
    slow = Bench(store=Slow(bench), settings=bench.settings, clock=bench.clock)
    for subject in range(60):
        bench.send("a", subject=f"s{subject:02}")
    began_ms = bench.clock.now_ms()
    complete = False
    for _ in range(12):
        bench.send("more", subject="s30")
        complete = archiver(slow, archive, commit_ms=50).run(bench.clock.now_ms() + 450).complete
    assert archived_ms(bench.cell.context) >= began_ms
    assert not complete, "no run is so long that it goes all the way"
    assert set(contents(archive).rows.values()) == {1}
