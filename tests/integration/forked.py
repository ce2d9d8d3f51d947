"""Forks the processes of servers from one that has imported everything; see ``launch``."""

import atexit
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from io import FileIO
from pathlib import Path
from time import monotonic
from typing import Any

LAUNCH = Path(__file__).with_name("launch.py")


class ForkedProcess:
    """A server, with what the tests use of ``subprocess.Popen``. Its output is read without a buffer here."""

    def __init__(self, **request: Any) -> None:
        self.returncode: int | None = None
        self._output: tuple[str, str] | None = None
        ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
        try:
            socket.send_fds(_launcher(), [json.dumps(request).encode()], theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self.stdout, self.stderr, self._status = map(FileIO, ours)
        self.pid = int(self._status.readline())

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(self._status.readline())
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """Waits for the end of the server: what was left of its output, at any later call too. Raises
        ``subprocess.TimeoutExpired``."""
        if self._output is None:
            stdout, stderr, status = read_all([self.stdout, self.stderr, self._status], timeout)
            if self.returncode is None:
                self.returncode = int(status)
            self._output = stdout.decode(), stderr.decode()
            self.close()
        return self._output

    def close(self) -> None:
        for file in (self.stdout, self.stderr, self._status):
            file.close()


def read_all(files: Sequence[FileIO], timeout: float) -> list[bytes]:
    """Returns the output of each of these until its end. Raises ``subprocess.TimeoutExpired``."""
    deadline = monotonic() + timeout
    found = dict.fromkeys(files, b"")
    with selectors.DefaultSelector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ, file)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - monotonic()))
            if not ready:
                raise subprocess.TimeoutExpired("hourwheel serve", timeout, b"".join(found.values()))
            for key, _ in ready:
                data = os.read(key.fd, 65_536)
                found[key.data] += data
                if not data:
                    selector.unregister(key.fileobj)
    return list(found.values())


@cache
def _launcher() -> socket.socket:
    """Returns the connection to the process that is forked, which ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-W", "error", str(LAUNCH)]
    with theirs:
        process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.DEVNULL)
    with ExitStack() as stack:
        stack.enter_context(process)
        stack.enter_context(ours)
        atexit.register(stack.pop_all().close)
    return ours
