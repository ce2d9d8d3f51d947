"""Processes notice each other's writes in one data directory, only its owner may read the files, and one of another
version is refused."""

import errno
import fcntl
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.embedded.directories import directory
from hourwheel.embedded.directories.directory import Neighbours, database, prepare, stored_format
from hourwheel.errors import Corrupt, DataVersion
from hourwheel.logs import formats
from hourwheel.logs.formats import CURRENT, FORMAT, StoreFormat
from tests.processes import Child

NEIGHBOUR = """
import sys
from pathlib import Path
from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.embedded.directories.directory import Neighbours, database
data = Path(sys.argv[1])
store, neighbours = SqliteStore(database(data)), Neighbours(data)
print("open", flush=True)
sys.stdin.read()
store.add("rows", rows=1, numbers=1)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    prepare(tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(database(data))
    yield opened
    opened.close()


@pytest.fixture
def neighbours(data: Path, store: SqliteStore) -> Iterator[Neighbours]:
    opened = Neighbours(data)
    yield opened
    opened.close()


def test_what_a_neighbour_wrote_before_it_went_away_is_noticed(data: Path, neighbours: Neighbours) -> None:
    command = [sys.executable, "-c", NEIGHBOUR, str(data)]
    with Child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as neighbour:
        assert neighbour.stdin is not None
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline() == b"open\n"
        neighbours.wrote()
        assert not neighbours.wrote()
        neighbour.stdin.close()
        assert neighbour.wait(30) == 0
    assert neighbours.wrote()
    assert not neighbours.wrote()


def test_what_this_process_writes_alone_is_nothing_new(store: SqliteStore, neighbours: Neighbours) -> None:
    for _ in range(3):
        store.add("rows", rows=1, numbers=1)
        assert not neighbours.wrote()


def test_only_its_owner_may_read_what_is_stored(data: Path, store: SqliteStore, neighbours: Neighbours) -> None:
    store.add("rows", rows=1, numbers=1)
    files = {path.name: mode(path) for path in data.iterdir()}
    assert mode(data) == 0o700
    assert set(files) == {"format", "servers", *(f"hourwheel.db{end}" for end in ("", "-wal", "-shm"))}
    assert set(files.values()) == {0o600}


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o750)
    prepare(tmp_path)
    assert mode(tmp_path) == 0o750


@pytest.mark.parametrize("cell", ["", "fast"])
def test_a_directory_whose_records_have_other_keys_is_refused_untouched(tmp_path: Path, cell: str) -> None:
    (tmp_path / "format").write_text("2\n")
    with pytest.raises(DataVersion, match=r"the data directory .* has format 2, .* use the version that wrote it"):
        prepare(tmp_path, cell=cell)
    assert [path.name for path in tmp_path.iterdir()] == ["format"]


def test_a_directory_states_its_format(tmp_path: Path) -> None:
    prepare(tmp_path)
    assert stored_format(tmp_path) == CURRENT
    later = msgspec.structs.replace(CURRENT, format=FORMAT + 1, written_by="0.2.0")
    for readable in (later, CURRENT):
        (tmp_path / "format").write_bytes(msgspec.json.encode(readable))
        prepare(tmp_path)
        assert stored_format(tmp_path) == readable


def test_a_directory_that_states_a_number_alone_gets_its_format(tmp_path: Path) -> None:
    (tmp_path / "format").write_text("3\n")
    before = mode(tmp_path / "format")
    prepare(tmp_path)
    assert stored_format(tmp_path) == StoreFormat(format=3, least_reader=3, written_by="")
    assert mode(tmp_path / "format") == before


@pytest.mark.parametrize("cell", ["", "fast"])
def test_a_directory_that_only_later_versions_read_is_refused_untouched(tmp_path: Path, cell: str) -> None:
    text = msgspec.json.encode(StoreFormat(format=FORMAT + 2, least_reader=FORMAT + 1, written_by="0.3.0"))
    (tmp_path / "format").write_bytes(text)
    with pytest.raises(DataVersion, match=rf"^the data directory {tmp_path} has format 5, of Hourwheel 0\.3\.0, and"):
        prepare(tmp_path, cell=cell)
    assert [path.name for path in tmp_path.iterdir()] == ["format"]
    assert (tmp_path / "format").read_bytes() == text


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b"three", b"\xff"])
def test_a_damaged_format_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "format").write_bytes(text)
    with pytest.raises(Corrupt, match="does not hold a format: is this a data directory"):
        prepare(tmp_path)


def test_a_database_whose_records_have_other_keys_is_refused_untouched(data: Path) -> None:
    SqliteStore(database(data)).close()
    database_of_before = sqlite3.connect(database(data))
    database_of_before.execute("PRAGMA user_version = 3")
    database_of_before.close()
    before = database(data).read_bytes()
    with pytest.raises(DataVersion, match="has format 3"):
        SqliteStore(database(data))
    assert database(data).read_bytes() == before


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


BEFORE = StoreFormat(format=FORMAT - 1, least_reader=FORMAT - 1, written_by="0.0.9")


@pytest.fixture
def earlier(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a format that this version reads, and raises."""
    monkeypatch.setattr(formats, "OLDEST_READ", FORMAT - 1)
    (data / "format").write_bytes(msgspec.json.encode(BEFORE))
    return data


def test_an_earlier_format_is_raised(earlier: Path) -> None:
    prepare(earlier)
    assert stored_format(earlier) == CURRENT
    assert mode(earlier / "format") == 0o600


def test_the_spare_makes_room_to_raise_the_format(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spare = earlier / "spare"
    spare.write_bytes(b"spare")
    sync = os.fsync

    def fsync(descriptor: int) -> None:
        if spare.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    prepare(earlier)
    assert stored_format(earlier) == CURRENT


def test_a_full_volume_keeps_the_format_and_no_unfinished_file(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        prepare(earlier)
    assert stored_format(earlier) == BEFORE
    assert [path.name for path in earlier.iterdir() if path.name.startswith("tmp")] == []


def test_a_version_leaves_what_a_later_one_has_raised_meanwhile(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = StoreFormat(format=FORMAT + 1, least_reader=FORMAT, written_by="0.2.0")
    read = directory.stored_format

    def overtaken(data: Path) -> StoreFormat | None:
        found = read(data)
        monkeypatch.setattr(directory, "stored_format", read)
        (data / "format").write_bytes(msgspec.json.encode(later))
        return found

    monkeypatch.setattr(directory, "stored_format", overtaken)
    prepare(earlier)
    assert read(earlier) == later


def test_two_processes_never_raise_the_format_at_once(earlier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, is_locked = directory._replace, []

    def replaced(path: Path, text: str) -> None:
        with (earlier / "raising").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_locked.append(True)
        replace(path, text)

    monkeypatch.setattr(directory, "_replace", replaced)
    prepare(earlier)
    assert is_locked == [True]


@pytest.mark.parametrize("name", ["data", "our queue; it's here"])
def test_the_repair_that_a_damaged_format_names_repairs_it(tmp_path: Path, name: str) -> None:
    data = tmp_path / name
    data.mkdir()
    (data / "format").write_bytes(b"{")
    with pytest.raises(Corrupt) as refused:
        prepare(data)
    command = str(refused.value).rpartition("repair it by ")[2]
    subprocess.run(command, shell=True, check=True)
    prepare(data)
    assert stored_format(data) is not None
