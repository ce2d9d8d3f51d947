"""Bundles repeat manifests: readers find each one, whichever objects are there, and notice a foreign one."""

from collections.abc import Callable

import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.errors import Corrupt
from hourwheel.retention import bundles
from hourwheel.retention.bundles import bundle_key, fold, index_at
from hourwheel.retention.chain import BrokenChain, LostManifest, chain, end_of, find, manifests, read
from hourwheel.retention.manifests import Manifest, Segment, commit, manifest_key, sealed, stored


def manifest(number: int, previous: str, store: str = "here") -> Manifest:
    key = f"segments/messages/2026-11-28/21/{number:028x}"
    segment = Segment(
        key=key, kind="messages", bytes=9, checksum=8, rows=7, messages=6, earliest_ms=5, latest_ms=4, parts=[]
    )
    return Manifest(
        number=number,
        store=store,
        previous=previous,
        began_ms=number,
        ended_ms=number,
        complete_ms=number,
        segments=[segment],
        spans=[],
        unreadable=[],
        missing=[],
    )


def grown(archive: MemoryBlobs, count: int, store: str = "here", start: int = 0, previous: str = "") -> None:
    for number in range(start, start + count):
        made = manifest(number, previous, store)
        assert commit(archive, made)
        previous = sealed(made).digest


def replaced(archive: MemoryBlobs, number: int, made: Manifest) -> None:
    archive.delete(manifest_key(number))
    assert commit(archive, made)


def numbers(archive: MemoryBlobs, start: int = 0, below: int | None = None) -> list[int]:
    return [found.number for found in manifests(archive, start, below)]


@pytest.fixture
def folded() -> MemoryBlobs:
    """An archive of 2,300 manifests, of which 2,000 are in bundles."""
    archive = MemoryBlobs()
    grown(archive, 2_300)
    assert fold(archive, 0) == 1_000
    assert fold(archive, 1_000) == 2_000
    return archive


def test_all_manifests_are_read_from_any_number_on(folded: MemoryBlobs) -> None:
    for start, below in ((0, None), (1, 3), (998, 1_002), (1_500, None), (2_299, None), (2_300, None), (0, 1_000)):
        assert numbers(folded, start, below) == list(range(start, 2_300 if below is None else below))
    assert end_of(folded) == 2_300
    index = index_at(folded, 1_000)
    assert (index.first, index.end, index.complete_ms, index.ended_ms) == (1_000, 2_000, 1_999, 1_999)
    assert [work.manifest for work in index.segments] == list(range(1_000, 2_000))
    last = stored(folded, 1_999)
    assert last is not None
    assert index.digest == last.digest


def test_a_manifest_that_was_lost_is_read_from_its_bundle(folded: MemoryBlobs) -> None:
    for number in (0, 500, 1_999):
        folded.delete(manifest_key(number))
        found = read(folded, number)
        assert found is not None
        assert found.number == number
    assert numbers(folded) == list(range(2_300))


@pytest.mark.parametrize("damage", [lambda data: data[:10], lambda data: data[:-9], lambda data: b"x" + data[1:]])
def test_manifests_of_a_damaged_bundle_are_read_one_by_one(
    folded: MemoryBlobs, damage: Callable[[bytes], bytes]
) -> None:
    key = bundle_key(0)
    data = folded.get(key)
    folded.delete(key)
    folded.put(key, damage(data))
    assert numbers(folded) == list(range(2_300))


def test_two_archivers_write_one_bundle(folded: MemoryBlobs) -> None:
    twin = MemoryBlobs()
    grown(twin, 2_300)
    fold(twin, 0)
    assert twin.get(bundle_key(0)) == folded.get(bundle_key(0))
    before = twin.get(bundle_key(0))
    assert fold(twin, 0) == 1_000
    assert twin.get(bundle_key(0)) == before


def test_a_bundle_ends_early_where_manifests_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "_BUNDLE_BYTES", 3_000)
    monkeypatch.setattr(bundles, "_BLOCK_BYTES", 1_000)
    archive = MemoryBlobs()
    grown(archive, 1_000)
    end = 0
    while end < 1_000:
        end = fold(archive, end)
    assert len(archive.list("bundles/")) > 50
    assert numbers(archive) == list(range(1_000))


def test_a_manifest_that_was_lost_before_it_was_folded_is_found_once_it_is_put_back() -> None:
    archive = MemoryBlobs()
    grown(archive, 1_001)
    lost = archive.get(manifest_key(400))
    archive.delete(manifest_key(400))
    assert fold(archive, 0) == 1_000
    assert index_at(archive, 0).unfolded == [400]
    with pytest.raises(Corrupt, match="manifests/000000000/400 is missing, and a later one is there"):
        list(manifests(archive))
    assert [link.number for link in chain(archive) if isinstance(link, LostManifest)] == [400]
    archive.put(manifest_key(400), lost)
    assert numbers(archive) == list(range(1_001))


@pytest.mark.parametrize("number", [2_100, 2_299])
def test_a_manifest_of_another_store_is_lost_and_named(folded: MemoryBlobs, number: int) -> None:
    replaced(folded, number, manifest(number, "", "elsewhere"))
    (lost,) = [link for link in chain(folded) if isinstance(link, LostManifest)]
    assert (lost.number, lost.kind) == (number, "foreign_manifest")
    assert lost.reason == f"{manifest_key(number)} is of store elsewhere, and this is the archive of store here"


def test_another_history_of_one_store_is_not_mixed_with_this_one(folded: MemoryBlobs) -> None:
    other = MemoryBlobs()
    grown(other, 200, start=2_100, previous="another past")
    for number in range(2_200, 2_300):
        folded.delete(manifest_key(number))
        folded.put(manifest_key(number), other.get(manifest_key(number)))
    found = chain(folded)
    assert [next(found).number for _ in range(2_200)] == list(range(2_200))
    with pytest.raises(BrokenChain, match="000000002/200 does not follow manifests/000000002/199"):
        next(found)


def test_a_manifest_whose_bundle_is_damaged_is_found_at_its_own_key(folded: MemoryBlobs) -> None:
    data = folded.get(bundle_key(0))
    index = index_at(folded, 0)
    folded.delete(bundle_key(0))
    folded.put(bundle_key(0), data[: len(data) - index.blocks[-1].length // 2])
    assert index_at(folded, 0) == index
    assert find(folded, 999) == stored(folded, 999)
