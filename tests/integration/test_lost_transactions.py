"""A database that lost transactions is noticed at the start, and not served unless the loss is accepted."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.archive.archiver import Archiver
from hourwheel.embedded.offline import opened
from hourwheel.sweep.erasure import make_registry
from tests.integration.conftest import Start
from tests.integration.process import Server, bodies, pull, send

FRAME = 24 + 4096
"""Bytes of a page in the write-ahead log, with its head."""

MISSING = re.compile(r"\b(1 transaction is|([2-9]|\d{2,}) transactions are) missing from hourwheel\.db, of \d+, all")


def wal(data: Path) -> Path:
    return data / "hourwheel.db-wal"


def flip(data: Path, at: int) -> None:
    content = bytearray(wal(data).read_bytes())
    content[at] ^= 0xFF
    wal(data).write_bytes(content)


def truncate(data: Path) -> None:
    content = wal(data).read_bytes()
    wal(data).write_bytes(content[: len(content) // 2])


DAMAGES: dict[str, Callable[[Path], object]] = {
    "its last page": lambda data: flip(data, -FRAME // 2),
    "a page in its middle": lambda data: flip(data, wal(data).stat().st_size // 2),
    "its first bytes": lambda data: flip(data, 8),
    "its second half is gone": truncate,
    "it is gone": lambda data: wal(data).unlink(),
}


def killed(data: Path, *texts: str) -> None:
    server = Server(data)
    for text in texts:
        send(server, text)
    server.kill()


def refused(server: Server) -> str:
    status, errors = server.end()
    assert (server.port, status) == (0, 1)
    assert errors.startswith("hourwheel: cannot open ")
    assert "--accept-loss" in errors
    return errors


def accepted(start: Start, data: Path) -> str:
    """Accepts the loss, and returns the log line about it. From then on the directory is served as before."""
    server = start(data, accept_loss=True)
    send(server, "new")
    status, errors = server.stop()
    assert status == 0
    again = start(data)
    assert "new" in bodies(pull(again))
    assert again.stop() == (0, "")
    return errors


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_log_is_refused_until_the_loss_is_accepted(
    tmp_path: Path, start: Start, damage: Callable[[Path], object]
) -> None:
    killed(tmp_path, *map(str, range(20)))
    damage(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("hourwheel.db*") if not path.name.endswith("-shm")}
    for _ in range(2):
        assert MISSING.search(refused(start(tmp_path)))
    # Nothing was written: the log can still be saved.
    after = {name: (tmp_path / name).read_bytes() for name in before}
    assert after == before
    assert MISSING.search(accepted(start, tmp_path))


def test_an_older_copy_in_the_place_of_the_database_is_refused(tmp_path: Path, start: Start) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    killed(data, "a")
    shutil.copytree(data, copy)
    killed(data, "b", "c")
    for path in data.glob("hourwheel.db*"):
        path.unlink()
    for path in copy.glob("hourwheel.db*"):
        shutil.copy(path, data)
    assert " until " in refused(start(data))
    accepted(start, data)


def test_a_database_that_is_gone_is_refused(tmp_path: Path, start: Start) -> None:
    killed(tmp_path, "a")
    for path in tmp_path.glob("hourwheel.db*"):
        path.unlink()
    refused(start(tmp_path))
    accepted(start, tmp_path)


def test_a_copy_of_the_whole_directory_is_served(tmp_path: Path, start: Start) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    killed(data, "a")
    shutil.copytree(data, copy)
    killed(data, "b")
    server = start(copy)
    assert bodies(pull(server)) == ["a"]
    assert server.stop() == (0, "")


def test_a_copy_that_is_older_than_the_archive_is_refused(tmp_path: Path, start: Start) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    killed(data, "a")
    shutil.copytree(data, copy)
    killed(data, "b", "c")
    with opened(data) as context:
        Archiver(context, make_registry(context), FileBlobs(data / "archive")).run(1 << 60)
    shutil.copytree(data / "archive", copy / "archive")
    errors = refused(start(copy))
    assert "the archive has 2 rows of 1 log that the database does not have, 2 of them of orders~1/0" in errors
    server = start(copy, accept_loss=True)
    assert bodies(pull(server)) == ["a"]
    status, errors = server.stop()
    assert status == 0
    assert "accepted" in errors
    server = start(data)
    assert bodies(pull(server)) == ["a", "b", "c"]
    assert server.stop() == (0, "")


def test_a_loss_without_a_sync_at_each_commit_is_told_and_served(tmp_path: Path, start: Start) -> None:
    killed(tmp_path, "a", "b")
    truncate(tmp_path)
    server = start(tmp_path, synchronous="NORMAL")
    assert server.ok("GET", "/v1/health")["status"] == "ok"
    status, errors = server.stop()
    assert status == 0
    assert MISSING.search(errors)


def test_a_mark_that_was_overwritten_is_told_and_made_anew(tmp_path: Path, start: Start) -> None:
    killed(tmp_path, "a")
    (tmp_path / "synced").write_bytes(b"x" * 24)
    server = start(tmp_path)
    send(server, "b")
    server.kill()
    truncate(tmp_path)
    refused(start(tmp_path))


def test_what_two_servers_stored_is_known_after_both_were_killed(tmp_path: Path, start: Start) -> None:
    servers = [start(tmp_path), start(tmp_path)]
    for number in range(20):
        send(servers[number % 2], str(number))
    for server in servers:
        server.kill()
    flip(tmp_path, -FRAME // 2)
    refused(start(tmp_path))
