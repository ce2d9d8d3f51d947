"""A server under systemd says when it takes requests, that it lives, and that it stops."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from tests import ports

_SECONDS = 120


def _state(supervisor: socket.socket) -> str:
    return supervisor.recv(100).decode()


def test_a_unit_of_type_notify_learns_the_states_of_its_server(tmp_path: Path) -> None:
    (port,) = ports.free_ports(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(_SECONDS)
        environment = os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"}
        command = [sys.executable, "-m", "hourwheel", "serve", "--data", str(tmp_path / "data"), "--port", str(port)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as server:
            states = {_state(supervisor), _state(supervisor)}
            assert states == {"READY=1", "WATCHDOG=1"}
            with urlopen(f"http://127.0.0.1:{port}/v1/health", timeout=_SECONDS) as answer:
                assert answer.status == 200
            assert _state(supervisor) == "WATCHDOG=1"
            server.send_signal(signal.SIGTERM)
            while (state := _state(supervisor)) == "WATCHDOG=1":
                pass
            assert state == "STOPPING=1"
            assert server.wait(_SECONDS) == 0
