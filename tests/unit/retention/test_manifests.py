"""Manifests that this version does not read are refused with a sentence."""

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.errors import Corrupt
from hourwheel.retention import manifests


def stored(under: int, **fields: object) -> MemoryBlobs:
    archive = MemoryBlobs()
    archive.put(manifests.manifest_key(under), msgspec.json.encode(fields))
    return archive


def test_a_manifest_of_another_format_is_refused_by_its_format_and_not_by_its_fields() -> None:
    archive = stored(3, format=1, number=3, damaged=[], gone=[], catalog="")
    with pytest.raises(
        Corrupt, match="has format 1, and this version of Hourwheel reads format 3: use the version that"
    ):
        manifests.read(archive, 3)


def test_a_manifest_under_the_key_of_another_is_refused() -> None:
    manifest = manifests.Manifest(
        number=4, began_ms=0, ended_ms=0, complete_ms=0, segments=[], spans=[], unreadable=[], missing=[]
    )
    archive = stored(3, **msgspec.to_builtins(manifest))
    with pytest.raises(Corrupt, match="contains manifest 4"):
        manifests.read(archive, 3)


def test_an_object_that_is_no_manifest_is_refused() -> None:
    with pytest.raises(Corrupt, match="is no manifest"):
        manifests.read(stored(0, other="document"), 0)
