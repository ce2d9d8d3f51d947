"""Measures Redis Streams: XADD, and XREADGROUP with XACK."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.peers.peer import Absent, NoDelays, Peer, Receiver, Sender, first_line, found, free_port, running

_GROUP = "bench"


class _Sender:
    def __init__(self, client: Any, queue: str) -> None:
        self._client, self._queue = client, queue

    def send(self, bodies: Sequence[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._queue, {"b": body})
        pipeline.execute()

    def send_later(self, bodies: Sequence[bytes], due: Sequence[float]) -> None:
        raise NoDelays

    def close(self) -> None:
        self._client.close()


class _Receiver:
    def __init__(self, client: Any, queue: str) -> None:
        self._client, self._queue, self._name = client, queue, uuid4().hex

    def take(self, most: int, wait_seconds: float) -> list[bytes]:
        block_ms = int(wait_seconds * 1_000) or None
        answer = self._client.xreadgroup(_GROUP, self._name, {self._queue: ">"}, count=most, block=block_ms)
        if not answer:
            return []
        entries = answer[self._queue.encode()][0] if isinstance(answer, dict) else answer[0][1]
        self._client.xack(self._queue, _GROUP, *(number for number, _ in entries))
        return [fields[b"b"] for _, fields in entries]

    def close(self) -> None:
        self._client.close()


class RedisStreams:
    name = "Redis Streams"
    settings = "appendonly yes, appendfsync always; a batch is a pipeline"

    def __init__(self, version: str, port: int) -> None:
        self.version, self._port = version, port

    def sender(self, queue: str) -> Sender:
        return _Sender(self._client(queue), queue)

    def receiver(self, queue: str) -> Receiver:
        return _Receiver(self._client(queue), queue)

    def _client(self, queue: str) -> Any:
        import redis

        client = redis.Redis(port=self._port)
        with suppress(redis.ResponseError):  # the group exists
            client.xgroup_create(queue, _GROUP, id="0", mkstream=True)
        return client


@contextmanager
def opened(folder: Path) -> Iterator[Peer]:
    try:
        import redis  # noqa: F401  # checks that it is installed
    except ImportError:
        raise Absent("its Python client is not installed (redis)") from None
    program, port = found("redis-server", "Debian: redis-server"), free_port()
    version = first_line(program, "--version").split("v=")[1].split()[0]
    options = {"port": port, "bind": "127.0.0.1", "dir": folder, "appendonly": "yes", "appendfsync": "always"}
    command = [program, "--save", "", *(text for name, value in options.items() for text in (f"--{name}", str(value)))]
    with running(command, port, folder / "log"):
        yield RedisStreams(version, port)
