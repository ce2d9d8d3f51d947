"""Manifests that this version does not read, or that were changed, are refused with a sentence."""

from collections.abc import Callable

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.errors import Conflict, Corrupt
from hourwheel.retention.archive_progress import catch_up
from hourwheel.retention.chain import end_of, manifests, read
from hourwheel.retention.manifests import Manifest, OtherFormat, StoredManifest, manifest_key, sealed
from hourwheel.retention.watermarks import head_of, replace_head
from tests.support import Bench


def manifest(number: int) -> Manifest:
    return Manifest(
        number=number,
        store="here",
        previous="",
        began_ms=1,
        ended_ms=22,
        complete_ms=333,
        segments=[],
        spans=[],
        unreadable=[],
        missing=[],
    )


def under(number: int, data: bytes) -> MemoryBlobs:
    archive = MemoryBlobs()
    archive.put(manifest_key(number), data)
    return archive


def test_a_manifest_of_another_format_is_refused_by_its_format_and_not_by_its_fields() -> None:
    archive = under(3, msgspec.json.encode({"format": 1, "number": 3, "damaged": [], "gone": []}))
    with pytest.raises(
        Corrupt, match="has format 1, and this version of Hourwheel reads format 4: use the version that"
    ):
        read(archive, 3)


def test_a_manifest_under_the_key_of_another_is_refused() -> None:
    with pytest.raises(Corrupt, match="contains manifest 4"):
        read(under(3, sealed(manifest(4)).data), 3)


def test_an_object_that_is_no_manifest_is_refused() -> None:
    with pytest.raises(Corrupt, match="is no manifest"):
        read(under(0, b'{"other": "document"}'), 0)


def test_every_changed_digit_is_noticed() -> None:
    data = sealed(manifest(7)).data
    places = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
    assert len(places) > 15
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(Corrupt):
            StoredManifest(7, bytes(changed)).opened()


def test_manifests_lie_in_folders_of_a_thousand() -> None:
    assert manifest_key(0) == "manifests/000000000/000"
    assert manifest_key(525_600) == "manifests/000000525/600"


def of_former_format() -> MemoryBlobs:
    archive = MemoryBlobs()
    archive.put("manifests/000000000000", b'{"format":3,"number":0,"segments":[]}')
    return archive


@pytest.mark.parametrize("reading", [end_of, lambda archive: list(manifests(archive))])
def test_an_archive_of_the_former_format_is_refused_and_not_empty(reading: Callable[[MemoryBlobs], object]) -> None:
    with pytest.raises(OtherFormat, match=r"manifests/000000000000 has format 3, .* use the version that wrote"):
        reading(of_former_format())


def test_a_store_that_wrote_manifests_of_the_former_format_does_not_go_on(bench: Bench) -> None:
    head = head_of(bench.deployment.context)
    replace_head(bench.deployment.context, head, msgspec.structs.replace(head.value, number=1))
    with pytest.raises(OtherFormat, match="manifests/000000000000 has format 3"):
        catch_up(bench.deployment.context, of_former_format())
    with pytest.raises(Conflict, match="the archive ends before manifest 0"):
        catch_up(bench.deployment.context, MemoryBlobs())


def test_a_new_store_does_not_archive_beside_manifests_of_the_former_format(bench: Bench) -> None:
    with pytest.raises(OtherFormat):
        catch_up(bench.deployment.context, of_former_format())
