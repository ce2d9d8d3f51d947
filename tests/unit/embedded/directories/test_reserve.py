"""New messages leave a reserve of free space on the volume, in which a queue is drained."""

import asyncio
import errno
import json
import logging
import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hourwheel.adapters.sqlite.store import SqliteStore
from hourwheel.embedded import runtime
from hourwheel.embedded.directories import cells, reserve
from hourwheel.embedded.directories.reserve import (
    MEGABYTE,
    SPARE_BYTES,
    Reserves,
    free_bytes,
    keep_spare,
    release_spare,
)
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.readiness import Readiness
from hourwheel.embedded.runtime import Runtime
from hourwheel.errors import Broken, CellFull, StorageFull
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest, Settlement

HOME = ""


class Volumes:
    """The free bytes of volumes, by the name of their folder."""

    def __init__(self, free: int = 1 << 40, **by_name: int) -> None:
        self.free, self.by_name = free, by_name

    def __call__(self, path: Path) -> int:
        free = self.by_name.get(path.name, self.free)
        if free < 0:
            raise Broken("its free space cannot be read")
        return free


def with_free(free: int, size: int = 100) -> Reserves:
    return Reserves(Path(), {}, size, Volumes(free))


@pytest.mark.parametrize("free", [0, 99])
def test_less_than_the_reserve_refuses_new_messages(free: int) -> None:
    with pytest.raises(StorageFull):
        with_free(free).check(HOME)


def test_the_whole_reserve_or_none_refuses_nothing() -> None:
    with_free(100).check(HOME)
    with_free(0, size=0).check(HOME)


def ready(reserves: Reserves, *, names: bool) -> tuple[int, Any]:
    async def ask() -> Any:
        readiness = Readiness(lambda: None, reserves)
        try:
            return await readiness.answer("1", names=names)
        finally:
            readiness.close()

    answer = asyncio.run(ask())
    return answer["statusCode"], json.loads(answer["body"])


@pytest.mark.parametrize(("free", "told"), [(199, {"space": "low"}), (50, {"space": "low"}), (200, {})])
def test_readiness_tells_that_space_is_low_before_the_reserve_is_reached(free: int, told: dict[str, str]) -> None:
    assert ready(with_free(free), names=False) == (200, {"status": "ready", **told})
    named = {**told, "volumes": ["home"]} if told else {}
    assert ready(with_free(free), names=True) == (200, {"status": "ready", **named})


def test_the_free_space_is_that_of_the_volume(tmp_path: Path) -> None:
    volume = os.statvfs(tmp_path)
    assert 0 < free_bytes(tmp_path) <= volume.f_frsize * volume.f_blocks
    with pytest.raises(Broken, match="cannot be read"):
        free_bytes(tmp_path / "missing")


def test_each_cell_has_the_reserve_of_its_own_volume(tmp_path: Path) -> None:
    places = {"fast": tmp_path / "nvme", "gone": tmp_path / "usb"}
    reserves = Reserves(tmp_path, places, 100, Volumes(nvme=99, usb=-1))
    reserves.check(HOME)
    reserves.check("gone")  # the write itself tells
    with pytest.raises(CellFull, match="cell fast"):
        reserves.check("fast")
    assert reserves.low() == ["fast"]
    assert {volume: each.free for volume, each in reserves.by_volume.items()} == {
        "home": 1 << 40,
        "fast": 99,
        "gone": None,
    }


