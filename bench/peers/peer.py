"""Declares what each peer offers to the measurements, and starts and stops its server."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

_START_SECONDS = 30


class Absent(Exception):
    """Says in a sentence why a peer cannot be measured here."""


class NoDelays(Exception):
    """The peer has no delayed messages."""


class Sender(Protocol):
    """One connection that sends. For one thread."""

    def send(self, bodies: Sequence[bytes]) -> None:
        """Sends the messages, and returns once all of them are durable."""
        ...

    def send_later(self, bodies: Sequence[bytes], due: Sequence[float]) -> None:
        """Sends messages that nobody may get before these times (seconds since 1970). Raises ``NoDelays``
        where the peer has no delayed messages."""
        ...

    def close(self) -> None: ...


class Receiver(Protocol):
    """One connection that receives. For one thread."""

    def take(self, most: int, wait_seconds: float) -> list[bytes]:
        """Receives up to ``most`` messages and acknowledges them, durably before the next call returns. Waits for the
        first one."""
        ...

    def close(self) -> None: ...


class Peer(Protocol):
    """A server that runs. ``settings`` says in a phrase what makes it durable."""

    name: str
    version: str
    settings: str

    def sender(self, queue: str) -> Sender: ...

    def receiver(self, queue: str) -> Receiver: ...


Opened: TypeAlias = Callable[[Path], contextlib.AbstractContextManager[Peer]]
"""Starts a peer on an empty folder; raises ``Absent``."""


def found(program: str, package: str) -> str:
    """Returns the path of a program: one beside this Python first."""
    beside = Path(sys.executable).with_name(program)
    path = str(beside) if beside.exists() else shutil.which(program)
    if path is None:
        raise Absent(f"{program} is not installed ({package})")
    return path


def first_line(*command: str) -> str:
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return (answer.stdout or answer.stderr).splitlines()[0]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def await_port(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Waits until the server listens. Raises ``Absent`` with the end of its log if it has ended."""
    until = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None or time.monotonic() > until:
            raise Absent(f"it did not start: {' '.join(log.read_text(errors='replace').split()[-30:])}")
        time.sleep(0.05)


@contextmanager
def running(
    command: Sequence[str], port: int, log: Path, *, user: str | None = None, env: dict[str, str] | None = None
) -> Iterator[None]:
    """Runs a server as long as the block lasts, in a session of its own, so that its children end with it."""
    with ExitStack() as stack, log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user if os.geteuid() == 0 else None,
            env=None if env is None else {**os.environ, **env},
        )
        stack.callback(_end, process)
        await_port(port, process, log)
        yield


def _end(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
