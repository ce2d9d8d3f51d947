"""A run of the archiver archives the right rows, and divides them into commits and segments."""

from typing import Any

import msgspec

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.archive.archiver import Archived
from hourwheel.logs.rows import Row
from hourwheel.model.messages import NewMessage
from hourwheel.ports.storage import Counter, Record, Table
from hourwheel.retention import chain
from hourwheel.retention.watermarks import archived_ms
from tests.support import Bench, CallByCall
from tests.unit.archive.archiving import HOUR, archiver, run
from tests.unit.archive.reading import contents


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
    assert found.registry is not None
    assert [subject.name for subject in found.registry.subjects] == ["orders"]
    assert report.complete
    assert report.messages == 7


def test_a_run_without_anything_new_writes_nothing(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    before = archive.list("")
    bench.clock.pass_time(HOUR / 2)
    assert run(bench, archive) == Archived(complete=True)
    assert archive.list("") == before
    assert archived_ms(bench.deployment.context) == bench.clock.now_ms()


def test_subjects_and_groups_that_have_not_changed_are_archived_once(bench: Bench, archive: MemoryBlobs) -> None:
    for body in "abcd":
        bench.send(body)
        run(bench, archive)
    told = [bool(manifest.registry) for manifest in chain.manifests(archive)]
    assert told == [True, False, False, False]


def test_once_an_hour_a_manifest_says_that_there_is_nothing_new(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    for _ in range(6):
        bench.clock.pass_time(HOUR / 2)
        run(bench, archive)
    told = [manifest.complete_ms for manifest in chain.manifests(archive)]
    assert len(told) == 4
    assert told[-1] == bench.clock.now_ms()


def test_a_row_without_messages_changes_nothing_in_what_a_manifest_says_of_sequences(
    bench: Bench, archive: MemoryBlobs
) -> None:
    bench.send("a", "b")
    log = bench.deployment.context.log("orders~1/0")
    log.abandon(log.reserve(3), Row(first_seq=-1, count=0, at_ms=bench.clock.now_ms(), expires_ms=0))
    run(bench, archive)
    (first,) = chain.manifests(archive)
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
    first = next(iter(chain.manifests(archive)))
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


def test_an_open_pull_is_archived_once_it_is_closed(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a", "b")
    first, second = bench.pull(1)[0], bench.pull(1)[0]
    bench.settle(second)
    assert run(bench, archive).complete
    assert contents(archive).pulls == {}
    bench.settle(first)
    run(bench, archive)
    assert len(contents(archive).pulls) == 2


def test_a_metric_says_how_far_the_archive_is_behind(bench: Bench, archive: MemoryBlobs) -> None:
    def behind() -> float:
        bench.meter.metrics.clear()
        bench.deployment.sweeper.sweep()
        (found,) = [value for name, value in bench.meter.metrics if name == "ArchiveBehindSeconds"]
        return found

    assert behind() == 0
    bench.send("a")
    bench.clock.pass_time(HOUR)
    assert behind() == HOUR, "also before the first run"
    run(bench, archive)
    assert behind() == 0


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
    assert archived_ms(bench.deployment.context) > began_ms
    assert set(contents(archive).rows.values()) == {1}


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
    assert archived_ms(bench.deployment.context) >= began_ms
    assert not complete, "no run is so long that it goes all the way"
    assert set(contents(archive).rows.values()) == {1}
