"""New messages leave a reserve of free space on the volume, in which a queue is drained."""

import asyncio
import os
from pathlib import Path

import pytest

from hourwheel.embedded.readiness import Readiness
from hourwheel.embedded.reserve import Reserve, free_bytes
from hourwheel.errors import Broken, StorageFull


def with_free(free: int, size: int = 100) -> Reserve:
    return Reserve(Path(), size, free=lambda path: free)


@pytest.mark.parametrize("free", [0, 99])
def test_less_than_the_reserve_refuses_new_messages(free: int) -> None:
    with pytest.raises(StorageFull):
        with_free(free).check()


def test_the_whole_reserve_or_none_refuses_nothing() -> None:
    with_free(100).check()
    with_free(0, size=0).check()


@pytest.mark.parametrize(("free", "told"), [(199, {"space": "low"}), (50, {"space": "low"}), (200, {})])
def test_readiness_tells_that_space_is_low_before_the_reserve_is_reached(free: int, told: dict[str, str]) -> None:
    async def ask() -> object:
        readiness = Readiness(lambda: None, with_free(free))
        answer = await readiness.answer("1")
        readiness.close()
        return answer["statusCode"], answer["body"]

    status, body = asyncio.run(ask())  # type: ignore[misc] - a pair
    assert status == 200
    assert ('"space":"low"' in body) is bool(told)


def test_the_free_space_is_that_of_the_volume(tmp_path: Path) -> None:
    volume = os.statvfs(tmp_path)
    assert 0 < free_bytes(tmp_path) <= volume.f_frsize * volume.f_blocks
    with pytest.raises(Broken, match="cannot be read"):
        free_bytes(tmp_path / "missing")
