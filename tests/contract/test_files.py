"""Files keep their own promises: no key leads out of the folder, objects are durable, and a full volume or a crash
leaves no partial object."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from hourwheel.adapters import files
from hourwheel.adapters.files import FileBlobs
from hourwheel.errors import Broken, NotFound, StorageFull


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "blobs"


@pytest.fixture
def blobs(root: Path) -> FileBlobs:
    return FileBlobs(root)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("key", ["../secret", "/etc/passwd", "a/../../secret", "..", "a/..", "secret\0"])
def test_no_key_leads_out_of_the_folder(blobs: FileBlobs, root: Path, key: str) -> None:
    root.mkdir(parents=True)
    (root.parent / "secret=").write_bytes(b"secret")
    for call in (lambda: blobs.get(key), lambda: blobs.put(key, b""), lambda: blobs.delete(key)):
        with pytest.raises(ValueError, match="not a blob key"):
            call()
    assert blobs.list("../") == []
    assert files_below(root.parent) == [root.parent / "secret="]


def test_file_and_folders_are_synced_before_put_returns(
    blobs: FileBlobs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, link = os.fsync, os.link

    def recorded_sync(descriptor: int) -> None:
        sync(descriptor)
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        steps.append(
            f"sync {kind} {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}" if kind == "folder" else kind
        )

    def recorded_link(source: Any, target: Any) -> None:
        link(source, target)
        steps.append("link")

    monkeypatch.setattr(os, "fsync", recorded_sync)
    monkeypatch.setattr(os, "link", recorded_link)
    blobs.put("a/b", b"1")
    assert steps == ["sync folder data", "sync folder blobs", "file", "link", "sync folder a"]
    steps.clear()
    blobs.put("a/c", b"1")
    assert steps == ["file", "link", "sync folder a"]
    steps.clear()
    blobs.put("a/c", b"1")
    assert steps == ["sync folder a"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("step", ["fsync", "link"])
def test_a_full_volume_is_storage_full_and_leaves_nothing(
    blobs: FileBlobs, root: Path, monkeypatch: pytest.MonkeyPatch, number: int, step: str
) -> None:
    blobs.put("a/there", b"1")

    def full(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(StorageFull, match="a/b"):
            blobs.put("a/b", b"2")
    assert files_below(root) == [root / "a" / "there="]
    with pytest.raises(NotFound):
        blobs.get("a/b")
    blobs.put("a/b", b"2")
    assert blobs.get("a/b") == b"2"


def test_any_other_error_of_the_system_is_broken(blobs: FileBlobs, root: Path) -> None:
    root.parent.mkdir()
    root.write_bytes(b"a file where the folder should be")
    with pytest.raises(Broken, match="a/b"):
        blobs.put("a/b", b"1")
    with pytest.raises(Broken):
        blobs.list("")


def test_what_a_crash_left_half_written_is_no_object(blobs: FileBlobs, root: Path) -> None:
    blobs.put("a/b", b"1")
    (root / "a" / "~unfinished").write_bytes(b"half")
    assert blobs.list("") == ["a/b"]


def test_a_second_instance_sees_the_objects(blobs: FileBlobs, root: Path) -> None:
    blobs.put("a/b", b"1")
    assert FileBlobs(root).get("a/b") == b"1"
    assert FileBlobs(str(root)).list("a") == ["a/b"]


def test_only_so_many_folders_are_remembered(blobs: FileBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_FOLDERS", 10)
    for number in range(50):
        blobs.put(f"{number}/a", b"1")
    assert len(blobs._durable_folders) <= 10
    assert len(blobs.list("")) == 50
