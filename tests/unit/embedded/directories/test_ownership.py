"""Data directories that belong to others, that others may write to, and that hold links."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.embedded.directories.directory import Neighbours, archive_of, database, lake_of, prepare
from hourwheel.errors import Broken

FILES = ("format", "hourwheel.db", "hourwheel.db-wal", "hourwheel.db-shm", "servers")
FOLDERS = ("batches", "archive", "lake", "scratch")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Returns a data directory that was used and left."""
    folder = tmp_path / "data"
    prepare(folder)
    SqliteStore(database(folder)).close()
    Neighbours(folder).close()
    FileBlobs(folder).put("batches/1", b"x")
    FileBlobs(archive_of(folder)).put("manifests/1", b"x")
    FileBlobs(lake_of(folder)).put("report.html", b"x")
    prepare(folder)
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_all_that_is_made_is_closed_to_others(data: Path) -> None:
    was = os.umask(0)
    try:
        store = SqliteStore(database(data))
        store.add("rows", rows=1, numbers=1)
        FileBlobs(data).put("batches/2026/11/2", b"x")
        found = {path: mode(path) for path in data.rglob("*")}
        store.close()
    finally:
        os.umask(was)
    assert data / "hourwheel.db-wal" in found
    assert all(bits == (0o700 if path.is_dir() else 0o600) for path, bits in found.items())


def test_a_directory_of_another_user_is_refused(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Broken, match=f"belongs to user {os.getuid()}.*chown"):
        prepare(data)


@pytest.mark.parametrize("bits", [0o770, 0o720, 0o702, 0o777])
def test_a_directory_to_which_others_may_write_is_refused(data: Path, bits: int) -> None:
    data.chmod(bits)
    with pytest.raises(Broken, match=r"others may write.*chmod 700"):
        prepare(data)
    assert mode(data) == bits


@pytest.mark.parametrize(("before", "after"), [(0o755, 0o750), (0o705, 0o700), (0o701, 0o700), (0o750, 0o750)])
def test_a_directory_that_others_may_only_read_is_closed_to_all_but_a_group(
    data: Path, before: int, after: int
) -> None:
    data.chmod(before)
    prepare(data)
    assert mode(data) == after


def test_an_empty_directory_is_closed_whatever_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o777)
    prepare(folder)
    assert mode(folder) & 0o027 == 0


def test_a_directory_of_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear")
    tmp_path.chmod(0o755)
    with pytest.raises(Broken, match="holds other things"):
        prepare(tmp_path)
    assert mode(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["letters"]


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_symbolic_link_in_place_of_what_is_ours_is_refused(data: Path, tmp_path: Path, name: str) -> None:
    kept = tmp_path / "elsewhere"
    if (data / name).exists():
        (data / name).rename(kept)
    elif name in FOLDERS:
        kept.mkdir()
    else:
        kept.write_text("mine")
    (data / name).symlink_to(kept)
    before = kept.read_bytes() if kept.is_file() else None
    with pytest.raises(Broken, match=f"{name} is a symbolic link"):
        prepare(data)
    assert before == (kept.read_bytes() if kept.is_file() else None)


def test_a_link_to_nothing_is_not_made_into_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "hourwheel.db").symlink_to(tmp_path / "target")
    with pytest.raises(Broken, match="symbolic link"):
        prepare(folder)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("name", ["hourwheel.db", "servers"])
def test_a_hard_link_to_another_file_is_refused(data: Path, tmp_path: Path, name: str) -> None:
    (data / name).unlink(missing_ok=True)
    other = tmp_path / "other"
    other.write_text("mine")
    os.link(other, data / name)
    with pytest.raises(Broken, match="hard link"):
        prepare(data)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: (data / "servers").chmod(0o622), "others may write to .*servers"),
        (lambda data: (data / "batches").chmod(0o777), "others may write to .*batches"),
        (lambda data: (data / "archive").rename(data / "a") and (data / "archive").write_text("x"), "is no folder"),
    ],
)
def test_what_is_in_it_must_be_closed_and_of_its_kind(data: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(data)
    with pytest.raises(Broken, match=said):
        prepare(data)


def test_the_path_itself_may_be_a_link_to_another_disk(data: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data)
    data.chmod(0o755)
    prepare(link)
    assert mode(data) == 0o750
