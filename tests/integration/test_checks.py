"""A check of a data directory finds nothing in a sound one, and each damage that can be seen at rest."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.adapters.sqlite.synced_mark import Synced, SyncedMark
from hourwheel.embedded.backups.backup import back_up
from hourwheel.embedded.checks.check import check
from hourwheel.embedded.directories.directory import database
from hourwheel.errors import Broken
from hourwheel.pull_log.records import PullRow
from tests.integration.conftest import Start
from tests.integration.process import pull, send
from tests.integration.test_backups import Load

LARGE = 400_000


@pytest.fixture
def data(start: Start, tmp_path: Path) -> Path:
    """Returns a data directory with a little of everything, that no server uses."""
    server = start()
    send(server, "a", "b", "c")
    send(server, os.urandom(LARGE // 2).hex())
    server.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "later", "delay": "2h"}]})
    for _ in range(3):
        (pulled,) = pull(server, max_messages=1)
        settlement = {"receipt": pulled["receipt"], "retry": [{"index": 0}]}
        server.ok("POST", "/v1/subjects/orders/groups/billing/ack", {"settle": [settlement]})
    pull(server, max_messages=1)
    server.stop()
    return tmp_path / "data"


def execute(data: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(database(data))) as connection:
        assert connection.execute(statement, values).rowcount > 0
        connection.commit()


def test_a_sound_directory_has_no_findings_and_is_not_changed(data: Path) -> None:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file() and "-shm" not in path.name}
    report = check(data)
    assert report.findings == []
    counted = (report.messages, report.subjects, report.groups, report.buckets, report.objects, report.unnamed_objects)
    assert counted == (8, 1, 1, 1, 1, 0)  # four sent, three retried, one delayed
    assert (report.open_leases, report.open_transfers, report.holes) == (1, 0, 0)
    assert {path: path.read_bytes() for path in before} == before


def test_a_backup_that_was_made_under_load_is_sound(start: Start, tmp_path: Path) -> None:
    server = start()
    with Load(server) as load:
        load.until_more(60)
        back_up(tmp_path / "backup", tmp_path / "data", {}, 0)
    server.kill()
    report = check(tmp_path / "backup" / "home")
    assert report.findings == []
    assert report.messages >= 60
    assert check(tmp_path / "data").findings == []


def test_the_check_of_a_backup_leaves_no_file_there(data: Path, tmp_path: Path) -> None:
    back_up(tmp_path / "backup", data, {}, 0)
    before = sorted((tmp_path / "backup").rglob("*"))
    assert check(tmp_path / "backup" / "home").findings == []
    assert sorted((tmp_path / "backup").rglob("*")) == before


def test_transactions_that_a_server_commits_meanwhile_are_not_missing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = SyncedMark.read

    def read_behind_a_commit(mark: SyncedMark) -> Synced | None:
        store = SqliteStore(database(data), mark=mark)
        store.add("orders~1/0", rows=0, numbers=0)
        store.close()
        return read(mark)

    monkeypatch.setattr(SyncedMark, "read", read_behind_a_commit)
    before = check(data)
    assert before.findings == []
    assert check(data).transaction > before.transaction


def damaged_object(data: Path) -> None:
    (large,) = data.rglob("*=")
    large.write_bytes(bytes(len(large.read_bytes())))


def lost_object(data: Path) -> None:
    (large,) = data.rglob("*=")
    large.unlink()


def moved_pull_row(data: Path) -> None:
    with closing(sqlite3.connect(database(data))) as connection:
        where = "partition LIKE '%@%' AND sort = '0000000000000001'"
        (value,) = connection.execute(f"SELECT value FROM pull WHERE {where}").fetchone()
    row = msgspec.msgpack.decode(value, type=PullRow)
    changed = msgspec.structs.replace(row, first=msgspec.structs.replace(row.first, index=row.first.index + 1))
    execute(data, f"UPDATE pull SET value = ? WHERE {where}", msgspec.msgpack.encode(changed))


def missing_transactions(data: Path) -> None:
    execute(data, "UPDATE commits SET number = number - 2")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "object": (damaged_object, "the messages of row 1 of orders~1/0 cannot be read"),
    "no object": (lost_object, "the messages of row 1 of orders~1/0 cannot be read"),
    "row": (
        lambda data: execute(data, "UPDATE consume SET value = x'c1' WHERE sort LIKE '%0' AND partition LIKE '%/0'"),
        "row 0 of orders~1/0 cannot be read",
    ),
    "counter": (
        lambda data: execute(data, "UPDATE counters SET rows = 1 WHERE name = 'orders~1/0'"),
        "row 1 of orders~1/0 is above its counter, 1",
    ),
    "numbers": (
        lambda data: execute(data, "UPDATE counters SET numbers = 3 WHERE name = 'orders~1/0'"),
        "row 1 of orders~1/0 ends above its counter, 3",
    ),
    "pull row": (moved_pull_row, "does not begin where the row before it ends"),
    "unread pull row": (
        lambda data: execute(data, "UPDATE pull SET value = x'c1' WHERE partition LIKE '%@%'"),
        "cannot be read",
    ),
    "group": (
        lambda data: execute(data, "UPDATE meta SET value = x'c1' WHERE sort = 'billing'"),
        "the record billing of subject/orders cannot be read",
    ),
    "list": (
        lambda data: execute(data, "DELETE FROM meta WHERE partition = 'subjects/0'"),
        "subject orders is missing from the list of subjects",
    ),
    "bucket": (lambda data: execute(data, "DELETE FROM meta WHERE partition = 'buckets'"), "is not registered"),
    "transactions": (missing_transactions, "2 transactions are missing"),
    "mark": (lambda data: (data / "synced").write_bytes(bytes(24)) and None, "synced is damaged"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found(data: Path, damage: str) -> None:
    make, expected = DAMAGES[damage]
    make(data)
    found = [finding.what for finding in check(data).findings]
    assert [what for what in found if expected in what] != [], found


def test_a_damaged_page_is_found(data: Path) -> None:
    with closing(sqlite3.connect(database(data))) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'keys_expires'").fetchone()
    content = bytearray(database(data).read_bytes())
    content[(root - 1) * 4_096] = 0x55  # no kind of page
    database(data).write_bytes(content)
    assert any("the database is damaged" in finding.what for finding in check(data).findings)


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="is no data directory"):
        check(tmp_path)
