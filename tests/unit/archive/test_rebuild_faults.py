"""A rebuild that is refused, disturbed, cut off, or of an archive that is damaged."""

from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.archive.rebuild import rebuild
from hourwheel.context import Settings
from hourwheel.errors import Conflict, Corrupt, NotFound, Unavailable
from hourwheel.ports.storage import Key, Table
from hourwheel.retention import chain, manifests
from hourwheel.retention.chain import LostManifest, end_of
from tests.support import AT_ONCE, Bench
from tests.unit.archive.archiving import dying_at
from tests.unit.archive.test_rebuild import GAP, archived, archived_before, empty, rebuilt


def test_a_store_that_is_in_use_is_refused(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    archived(bench, archive)
    anew = empty(bench)
    anew.send("somebody was here")
    with pytest.raises(Conflict, match="subjects"):
        rebuild(anew.deployment.context, archive)
    assert anew.bodies() == ["somebody was here"]


def test_who_uses_the_store_meanwhile_is_found_out(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    archived(bench, archive)
    bench.clock.pass_time(1)
    anew = empty(bench)

    class Watched(MemoryBlobs):
        def get(self, key: str, **part: int | None) -> bytes:
            if key.startswith("segments/messages"):
                anew.send("too early")
            return archive.get(key, **part)

        def list(self, prefix: str) -> list[str]:
            return archive.list(prefix)

    with pytest.raises(Conflict, match="meanwhile"):
        rebuild(anew.deployment.context, Watched())


def test_an_archive_without_anything_is_refused(bench: Bench, archive: MemoryBlobs) -> None:
    with pytest.raises(NotFound, match="no manifest"):
        rebuild(bench.deployment.context, archive)
    assert bench.store.scan(Table.META, "rebuild", limit=1) == []


def test_a_repeated_rebuild_says_what_was_done(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    archived(bench, archive)
    anew, report = rebuilt(bench, archive)
    anew.send("b")
    assert rebuild(anew.deployment.context, archive, gap=GAP) == report
    assert anew.bodies() == ["a", "b"]


def test_an_archive_with_a_manifest_missing_is_refused_or_taken_without_it(bench: Bench, archive: MemoryBlobs) -> None:
    for body in "abc":
        bench.send(body)
        archived(bench, archive)
    missing = manifests.manifest_key(end_of(archive) - 2)
    archive.delete(missing)
    anew = empty(bench)
    with pytest.raises(Corrupt, match=f"{missing} is missing, and a later one is there: put it back from a copy, or"):
        rebuild(anew.deployment.context, archive)
    report = rebuild(anew.deployment.context, archive, skip_damaged=True)
    assert report.lost_manifests == (f"{missing} is missing, and a later one is there",)
    assert report.lost_rows == 1
    anew.clock.pass_time(5)  # a reader waits for the lost row first, which looks like one that may still come
    assert anew.bodies() == ["a", "c"]


def test_the_archive_of_a_store_rebuilt_without_a_manifest_goes_on(bench: Bench, archive: MemoryBlobs) -> None:
    for body in "abc":
        bench.send(body)
        archived(bench, archive)
    lost = end_of(archive) - 2
    archive.delete(manifests.manifest_key(lost))
    anew = empty(bench)
    rebuild(anew.deployment.context, archive, skip_damaged=True)
    anew.send("d")
    archived(anew, archive)
    links = list(chain.chain(archive))
    assert [link.number for link in links if isinstance(link, LostManifest)] == [lost]
    assert links[-1].number > lost + 1


def cut(archive: MemoryBlobs, kind: str) -> str:
    key = archive.list(f"segments/{kind}/")[0]
    data = archive.get(key)
    archive.delete(key)
    archive.put(key, data[:-10])
    return key


def test_a_segment_that_was_cut_off_stops_it_or_is_passed_over(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("cut")
    archived(bench, archive)
    key = cut(archive, "messages")
    bench.send("whole")
    archived(bench, archive)
    anew = empty(bench)
    with pytest.raises(Corrupt, match=key):
        rebuild(anew.deployment.context, archive)
    report = rebuild(anew.deployment.context, archive, skip_damaged=True)
    assert report.unreadable_segments == (key,)
    assert anew.bodies() == ["whole"]


def test_a_group_whose_pulls_cannot_be_read_begins_again(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    bench.settle(bench.pull()[0])
    archived(bench, archive)
    key = cut(archive, "pulls")
    anew = empty(bench)
    report = rebuild(anew.deployment.context, archive, skip_damaged=True)
    assert report.unreadable_segments == (key,)
    assert anew.bodies() == ["a"]
    archived(anew, archive)


def test_a_row_that_was_archived_without_its_messages_is_a_filler(bench: Bench, archive: MemoryBlobs) -> None:
    for body in ("before", "middle", "behind"):
        bench.send(body)
    key = Key(Table.CONSUME, "orders~1/0", f"{1:016d}")
    current = bench.store.get(key)
    assert current is not None
    bench.store.put(
        key, msgspec.structs.replace(current, value=current.value.replace(b"middle", b"muddle")), expect=current.token
    )
    archived(bench, archive)
    anew, report = rebuilt(bench, archive)
    assert report.unreadable == 1
    assert anew.bodies() == ["before", "behind"]


def in_all_states() -> tuple[Bench, MemoryBlobs]:
    bench, archive = Bench(settings=Settings(retry=AT_ONCE, archive=True)), MemoryBlobs()
    bench.send("acked", "again", "dead", "waiting")
    bench.send_later("soon", delay=30)
    bench.settle(bench.pull(3)[0], retry=[1], dead=[2])
    bench.turn(40)
    bench.send_later("later", delay=600)
    archived_before(bench, archive, "orders~1/dead/billing~1")
    return bench, archive


@pytest.mark.parametrize("after", [False, True])
def test_a_rebuild_that_ends_at_any_call_goes_on_where_it_was(after: bool) -> None:
    bench, archive = in_all_states()
    calls, left = 0, [0]
    while left[0] <= 0:
        calls += 1
        anew = empty(bench)
        left = [calls]
        dying = replace(anew, store=dying_at(anew.store, left, after))
        with suppress(Unavailable):
            rebuild(dying.deployment.context, dying_at(archive, left, after), gap=GAP)
        report = rebuild(anew.deployment.context, archive, gap=GAP)
        assert (report.lost, report.replayed, report.subjects, report.groups) == (0, 1, 1, 1)
        assert anew.send("new")[0].offset == 5 + GAP
        assert sorted(str(body) for body in anew.bodies()) == ["again", "new", "soon", "waiting"]
        assert [
            one.body for one in anew.deployment.dead_letters("orders", "billing").page(after=None, limit=10).messages
        ] == ["dead"]
        assert [name for name, _ in anew.store.scan(Table.META, "archive", limit=100)] == [
            f"{kind} {log}"
            for kind, log in sorted({(s.kind, s.log) for m in chain.manifests(archive) for s in m.spans})
        ]
    assert calls > 60


def test_two_at_once_are_found_out(bench: Bench, archive: MemoryBlobs) -> None:
    bench.send("a")
    archived(bench, archive)
    anew = empty(bench)

    class Outrun(MemoryBlobs):
        done = False

        def get(self, key: str, **part: int | None) -> bytes:
            if key.startswith("segments/messages") and not self.done:
                self.done = True
                rebuild(anew.another_process().context, archive, gap=GAP)
            return archive.get(key, **part)

        def list(self, prefix: str) -> list[str]:
            return archive.list(prefix)

    with pytest.raises(Conflict, match="another process rebuilds the store"):
        rebuild(anew.deployment.context, Outrun(), gap=GAP)
    assert anew.bodies() == ["a"]