def test_folders_on_volumes_of_their_own_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("batches", "archive", "lake"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(reserve, "_is_elsewhere", lambda directory, folder: (directory / folder).exists())
    reserves = Reserves(tmp_path, {}, 100, Volumes(archive=0, lake=300))
    reserves.check(HOME)  # no send writes to the archive
    assert reserves.low() == ["home/archive"]
    with pytest.raises(StorageFull):
        Reserves(tmp_path, {}, 100, Volumes(batches=99)).check(HOME)


def test_a_cell_below_its_reserve_takes_no_message_and_is_drained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    volumes = Volumes()
    monkeypatch.setattr(Reserves.__init__, "__defaults__", (volumes,))
    options = ServeOptions(data=tmp_path / "home", cells={"fast": tmp_path / "nvme"})
    with closing(Runtime(options)) as opened:
        deployment = opened.deployment
        deployment.produce("here", [NewMessage(body="x")])
        deployment.produce("orders", [NewMessage(body="before")])
        deployment.cells.add("fast")
        deployment.routes.move("orders", 0, "fast")
        deployment.produce("orders", [NewMessage(body="a"), NewMessage(body="b")])
        volumes.by_name["nvme"] = 64 * MEGABYTE - 1
        with pytest.raises(CellFull, match="cell fast"):
            deployment.produce("orders", [NewMessage(body="refused")])
        deployment.produce("orders", [NewMessage(body="y", delay="1h")])  # waits in the home
        deployment.produce("here", [NewMessage(body="y")])
        found: list[str | None] = []
        while pulls := deployment.pull("orders", "billing", PullRequest(consumer="c", max_messages=9)).pulls:
            for pulled in pulls:
                found += [message.body for message in pulled.messages]
                deployment.settle("orders", "billing", [Settlement(receipt=pulled.receipt)])
        assert found == ["before", "a", "b"]
        volumes.by_name["home"] = 0
        with pytest.raises(StorageFull):
            deployment.produce("here", [NewMessage(body="refused")])
        del volumes.by_name["nvme"]
        deployment.produce("orders", [NewMessage(body="later")])
        deployment.subjects.delete("here")


def test_a_spare_is_made_where_there_is_room_and_removed_where_there_is_none(tmp_path: Path) -> None:
    size = 64 * MEGABYTE
    spare = tmp_path / "spare"
    keep_spare(tmp_path, size, Volumes(2 * size + SPARE_BYTES - 1))
    keep_spare(tmp_path, 0, Volumes())
    keep_spare(tmp_path, size, Volumes(-1))
    assert not spare.exists()
    keep_spare(tmp_path, size, Volumes(2 * size + SPARE_BYTES))
    assert spare.stat().st_blocks * 512 >= SPARE_BYTES
    assert spare.stat().st_mode & 0o777 == 0o600
    release_spare(tmp_path, Volumes(SPARE_BYTES))
    assert spare.exists()
    release_spare(tmp_path, Volumes(SPARE_BYTES - 1))
    assert not spare.exists()


def test_a_spare_that_a_killed_server_left_unfinished_is_made_whole(tmp_path: Path) -> None:
    spare = tmp_path / "spare"
    spare.touch()
    keep_spare(tmp_path, 64 * MEGABYTE, Volumes())
    assert spare.stat().st_blocks * 512 >= SPARE_BYTES


def test_a_system_without_fallocate_has_a_spare_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    keep_spare(tmp_path, 64 * MEGABYTE, Volumes())
    spare = tmp_path / "spare"
    assert (spare.stat().st_size, spare.stat().st_blocks * 512 >= SPARE_BYTES) == (SPARE_BYTES, True)


def test_a_spare_for_which_the_room_is_gone_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", full)
    keep_spare(tmp_path, 64 * MEGABYTE, Volumes())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("full", ["home", "nvme"])
def test_a_server_starts_on_a_volume_whose_last_byte_another_program_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, full: str
) -> None:
    """As SQLite does there, the store opens nothing until the spare is gone."""
    caplog.set_level(logging.WARNING, "hourwheel")
    options = ServeOptions(data=tmp_path / "home", cells={"fast": tmp_path / "nvme"})
    with closing(Runtime(options)) as opened:
        opened.deployment.produce("orders", [NewMessage(body="kept")])
        opened.reserves.keep_spares()
    spare = tmp_path / full / "spare"
    assert spare.exists()
    monkeypatch.setattr(release_spare, "__defaults__", (Volumes(**{full: 0}),))

    def on_full_volume(path: Path, **rest: Any) -> SqliteStore:
        if (path.parent / "spare").exists() and path.parent.name == full:
            raise Broken("the database failed: disk I/O error")
        return SqliteStore(path, **rest)

    for module in (runtime, cells):
        monkeypatch.setattr(module, "SqliteStore", on_full_volume)
    with closing(Runtime(options)) as opened:
        (pulled,) = opened.deployment.pull("orders", "billing", PullRequest(consumer="c")).pulls
        assert [message.body for message in pulled.messages] == ["kept"]
    assert not spare.exists()
    assert [record.getMessage() for record in caplog.records] == [
        f"the volume of {tmp_path / full} is full: removed the spare file to drain its queues"
    ]
