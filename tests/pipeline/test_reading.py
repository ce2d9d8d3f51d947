from collections.abc import Callable
from pathlib import Path

import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.archive.reading import read_segment
from hourwheel.errors import Corrupt
from hourwheel.model.messages import Message
from hourwheel.ports.storage import Blobs
from hourwheel.retention.manifests import manifest_key
from hourwheel_pipeline.archive_rows.reading import Work, manifests_from
from hourwheel_pipeline.lake.locations import blobs_at
from tests.pipeline.archives import ArchiveBuilder

NOON_MS = 1_763_640_000_000


def archived(archive: Blobs, manifests: int) -> None:
    builder = ArchiveBuilder(archive)
    for number in range(manifests):
        builder.row("orders~1/0", [Message(body=str(number))], NOON_MS + number)
        builder.commit()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 64, 130])
def test_manifests_come_in_order_up_to_the_last_one(count: int) -> None:
    archive = MemoryBlobs()
    archived(archive, count)
    assert [one.number for one in manifests_from(archive, 0)] == list(range(count))
    assert [one.number for one in manifests_from(archive, 2)] == list(range(2, count))


def test_a_manifest_that_is_missing_before_others_is_not_taken_for_the_end() -> None:
    archive = MemoryBlobs()
    archived(archive, 6)
    archive.delete(manifest_key(4))
    found = manifests_from(archive, 0)
    assert [next(found).number for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(Corrupt, match=r"manifests/000000000/004 is missing"):
        next(found)


class LateBlobs(MemoryBlobs):
    """Lists one manifest only from the second time on."""

    def __init__(self, archive: MemoryBlobs, late: str) -> None:
        super().__init__()
        self._objects = archive._objects
        self._late = {late}

    def list(self, prefix: str) -> list[str]:
        names = [key for key in super().list(prefix) if key not in self._late]
        self._late.clear()
        return names


def test_a_manifest_that_is_written_while_we_look_is_found() -> None:
    archive = MemoryBlobs()
    archived(archive, 1_002)
    # The next folder is listed after manifest 1,000 was written, and this one before 999 was.
    found = manifests_from(LateBlobs(archive, manifest_key(999)), 990)
    assert [one.number for one in found] == list(range(990, 1_002))


def test_a_manifest_that_cannot_be_read_is_corrupt(tmp_path: Path) -> None:
    archive = MemoryBlobs()
    archived(archive, 1)
    archive.put(manifest_key(1), b"{")
    found = manifests_from(archive, 0)
    next(found)
    with pytest.raises(Corrupt, match="is no manifest"):
        next(found)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1], "its manifest says"),
        (lambda data: data + b"x", "its manifest says"),
        (lambda data: data[:30] + b"\0" + data[31:], "fails its checksum"),
        (lambda data: b"", "has 0 bytes"),
    ],
)
def test_a_changed_segment_is_corrupt(tmp_path: Path, change: Callable[[bytes], bytes], reason: str) -> None:
    archive = FileBlobs(tmp_path)
    archived(archive, 1)
    (work,) = (Work.of(one.number, segment) for one in manifests_from(archive, 0) for segment in one.segments)
    data = archive.get(work.key)
    assert read_segment(archive, work) == data
    archive.delete(work.key)
    archive.put(work.key, change(data))
    with pytest.raises(Corrupt, match=reason):
        read_segment(archive, work)
    archive.delete(work.key)
    with pytest.raises(Corrupt, match="is missing"):
        read_segment(archive, work)


def test_an_archive_is_opened_by_its_path_or_its_address(tmp_path: Path) -> None:
    folder = tmp_path / "an archive, 100%"
    archived(FileBlobs(folder), 1)
    for location in (str(folder), folder.as_uri()):
        assert blobs_at(location).list("manifests/") == [manifest_key(0)]
