"""Measures this queue, through its Python client."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.peers.peer import Peer, Receiver, Sender
from bench.serving import serving
from hourwheel import __version__
from hourwheel.client import Api, Message, Producer, Settlement


class _Sender:
    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def send(self, bodies: Sequence[bytes]) -> None:
        self._producer.send_batch([body.decode() for body in bodies])

    def send_later(self, bodies: Sequence[bytes], due: Sequence[float]) -> None:
        times = [datetime.fromtimestamp(at, UTC) for at in due]
        self._producer.send_batch(
            [Message(body.decode(), deliver_at=at) for body, at in zip(bodies, times, strict=True)]
        )

    def close(self) -> None:
        pass  # all callers share the producer of the peer


class _Receiver:
    """Settles a pull with the next one, and at the end."""

    def __init__(self, url: str, queue: str) -> None:
        self._api, self._queue = Api(url), queue
        self._held: list[Settlement] = []

    def take(self, most: int, wait_seconds: float) -> list[bytes]:
        options = {"max_messages": most, "wait_seconds": wait_seconds, "settle": self._held}
        answer = self._api.pull(self._queue, "bench", consumer=str(id(self)), **options)
        self._held = [Settlement(receipt=pull.receipt) for pull in answer.pulls]
        return [str(message.body).encode() for pull in answer.pulls for message in pull.messages]

    def close(self) -> None:
        if self._held:
            self._api.settle(self._queue, "bench", self._held)
        self._api.close()


class Hourwheel:
    name = "Hourwheel"
    settings = "as it comes: a sync before each answer; one Producer for all senders"

    def __init__(self, url: str) -> None:
        self.version, self._url = __version__, url
        self._producers: dict[str, Producer] = {}

    def sender(self, queue: str) -> Sender:
        if queue not in self._producers:
            self._producers[queue] = Producer(self._url, subject=queue)
        return _Sender(self._producers[queue])

    def receiver(self, queue: str) -> Receiver:
        return _Receiver(self._url, queue)

    def close(self) -> None:
        for producer in self._producers.values():
            producer.close()


@contextmanager
def opened(folder: Path) -> Iterator[Peer]:
    with serving() as served:
        peer = Hourwheel(served.url)
        try:
            yield peer
        finally:
            peer.close()
