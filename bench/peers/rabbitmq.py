"""Measures RabbitMQ: quorum queues with publisher confirms."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.peers.peer import Absent, NoDelays, Peer, Receiver, Sender, found, free_port, running

_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def _parameters(port: int) -> Any:
    import pika

    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)


class _Sender:
    """Publishes without waiting, then waits until the broker has confirmed every message."""

    def __init__(self, port: int, queue: str) -> None:
        import pika

        self._queue = queue
        self._open: set[int] = set()
        self._last = 0
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._connection = pika.SelectConnection(
            _parameters(port), on_open_callback=self._opened, on_close_callback=lambda closed, _: closed.ioloop.stop()
        )
        self._connection.ioloop.start()

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._prepare)

    def _prepare(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._connection.ioloop.stop())

    def _confirmed(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        self._open -= {number for number in self._open if number <= tag} if frame.method.multiple else {tag}
        if not self._open:
            self._connection.ioloop.stop()

    def send(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._last += 1
            self._open.add(self._last)
            self._channel.basic_publish("", self._queue, body, self._properties)
        self._connection.ioloop.start()

    def send_later(self, bodies: Sequence[bytes], due: Sequence[float]) -> None:
        raise NoDelays

    def close(self) -> None:
        self._connection.close()
        self._connection.ioloop.start()  # until the broker has answered


class _Receiver:
    def __init__(self, port: int, queue: str) -> None:
        import pika

        self._queue = queue
        self._connection = pika.BlockingConnection(_parameters(port))
        self._channel = self._connection.channel()
        self._most = 0

    def take(self, most: int, wait_seconds: float) -> list[bytes]:
        if most != self._most:
            self._most = most
            self._channel.basic_qos(prefetch_count=2 * most)
        taken: list[bytes] = []
        last = 0
        for method, _, body in self._channel.consume(self._queue, inactivity_timeout=max(wait_seconds, 0.2)):
            if method is None:
                break
            taken.append(body)
            last = method.delivery_tag
            if len(taken) == most or not self._channel.get_waiting_message_count():
                break
        if taken:
            self._channel.basic_ack(last, multiple=True)
        return taken

    def close(self) -> None:
        self._connection.close()


class RabbitMq:
    name = "RabbitMQ"
    settings = "quorum queues, publisher confirms; acknowledgements of consumers are not confirmed"

    def __init__(self, version: str, port: int) -> None:
        self.version, self._port = version, port

    def sender(self, queue: str) -> Sender:
        self._declare(queue)
        return _Sender(self._port, queue)

    def receiver(self, queue: str) -> Receiver:
        self._declare(queue)
        return _Receiver(self._port, queue)

    def _declare(self, queue: str) -> None:
        import pika

        connection = pika.BlockingConnection(_parameters(self._port))
        connection.channel().queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        connection.close()


@contextmanager
def opened(folder: Path) -> Iterator[Peer]:
    try:
        import pika
    except ImportError:
        raise Absent("its Python client is not installed (pika)") from None
    if not _PROGRAM.exists():
        raise Absent("rabbitmq-server is not installed (Debian: rabbitmq-server)")
    epmd_port, port = free_port(), free_port()
    loopback = {"ERL_EPMD_PORT": str(epmd_port), "ERL_EPMD_ADDRESS": "127.0.0.1"}
    env = {
        **loopback,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "settings"),
    }
    with (
        running([found("epmd", "Debian: erlang-base")], epmd_port, folder / "epmd.log", env=loopback),
        running([str(_PROGRAM)], port, folder / "log", env=env),
    ):
        connection = pika.BlockingConnection(_parameters(port))
        version = str(connection._impl.server_properties["version"])
        connection.close()
        yield RabbitMq(version, port)
