"""Connects Kombu with a server of Hourwheel."""

import functools
import os
import time
from typing import Any

from kombu.transport import virtual

from hourwheel import __version__
from hourwheel.apps.celery import producers
from hourwheel.apps.celery.bell import Bell
from hourwheel.apps.celery.channel import Channel
from hourwheel.apps.celery.options import DEFAULT_PORT, options_of, server_of
from hourwheel.apps.celery.state import state_of
from hourwheel.apps.celery.topology import Topology
from hourwheel.client.api import Api
from hourwheel.client.errors import ClientError, Closed, ServerUnavailable
from hourwheel.client.producing.producer import Producer
from hourwheel.system import SystemClock, SystemIds

_CONNECT_SECONDS = 5.0  # a worker that starts without a server should say so soon
_MOST_AT_ONCE = 100  # then the event loop of the worker has its turn, for timers and heartbeats
_TURN_SECONDS = 0.005  # bounds a turn too: a pool without processes runs each task while it is handed out


class Transport(virtual.Transport):
    """Implements a connection of Kombu to a server. ``options`` are those of ``broker_transport_options``.

    Raises:
        ValueError: a transport option has a wrong value.
        ClientError: requests are to be signed, and botocore is not installed.
    """

    Channel = Channel
    driver_type = "hourwheel"
    driver_name = "hourwheel"
    default_port = DEFAULT_PORT
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )
    connection_errors = (*virtual.Transport.connection_errors, ServerUnavailable, Closed)
    channel_errors = (*virtual.Transport.channel_errors, ClientError)
    recoverable_connection_errors = (ServerUnavailable, Closed)
    recoverable_channel_errors = ()

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.options = options_of(client.transport_options)
        self.ids = SystemIds()
        self.clock = SystemClock()
        self.bell = Bell()
        server = server_of(client, self.options)
        options = self.options
        self.state = state_of(server.url, options.queue_name_prefix)
        self._settings = producers.ProducerSettings(
            url=server.url,
            token=server.token,
            ca_file=options.ca_file,
            sign=options.sign,
            region=options.region,
            delivery_timeout_seconds=options.publish_timeout,
        )
        self.connect = functools.partial(
            Api,
            server.url,
            token=server.token,
            ca_file=options.ca_file,
            sign=options.sign,
            region=options.region,
            ids=self.ids,
        )
        self._producer: Producer | None = None
        self._api: Api | None = None
        self._open = False

    @property
    def topology(self) -> Topology:
        return Topology(self.api, self.state, self.options, _process_token())

    @property
    def producer(self) -> Producer:
        if self._producer is None:
            self._producer = producers.acquire(self._settings)
        return self._producer

    def establish_connection(self) -> Any:
        """Asks the server for its health. Raises ``ServerUnavailable`` where none answers."""
        with self.connect(retry_seconds=0, timeout_seconds=self.client.connect_timeout or _CONNECT_SECONDS) as api:
            api.health()
        self._open = True
        return super().establish_connection()

    def verify_connection(self, connection: Any) -> bool:
        return self._open

    def close_connection(self, connection: Any) -> None:
        self._open = False
        super().close_connection(connection)
        self.bell.close()
        if self._producer is not None:
            self._producer = None
            producers.release(self._settings)
        if self._api is not None:
            self._api.close()
            self._api = None

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hands out one message. Raises ``socket.timeout`` where none comes in time."""
        give_up_at = None if timeout is None else time.monotonic() + timeout
        while not self._deliver_some(1):
            self.bell.hush()
            if self._deliver_some(1):  # it may have come just before the hush
                return
            left_seconds = None if give_up_at is None else give_up_at - time.monotonic()
            if left_seconds is not None and left_seconds <= 0:
                raise TimeoutError("no message came in time")  # socket.timeout is the same class
            self.bell.wait(left_seconds)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        loop.add_reader(self.bell.fileno(), self._on_bell)
        self.bell.ring()  # for messages that came before the loop watched

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        loop.remove_reader(self.bell.fileno())

    def driver_version(self) -> str:
        return __version__

    def _on_bell(self) -> None:
        """Hands out messages for ``_TURN_SECONDS`` at most, and rings again if more may wait: in between, the event
        loop handles signals and the results of the pool."""
        self.bell.hush()
        until = time.monotonic() + _TURN_SECONDS
        for _ in range(_MOST_AT_ONCE):
            if not self._deliver_some(1):
                return
            if time.monotonic() >= until:
                break
        self.bell.ring()

    def _deliver_some(self, most: int) -> int:
        count = 0
        for channel in list(self.channels):
            count += channel.deliver(most - count)
            if count >= most:
                break
        return count

    @property
    def api(self) -> Api:
        if self._api is None:
            self._api = self.connect(retry_seconds=self.options.publish_timeout)
        return self._api


# By process: a worker that was forked needs a token of its own.
@functools.cache
def _token_of(pid: int) -> str:
    return SystemIds().token().hex()[:8]


def _process_token() -> str:
    return _token_of(os.getpid())
