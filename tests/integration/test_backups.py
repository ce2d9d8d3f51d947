"""A backup that is made while servers take messages has all that was acknowledged before, and a whole queue."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.files import FileBlobs
from hourwheel.embedded.backups import copies
from hourwheel.embedded.backups.backup import back_up
from hourwheel.embedded.backups.copies import RECORD, Backup
from hourwheel.embedded.backups.restore import read_backup, restore
from hourwheel.errors import Broken, Corrupt, DataVersion, HourwheelError, StorageFull
from hourwheel.logs.formats import FORMAT
from hourwheel.retention.manifests import numbers_from
from hourwheel.system import SystemClock
from tests.integration.conftest import Start
from tests.integration.process import SECONDS, Server, bodies, pull, send

LARGE = 400_000  # a batch that goes to an object
NAMES = ("orders", "stock")


class Load:
    """Threads that send, delay and consume while the block runs. ``accepted``: the messages that were acknowledged,
    in the order in which the answers came."""

    def __init__(self, server: Server) -> None:
        self.accepted: list[str] = []
        self.settled: set[str] = set()
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(server, name)) for name in NAMES]
        self._threads.append(threading.Thread(target=self._consume, args=(server,)))
        self.failures: list[BaseException] = []

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(SECONDS)
        assert self.failures == []

    def until_more(self, messages: int) -> None:
        with self._changed:
            wanted = len(self.accepted) + messages
            assert self._changed.wait_for(lambda: len(self.accepted) >= wanted or self.failures, SECONDS)

    def _send(self, server: Server, subject: str) -> None:
        try:
            with server.connect() as connection:
                for number in count():
                    if self._over.is_set():
                        return
                    text = f"{subject}-{number}"
                    large = "" if number % 10 else os.urandom(LARGE // 2).hex()
                    send(connection, f"{text} {large}", f"{text}-b ", subject=subject)
                    with self._changed:
                        self.accepted += [text, f"{text}-b"]
                        self._changed.notify_all()
        except BaseException as error:
            self._fail(error)

    def _consume(self, server: Server) -> None:
        try:
            with server.connect() as connection:
                while not self._over.is_set():
                    for pulled in pull(connection, max_messages=3):
                        names = [message["body"].partition(" ")[0] for message in pulled["messages"]]
                        acks = {"settle": [{"receipt": pulled["receipt"], "retry": [{"index": 0}]}]}
                        connection.ok("POST", "/v1/subjects/orders/groups/billing/ack", acks)
                        self.settled.update(names[1:])
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()


def every_name(server: Server, subject: str) -> Counter[str]:
    """Returns how often each message of the subject is there, as a new group gets them."""
    found: Counter[str] = Counter()
    with server.connect() as connection:
        while pulls := pull(connection, subject=subject, group="auditor", max_messages=1_000):
            found.update(body.partition(" ")[0] for body in bodies(pulls))
            for pulled in pulls:
                acks = {"settle": [{"receipt": pulled["receipt"]}]}
                connection.ok("POST", f"/v1/subjects/{subject}/groups/auditor/ack", acks)
    return found


def test_a_backup_under_load_has_all_that_was_acknowledged_before_it_began(start: Start, tmp_path: Path) -> None:
    server = start(archive_seconds=1)
    rounds = []
    with Load(server) as load:
        for number in range(3):
            load.until_more(60)
            before = list(load.accepted)
            back_up(tmp_path / f"backup-{number}", tmp_path / "data", {}, SystemClock().now_ms())
            rounds.append(before)
    server.stop()
    for number, before in enumerate(rounds):
        restored = tmp_path / f"restored-{number}"
        restore(tmp_path / f"backup-{number}", restored, {})
        again = start(restored, archive_seconds=1)
        found = every_name(again, "orders") + every_name(again, "stock")
        assert set(before) - set(found) == set()
        assert [name for name, times in found.items() if times != 1] == []
        # It goes on: new messages follow those that are there.
        (sent,) = send(again, "new")
        assert sent["offset"] == sum(1 for name in found if name.startswith("orders-"))
        assert again.stop() == (0, "")


def test_settled_messages_stay_settled_and_retries_come_again(start: Start, tmp_path: Path) -> None:
    server = start()
    send(server, "a", "b", "c")
    (pulled,) = pull(server, max_messages=3)
    settlement = {"receipt": pulled["receipt"], "retry": [{"index": 1}]}
    server.ok("POST", "/v1/subjects/orders/groups/billing/ack", {"settle": [settlement]})
    back_up(tmp_path / "backup", tmp_path / "data", {}, 0)
    server.kill()
    restore(tmp_path / "backup", tmp_path / "restored", {})
    assert bodies(pull(start(tmp_path / "restored"))) == ["b"]


def test_the_archive_of_a_backup_is_not_ahead_of_its_database(start: Start, tmp_path: Path) -> None:
    server = start(archive_seconds=1)
    with Load(server) as load:
        archive = FileBlobs(tmp_path / "data" / "archive")
        while len(numbers_from(archive, 0)) < 2:
            load.until_more(10)
        back_up(tmp_path / "backup", tmp_path / "data", {}, 0)
    server.stop()
    restore(tmp_path / "backup", tmp_path / "restored", {})
    numbers = numbers_from(FileBlobs(tmp_path / "restored" / "archive"), 0)
    assert numbers == list(range(len(numbers)))
    again = start(tmp_path / "restored", archive_seconds=1)
    send(again, "new")
    while len(numbers_from(FileBlobs(tmp_path / "restored" / "archive"), 0)) == len(numbers):
        send(again, "more")
    assert again.stop() == (0, "")


def test_cells_are_copied_as_they_are_at_one_moment(start: Start, tmp_path: Path) -> None:
    cells = {"fast": tmp_path / "fast"}
    server = start(cells=cells)
    server.ok("PUT", "/v1/cells/fast", {})
    send(server, "first")
    server.ok("PUT", "/v1/subjects/stock", {})
    server.ok("POST", "/v1/subjects/stock/queues/0/move", {"cell": "fast"})
    with Load(server) as load:
        load.until_more(60)
        before = list(load.accepted)
        back_up(tmp_path / "backup", tmp_path / "data", cells, 0)
    server.stop()
    with pytest.raises(Broken, match="the backup has cell fast: name a new directory for it, --cell fast=DIRECTORY"):
        restore(tmp_path / "backup", tmp_path / "restored", {})
    there = {"fast": tmp_path / "restored-fast"}
    restore(tmp_path / "backup", tmp_path / "restored", there)
    again = start(tmp_path / "restored", cells=there)
    found = every_name(again, "orders") + every_name(again, "stock")
    assert set(before) - set(found) == set()
    assert set(found.values()) == {1}


def test_a_backup_has_every_cell_that_serves(start: Start, tmp_path: Path) -> None:
    server = start(cells={"fast": tmp_path / "fast"})
    server.ok("PUT", "/v1/cells/fast", {})
    with pytest.raises(Broken, match="has cell fast: name its directory, --cell fast=DIRECTORY; if it is out of reach"):
        back_up(tmp_path / "backup", tmp_path / "data", {}, 0)
    assert not (tmp_path / "backup").exists()
    server.ok("PUT", "/v1/cells/fast", {"state": "offline"})
    assert list(back_up(tmp_path / "backup", tmp_path / "data", {}, 0).stores) == [""]


@pytest.fixture
def stopped(start: Start, tmp_path: Path) -> Path:
    """Returns a data directory with some messages, one of them in an object, that no server uses."""
    server = start()
    send(server, "a", os.urandom(LARGE // 2).hex())
    server.stop()
    return tmp_path / "data"


def copied(tmp_path: Path, data: Path) -> Path:
    back_up(tmp_path / "backup", data, {}, 0)
    return tmp_path / "backup"


@contextmanager
def nothing_made(folder: Path) -> Iterator[None]:
    """Checks that the block, which raises, leaves no new file behind."""
    before = sorted(folder.rglob("*"))
    yield
    assert sorted(folder.rglob("*")) == before


def test_a_target_that_is_there_is_refused(tmp_path: Path, stopped: Path) -> None:
    backup = copied(tmp_path, stopped)
    for call in (lambda: back_up(backup, stopped, {}, 0), lambda: restore(backup, stopped, {})):
        with nothing_made(tmp_path), pytest.raises(Broken, match="exists and is not empty: name a new directory"):
            call()


def test_two_backups_at_once_do_not_mix(tmp_path: Path, stopped: Path) -> None:
    target = tmp_path / "backup"
    with copies.made_at(target) as unfinished:
        (unfinished / "first").touch()
        with pytest.raises(Broken, match="another process makes"):
            back_up(target, stopped, {}, 0)
    assert os.listdir(target) == ["first"]


def test_what_is_no_data_directory_is_not_backed_up(tmp_path: Path, stopped: Path) -> None:
    (tmp_path / "photos").mkdir()
    for place in ("photos", "missing"):
        with nothing_made(tmp_path), pytest.raises(Broken, match="is no data directory"):
            back_up(tmp_path / "backup", tmp_path / place, {}, 0)
    with nothing_made(tmp_path), pytest.raises(Broken, match="is the directory of a home"):
        back_up(tmp_path / "backup", stopped, {"fast": stopped}, 0)


def test_a_foreign_or_unfinished_backup_is_refused(tmp_path: Path, stopped: Path) -> None:
    backup = copied(tmp_path, stopped)
    for place in (stopped, tmp_path / "missing"):
        with nothing_made(tmp_path), pytest.raises(Broken, match=r"is no backup, or an unfinished one"):
            restore(place, tmp_path / "restored", {})
    (backup / RECORD).rename(tmp_path / "record")
    with nothing_made(tmp_path), pytest.raises(Broken, match=r"is no backup, or an unfinished one"):
        restore(backup, tmp_path / "restored", {})
    (backup / RECORD).write_text("{")
    with nothing_made(tmp_path), pytest.raises(Corrupt, match="does not describe a backup"):
        restore(backup, tmp_path / "restored", {})


def test_a_backup_of_a_later_version_is_refused(tmp_path: Path, stopped: Path) -> None:
    backup = copied(tmp_path, stopped)
    found = msgspec.json.decode((backup / RECORD).read_bytes())
    found |= {"format": FORMAT + 1, "least_reader": FORMAT + 1, "written_by": "0.2.0"}
    (backup / RECORD).write_bytes(msgspec.json.encode(found))
    with nothing_made(tmp_path), pytest.raises(DataVersion, match=r"^the backup .* has format 4, of Hourwheel 0\.2\.0"):
        restore(backup, tmp_path / "restored", {})


@pytest.mark.parametrize("damage", ["database", "object missing", "object longer", "store missing"])
def test_a_damaged_backup_is_refused(tmp_path: Path, stopped: Path, damage: str) -> None:
    backup = copied(tmp_path, stopped)
    (large,) = backup.rglob("*=")
    if damage == "database":
        data = bytearray((backup / "home/hourwheel.db").read_bytes())
        data[5_000] ^= 1
        (backup / "home/hourwheel.db").write_bytes(data)
    elif damage == "object missing":
        large.unlink()
    elif damage == "object longer":
        large.write_bytes(large.read_bytes() + b"x")
    else:
        shutil.rmtree(backup / "home")
    with nothing_made(tmp_path), pytest.raises(Corrupt, match="the backup is damaged"):
        restore(backup, tmp_path / "restored", {})


_KILLED = """
import os, signal, sys
from pathlib import Path
from hourwheel.embedded.backups import backup, copies, restore

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

