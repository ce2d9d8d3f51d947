"""A server that cannot start says why in one line, and leaves everything as it was."""

import signal
import socket
import sqlite3
from pathlib import Path

import pytest

from tests.integration.conftest import Start
from tests.integration.process import Server, bodies, pull, send


def assert_refused(server: Server, *words: str) -> None:
    assert server.port == 0
    status, errors = server.end()
    assert status == 1
    (line,) = errors.splitlines()
    assert line.startswith("hourwheel: ")
    for word in words:
        assert word in line


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_port_in_use(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_refused(start(port=port), "cannot listen on 127.0.0.1", str(port), "in use (--port takes another one)")
    assert not (tmp_path / "data").exists()


def test_a_host_that_is_none_of_ours(start: Start) -> None:
    assert_refused(start(host="192.0.2.1", insecure=True), "cannot listen on 192.0.2.1")


def test_a_directory_that_cannot_be_made(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert_refused(start(tmp_path / "file" / "data"), "cannot open", "Not a directory")
    server = Server(tmp_path / "data", cells={"fast": tmp_path / "file" / "fast"})
    assert_refused(server, f"cannot open {tmp_path / 'file' / 'fast'}: Not a directory")


def test_a_database_that_is_damaged(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "hourwheel.db").write_bytes(b"not a database" * 1_000)
    assert_refused(start(), "cannot open", "damaged")
    assert (data / "hourwheel.db").read_bytes() == b"not a database" * 1_000


def test_a_directory_of_a_newer_version(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "format").write_text("99\n")
    before = contents(data)
    assert_refused(start(), "format 99")
    assert contents(data) == before


@pytest.mark.parametrize("version", [99, 1])
def test_a_database_of_another_version(start: Start, tmp_path: Path, version: int) -> None:
    assert start().stop() == (0, "")
    database = sqlite3.connect(tmp_path / "data" / "hourwheel.db")
    database.execute(f"PRAGMA user_version = {version}")
    database.close()
    before = contents(tmp_path / "data")
    assert_refused(start(), f"format {version}", "use the version that wrote it")
    assert contents(tmp_path / "data") == before


def test_a_directory_of_something_else(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "format").write_text("something else")
    assert_refused(start(), "cannot open", "data directory")


def test_a_server_that_anybody_may_reach_wants_tokens(start: Start, tmp_path: Path) -> None:
    assert_refused(start(host="0.0.0.0"), "anybody who reaches 0.0.0.0", "--token-file", "--insecure")
    assert not (tmp_path / "data").exists()


def test_a_server_that_anybody_is_to_reach_warns(start: Start) -> None:
    server = start(host="0.0.0.0", insecure=True)
    server.signal(signal.SIGTERM)
    status, errors = server.end()
    assert status == 0
    assert "warning" in errors


@pytest.mark.parametrize("synchronous", ["FULL", "NORMAL"])
def test_what_was_stored_is_there_after_a_restart(start: Start, synchronous: str) -> None:
    first = start(synchronous=synchronous)
    send(first, "kept")
    assert first.stop() == (0, "")
    assert bodies(pull(start(synchronous=synchronous))) == ["kept"]
