"""The archiver neither loses nor doubles a row: cut off, beside another one, with rows that cannot be read."""

from contextlib import suppress
from typing import TypeVar

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.archive import collecting
from hourwheel.context import Settings
from hourwheel.errors import Broken, HourwheelError, Unavailable
from hourwheel.ports.storage import Key, Table
from hourwheel.retention import chain
from hourwheel.retention.watermarks import archived_ms
from tests.support import AT_ONCE, Bench
from tests.unit.archive.archiving import dying_at, run
from tests.unit.archive.reading import contents

T = TypeVar("T")


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
    assert (report.unreadable_rows, report.complete) == (1, True)
    (manifest,) = chain.manifests(archive)
    assert [(one.log, one.row_no, one.messages) for one in manifest.unreadable] == [("orders~1/0", 1, 1)]
    assert contents(archive).bodies("orders~1/0") == ["before", "behind"]


def test_a_row_that_cannot_be_read_holds_up_its_log_alone(bench: Bench, archive: MemoryBlobs) -> None:
    for body in ("before", "middle"):
        bench.send(body)
    bench.send("elsewhere", subject="others")
    damage(bench, 1, b"HWB1", b"HWB")
    report = run(bench, archive)
    assert not report.complete
    assert ("Faults", 1) in bench.meter.metrics
    assert contents(archive).bodies("others~1/0") == ["elsewhere"]
    assert archived_ms(bench.deployment.context) == 0


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
    log = bench.deployment.context.log("orders~1/0")
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

    class Outrun(MemoryBlobs):
        """Just before a manifest is put another archiver is done."""

        def put(self, key: str, data: bytes) -> None:
            if key.startswith("manifests/") and not archive.list("manifests/"):
                run(bench, archive)
                bench.send("b")
            archive.put(key, data)

        def get(self, key: str, **part: int | None) -> bytes:
            return archive.get(key, **part)

    report = run(bench, Outrun())
    assert report.lost_races == 1
    assert report.complete
    found = contents(archive)
    assert set(found.rows.values()) == {1}
    assert found.bodies("orders~1/0") == ["a", "b"]


def test_what_was_removed_all_the_same_is_named(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    run(bench, archive)
    bench.send("b")
    bench.send("c")
    bench.deployment.context.log("orders~1/0").trim(2)
    report = run(bench, archive)
    assert (report.missing_rows, report.complete) == (1, True)
    assert [(one.log, one.start, one.end) for one in list(chain.manifests(archive))[-1].missing] == [
        ("orders~1/0", 1, 2)
    ]
    assert contents(archive).bodies("orders~1/0") == ["a", "c"]


def test_what_went_before_there_was_an_archive_is_not_missed(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    bench.send("b")
    bench.deployment.context.log("orders~1/0").trim(1)
    assert run(bench, archive).missing_rows == 0
    assert contents(archive).bodies("orders~1/0") == ["b"]


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
    assert list(chain.manifests(archive)) == []
    assert run(bench, archive).complete
    found = contents(archive)
    assert (set(found.rows.values()), len(found.messages)) == ({1}, 15)
