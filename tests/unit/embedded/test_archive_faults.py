"""A server serves without its archive if that cannot be used, and archives nothing then."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.embedded.directories.directory import archive_of
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.errors import Corrupt, DataVersion, StorageFull
from hourwheel.logs.formats import FORMAT, StoreFormat


@contextmanager
def served(data: Path) -> Iterator[Runtime]:
    """Yields a server that archives, which has one subject."""
    with closing(Runtime(ServeOptions(data=data, archive_seconds=3_600))) as runtime:
        runtime.deployment.registry.subject("orders", create=True)
        yield runtime


def test_a_damaged_format_of_the_archive_stops_the_archiver_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    archive = FileBlobs(archive_of(tmp_path))
    archive.put(f"format/{FORMAT:04d}", b"{")
    with served(tmp_path) as runtime, pytest.raises(Corrupt, match="format of an archive"):
        runtime._archive()
    assert archive.list("") == [f"format/{FORMAT:04d}"]
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("whether the archive has more than the database is not known: format/")


def test_a_full_volume_of_the_archive_stops_the_archiver_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_room(blobs: FileBlobs, key: str, data: bytes) -> None:
        raise StorageFull(f"no room for object {key}")

    monkeypatch.setattr(FileBlobs, "put", without_room)
    with served(tmp_path) as runtime, pytest.raises(StorageFull):
        runtime._archive()


def test_a_server_archives_nothing_more_once_a_later_version_does(tmp_path: Path) -> None:
    archive = FileBlobs(archive_of(tmp_path))
    later = StoreFormat(format=FORMAT + 1, least_reader=FORMAT + 1, written_by="9.0")
    with served(tmp_path) as runtime:
        runtime._archive()
        kept = archive.list("")
        archive.put(f"format/{FORMAT + 1:04d}", msgspec.json.encode(later))
        with pytest.raises(DataVersion):
            runtime._archive()
    assert archive.list("") == sorted([*kept, f"format/{FORMAT + 1:04d}"])
