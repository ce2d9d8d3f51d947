"""A server tells systemd that it listens, lives and stops, and tells nobody where nobody asks."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hourwheel.embedded.systemd import Systemd


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        bound.settimeout(30)
        yield bound


def test_a_state_arrives(supervisor: socket.socket) -> None:
    Systemd({"NOTIFY_SOCKET": supervisor.getsockname()}).notify("READY=1")
    assert supervisor.recv(100) == b"READY=1"


def test_a_socket_without_a_file_is_told_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        name = f"hourwheel-{os.getpid()}"
        bound.bind(f"\0{name}")
        bound.settimeout(30)
        Systemd({"NOTIFY_SOCKET": f"@{name}"}).notify("READY=1")
        assert bound.recv(100) == b"READY=1"


def test_signs_of_life_come_twice_as_often_as_they_must(supervisor: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": supervisor.getsockname(), "WATCHDOG_USEC": "20000"}
    living = Systemd({**environment, "WATCHDOG_PID": str(os.getpid())})
    assert living.alive_seconds == 0.01

    async def live() -> None:
        signs = asyncio.ensure_future(living.show_life())
        loop = asyncio.get_running_loop()
        supervisor.setblocking(False)
        for _ in range(3):
            assert await asyncio.wait_for(loop.sock_recv(supervisor, 100), 30) == b"WATCHDOG=1"
        signs.cancel()

    asyncio.run(live())


@pytest.mark.parametrize(
    "environment",
    [
        {"NOTIFY_SOCKET": "/nowhere"},
        {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "20000"},
    ],
)
def test_nobody_waits_for_signs_of_life(environment: dict[str, str]) -> None:
    assert Systemd(environment).alive_seconds == 0
    asyncio.run(Systemd(environment).show_life())  # ends at once


def test_a_supervisor_that_is_gone_stops_nothing() -> None:
    Systemd({"NOTIFY_SOCKET": "/nowhere/notify"}).notify("READY=1")


def test_a_patience_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="WATCHDOG_USEC must be a number of microseconds, not 'soon'"):
        Systemd({"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "soon"})
