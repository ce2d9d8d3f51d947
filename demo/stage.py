"""Starts the processes of the demo, and waits for them."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE_SECONDS = 600.0
"""A slow machine needs most of this time: the month begins only once everything should be sent."""
_PORTS = range(7_421, 7_521)


@dataclass
class Stage:
    """The processes of a demo. ``stop_all`` ends them."""

    folder: Path
    port: int = field(default_factory=lambda: free_port())
    url: str = ""
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def console(self) -> str:
        """Returns the address of the server's console."""
        return f"{self.url}/console/"

    def serve(self) -> None:
        """Starts the server, or restarts it on the same data and port. Returns once the server listens."""
        arguments = ["-m", "hourwheel", "serve", "--data", str(self.data), "--port", str(self.port)]
        server = self._start("server", arguments, stdout=subprocess.PIPE)
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"http://\S+?(?=,|\s|$)", line)
        if address is None:
            raise SystemExit(f"the server did not start: {line.strip()}")
        self.url = address.group()

    def start(self, name: str, module: str, *arguments: str) -> None:
        """Starts a consumer, which records the messages that it handles in a file of its name."""
        common = ["--url", self.url, "--consumer", name, "--folder", str(self.folder)]
        self._start(name, ["-m", module, *common, *arguments])

    def await_consumers(self) -> None:
        names = [name for name in self.processes if name != "server"]
        until(lambda: all((self.folder / f"{name}.jsonl").exists() for name in names), "consumers")

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=PATIENCE_SECONDS)
        if process.stdout is not None:
            process.stdout.close()

    def stop_consumers(self) -> None:
        names = [name for name in self.processes if name != "server"]
        for name in names:
            self.processes[name].send_signal(signal.SIGTERM)
        for name in names:
            self.stop(name)

    def stop_all(self) -> None:
        self.stop_consumers()
        if "server" in self.processes:
            self.stop("server")

    def _start(self, name: str, arguments: list[str], *, stdout: int | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, *arguments], stdout=stdout, text=True, env={**os.environ})
        self.processes[name] = process
        return process


def free_port() -> int:
    """Returns a port below those of outgoing connections: no other process gets it by chance while the server is
    down."""
    for port in _PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SystemExit(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free")


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits until the condition holds, at most ``PATIENCE_SECONDS``. Returns then as well: the accounts at the end
    report the messages that never came."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            print(f"gave up waiting: {what}", file=sys.stderr)
            return
        time.sleep(0.1)
