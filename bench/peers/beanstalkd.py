"""Measures beanstalkd: put, and reserve with delete. It has no batches: each message is a request of its own."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any

from bench.peers.peer import Absent, Peer, Receiver, Sender, first_line, found, free_port, running


class _Sender:
    def __init__(self, client: Any) -> None:
        self._client = client

    def send(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._client.put(body)

    def send_later(self, bodies: Sequence[bytes], due: Sequence[float]) -> None:
        for body, at in zip(bodies, due, strict=True):
            self._client.put(body, delay=max(0, ceil(at - time.time())))  # it counts in whole seconds

    def close(self) -> None:
        self._client.close()


class _Receiver:
    def __init__(self, client: Any) -> None:
        self._client = client

    def take(self, most: int, wait_seconds: float) -> list[bytes]:
        import greenstalk

        taken: list[bytes] = []
        try:
            while len(taken) < most:
                job = self._client.reserve(timeout=0 if taken else ceil(wait_seconds))
                self._client.delete(job)
                taken.append(job.body)
        except greenstalk.TimedOutError:
            pass
        return taken

    def close(self) -> None:
        self._client.close()


class Beanstalkd:
    name = "beanstalkd"
    settings = "-b DIR -f 0: a sync for each write; no batches"

    def __init__(self, version: str, port: int) -> None:
        self.version, self._port = version, port

    def sender(self, queue: str) -> Sender:
        return _Sender(self._client(queue))

    def receiver(self, queue: str) -> Receiver:
        return _Receiver(self._client(queue))

    def _client(self, queue: str) -> Any:
        import greenstalk

        return greenstalk.Client(("127.0.0.1", self._port), use=queue, watch=queue, encoding=None)


@contextmanager
def opened(folder: Path) -> Iterator[Peer]:
    try:
        import greenstalk  # noqa: F401  # checks that it is installed
    except ImportError:
        raise Absent("its Python client is not installed (greenstalk)") from None
    program, port = found("beanstalkd", "Debian: beanstalkd"), free_port()
    version = first_line(program, "-v").split()[-1]
    command = [program, "-l", "127.0.0.1", "-p", str(port), "-b", str(folder), "-f", "0", "-s", str(64 << 20)]
    with running(command, port, folder.with_suffix(".log")):
        yield Beanstalkd(version, port)
