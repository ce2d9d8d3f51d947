"""Starts the other processes that the suite needs."""

import http.client
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from tests.ports import free_ports

HERE = Path(__file__).parent
START_SECONDS = 180.0
LOOK_AGAIN_SECONDS = 0.02


@contextmanager
def ministack(folder: Path) -> Iterator[str]:
    """Starts an engine on a free port of the loopback interface, and yields its endpoint."""
    (port,) = free_ports(1)
    settings = {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "IOT_MTLS_ENABLED": "0",  # it would listen on every interface, whatever BIND_HOST says
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "TMPDIR": str(folder),
    }
    log = folder / "ministack.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, str(HERE / "ministack_guarded.py")],
            env=os.environ | settings,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            _wait_until_ready(process, port, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = monotonic() + START_SECONDS
    while not _answers(port):
        try:
            process.wait(LOOK_AGAIN_SECONDS)
        except subprocess.TimeoutExpired:
            if monotonic() < deadline:
                continue
        raise RuntimeError(f"ministack did not start:\n{log.read_text()}")


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/_ministack/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class SqliteProcess:
    """A separate process that opens SQLite files and makes calls on them. Safe to share between threads."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "sqlite_process.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._lock = Lock()

    def call(self, path: Path, method: str, *args: Any, **kwargs: Any) -> Any:
        """Makes one call on the store of this file. Raises here the exception that the call raises there."""
        (answer,) = self.call_many(path, [(method, args, kwargs)])
        return answer

    def call_many(self, path: Path, calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        """Makes the calls one after the other, and answers once after the last one."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            pickle.dump((str(path), calls), self._process.stdin)
            self._process.stdin.flush()
            raised, answer = pickle.load(self._process.stdout)
        if raised:
            raise answer
        return list(answer)

    def close(self) -> None:
        with self._process as process:  # the process ends at the end of its input
            assert process.stdin is not None
            process.stdin.close()

    def kill(self) -> None:
        self._process.kill()
        self.close()