setattr(*{where}, killed)
{call}
"""
KILLS = {
    "before the objects": "(backup, '_copy_objects')",
    "before the database": "(backup, '_copy_database')",
    "before the record": "(backup, '_copied')",
    "before it has its name": "(os, 'rename')",
}


@pytest.mark.parametrize("moment", KILLS)
def test_a_killed_backup_leaves_none_and_the_next_one_is_whole(tmp_path: Path, stopped: Path, moment: str) -> None:
    call = f"backup.back_up(Path({str(tmp_path / 'backup')!r}), Path({str(stopped)!r}), {{}}, 0)"
    script = _KILLED.format(where=KILLS[moment], call=call)
    ended = subprocess.run([sys.executable, "-c", script], timeout=SECONDS, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "backup").exists()
    backup = copied(tmp_path, stopped)
    assert {path.name for path in tmp_path.iterdir()} == {"backup", "data"}
    assert read_backup(backup).stores[""].objects == 1


@pytest.mark.parametrize("moment", ["(restore, 'copy_file')", "(restore, 'kept_objects')", "(os, 'rename')"])
def test_a_killed_restore_leaves_no_directory_and_the_next_one_is_whole(
    start: Start, tmp_path: Path, stopped: Path, moment: str
) -> None:
    backup = copied(tmp_path, stopped)
    call = f"restore.restore(Path({str(backup)!r}), Path({str(tmp_path / 'restored')!r}), {{}})"
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED.format(where=moment, call=call)], timeout=SECONDS, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "restored").exists()
    restore(backup, tmp_path / "restored", {})
    assert {path.name for path in tmp_path.iterdir()} == {"backup", "data", "restored"}
    assert bodies(pull(start(tmp_path / "restored")))[0] == "a"


@pytest.mark.parametrize("way", ["backup", "restore"])
def test_a_full_volume_is_told_and_nothing_is_left(
    tmp_path: Path, stopped: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = copied(tmp_path, stopped)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(copies.os, "sync", full)
    target = tmp_path / "target"
    with nothing_made(tmp_path), pytest.raises(StorageFull, match=f"no room is left on the volume of {target}"):
        back_up(target, stopped, {}, 0) if way == "backup" else restore(backup, target, {})


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path, stopped: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HourwheelError, match="cannot be written"):
        back_up(tmp_path / "file" / "backup", stopped, {}, 0)


def test_a_backup_tells_what_it_holds(tmp_path: Path, stopped: Path) -> None:
    backup: Backup = back_up(tmp_path / "backup", stopped, {}, 1_763_640_000_000)
    assert backup == read_backup(tmp_path / "backup")
    assert (backup.taken_ms, backup.stores[""].objects, backup.format) == (1_763_640_000_000, 1, FORMAT)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "backup").rglob("*")} == {0}
