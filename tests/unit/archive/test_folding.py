"""The archiver folds manifests into bundles: cut off at any call, and beside another archiver."""

from contextlib import suppress
from dataclasses import replace

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.archive import archiver
from hourwheel.archive.rebuild import rebuild
from hourwheel.context import Settings
from hourwheel.errors import Broken, Conflict, HourwheelError, Unavailable
from hourwheel.retention import bundles
from hourwheel.retention.bundles import bundle_key, bundle_starts, bundled, index_at
from hourwheel.retention.chain import end_of, manifests
from hourwheel.retention.manifests import commit, manifest_key, stored
from hourwheel.retention.watermarks import head_record
from tests.support import AT_ONCE, Bench
from tests.unit.archive.archiving import dying_at, run
from tests.unit.archive.reading import contents


@pytest.fixture(autouse=True)
def every_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiver, "EVERY", 3)
    monkeypatch.setattr(bundles, "EVERY", 3)


def sent(bench: Bench, archive: MemoryBlobs, bodies: str) -> None:
    for body in bodies:
        bench.send(body)
        run(bench, archive)


def judge(bench: Bench, archive: MemoryBlobs, bodies: str) -> None:
    """Counts anew: each bundle has the bytes of its manifests, and each row is there once."""
    end = end_of(archive)
    folded = [found for first in bundle_starts(archive) for found in bundled(archive, first, 0, end)]
    assert [found.number for found in folded] == list(range(end // 3 * 3))
    assert folded == [stored(archive, found.number) for found in folded]
    assert [manifest.number for manifest in manifests(archive)] == list(range(end))
    found = contents(archive)
    assert set(found.rows.values()) == {1}
    assert found.bodies("orders~1/0") == list(bodies)
    head = head_record(bench.deployment.context).load()
    assert head is not None
    assert (head.value.number, head.value.bundled) == (end, end // 3 * 3)


def test_each_full_thousand_is_folded(bench: Bench, archive: MemoryBlobs) -> None:
    sent(bench, archive, "abcdefgh")
    run(bench, archive)
    judge(bench, archive, "abcdefgh")
    index = index_at(archive, 3)
    assert (index.first, index.end, index.unfolded) == (3, 6, [])


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("error", [Unavailable, Broken])
def test_an_archiver_that_ends_at_any_call_folds_each_manifest_once(after: bool, error: type[HourwheelError]) -> None:
    calls, left = 0, [0]
    while left[0] <= 0:
        calls += 1
        bench, archive = Bench(settings=Settings(retry=AT_ONCE, archive=True)), MemoryBlobs()
        sent(bench, archive, "ab")
        bench.send("c")
        left = [calls]
        dying = Bench(
            store=dying_at(bench.store, left, after, error),
            blobs=bench.blobs,
            clock=bench.clock,
            settings=bench.settings,
        )
        with suppress(error):
            # Each commit takes one log: several manifests, and two bundles.
            bench.send_later("later", delay=60)
            run(dying, dying_at(archive, left, after, error), commit_bytes=1)
            run(dying, dying_at(archive, left, after, error), commit_bytes=1)
        bench.send("d")
        run(bench, archive)
        run(bench, archive)
        judge(bench, archive, "abcd")
    assert calls > 40


def test_a_slow_archiver_agrees_with_the_one_that_overtook_it(bench: Bench, archive: MemoryBlobs) -> None:
    sent(bench, archive, "abc")

    class Outrun(MemoryBlobs):
        """Just before a bundle is put another archiver has put it, and has gone on."""

        done = False

        def put(self, key: str, data: bytes) -> None:
            if key.startswith("bundles/") and not self.done:
                self.done = True
                sent(bench, archive, "defg")
            archive.put(key, data)

        def get(self, key: str, **part: int | None) -> bytes:
            return archive.get(key, **part)

    slow = Outrun()
    bench.send("h")
    run(bench, slow)
    assert slow.done
    run(bench, archive)
    judge(bench, archive, "hdefg" if contents(archive).bodies("orders~1/0")[0] == "h" else "abchdefg")


def test_a_store_names_itself_and_refuses_the_archive_of_another(bench: Bench, archive: MemoryBlobs) -> None:
    sent(bench, archive, "ab")
    stores = {manifest.store for manifest in manifests(archive)}
    assert len(stores) == 1
    other = Bench(settings=bench.settings)
    other.send("a", "b", "c")
    with pytest.raises(Conflict, match=f"the archive is of store {stores.pop()}, and this is store"):
        run(other, archive)


def test_an_archive_whose_last_manifest_was_replaced_is_refused(bench: Bench, archive: MemoryBlobs) -> None:
    sent(bench, archive, "ab")
    last = list(manifests(archive))[-1]
    archive.delete(manifest_key(last.number))
    other = Bench(settings=bench.settings)
    elsewhere = MemoryBlobs()
    sent(other, elsewhere, "xy")
    archive.put(manifest_key(last.number), elsewhere.get(manifest_key(last.number)))
    bench.send("c")
    with pytest.raises(Conflict, match="is not the one that this store has written"):
        run(bench, archive)
    archive.delete(manifest_key(last.number))
    assert commit(archive, last)
    run(bench, archive)
    assert contents(archive).bodies("orders~1/0") == ["a", "b", "c"]


def test_without_the_last_manifest_of_a_bundle_the_archive_goes_on(bench: Bench, archive: MemoryBlobs) -> None:
    while end_of(archive) != 3:
        bench.send("a")
        run(bench, archive)
    run(bench, archive)
    assert archive.list("bundles/") == [bundle_key(0)]
    archive.delete(manifest_key(2))
    bench.send("z")
    assert run(bench, archive).complete
    assert contents(archive).bodies("orders~1/0")[-1] == "z"


def test_a_damaged_bundle_stops_no_archiver(
    bench: Bench, archive: MemoryBlobs, caplog: pytest.LogCaptureFixture
) -> None:
    sent(bench, archive, "abcdefgh")
    run(bench, archive)
    last = bundle_starts(archive)[-1]
    damaged(archive, last)
    anew = replace(bench, store=MemoryStore(), blobs=MemoryBlobs(), timers=type(bench.timers)())
    rebuild(anew.deployment.context, archive, gap=1_000)
    head = head_record(anew.deployment.context).load()
    assert head is not None
    assert head.value.bundled == last
    sent(anew, archive, "ijkl")
    assert run(anew, archive).complete
    assert contents(archive).bodies("orders~1/0") == list("abcdefghijkl")
    assert f"{bundle_key(last)} is no bundle" in caplog.text
    assert bundle_starts(archive)[-1] > last


def test_a_damaged_bundle_before_others_is_passed_over(bench: Bench, archive: MemoryBlobs) -> None:
    sent(bench, archive, "abcdefgh")
    run(bench, archive)
    damaged(archive, 0)
    anew = replace(bench, store=MemoryStore(), blobs=MemoryBlobs(), timers=type(bench.timers)())
    rebuild(anew.deployment.context, archive, gap=1_000)
    sent(anew, archive, "i")
    assert run(anew, archive).complete
    assert contents(archive).bodies("orders~1/0") == list("abcdefghi")


def damaged(archive: MemoryBlobs, first: int) -> None:
    data = archive.get(bundle_key(first))
    archive.delete(bundle_key(first))
    archive.put(bundle_key(first), data[:10])
