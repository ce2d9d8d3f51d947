"""Runs ``hourwheel console`` until a signal stops it."""

import asyncio
import signal
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import urlsplit

from hourwheel.client.errors import AnswerError, from_answer
from hourwheel.client.transport.connections import Connections
from hourwheel.client.transport.endpoint import Endpoint
from hourwheel.client.transport.signing import Signer
from hourwheel.console.costs import CALL_USD, READ_USD
from hourwheel.console.settings import ConsoleSettings
from hourwheel.embedded.browser.proxy import ConsoleProxy, Upstream, UpstreamCall
from hourwheel.embedded.http.bounds import Bounds
from hourwheel.embedded.http.connection import Connection
from hourwheel.embedded.http.registry import ConnectionRegistry

_HOST = "127.0.0.1"  # no other machine may reach a port that acts with the user's rights
_CONNECTIONS = 64  # enough for the tabs of one person: a browser opens six connections for each
_TIMEOUT_SECONDS = 35.0  # longer than the gateway of AWS waits for a function
_STOP_SECONDS = 2.0  # a person who pressed Ctrl-C waits for answers that are under way


@dataclass(frozen=True, kw_only=True)
class Console:
    """Holds the settings of ``hourwheel console``: the deployment that it shows, and the token or signer with which it
    makes calls. ``port=0`` takes a free port."""

    url: str
    endpoint: Endpoint
    token: str | None
    signer: Signer | None
    port: int
    read_only: bool
    secret: str

    @property
    def settings(self) -> ConsoleSettings:
        aws = self.signer is not None
        return ConsoleSettings(
            title=urlsplit(self.url).netloc.rpartition("@")[2],
            read_only=self.read_only,
            passes_on=True,
            aws=aws,
            call_usd=CALL_USD if aws else 0.0,
            read_usd=READ_USD if aws else 0.0,
        )


def serve_console(console: Console, *, opened: Callable[[str], None], warn: Callable[[AnswerError], None]) -> None:
    """Serves the console on loopback until SIGTERM or SIGINT. Called on the main thread.

    Calls ``opened`` with the address as soon as it is served. Then makes one call of the deployment, and calls ``warn``
    with the error if the call fails; the console goes on, and works once the reason is gone. Raises ``OSError`` for a
    port that cannot be taken.
    """
    with socket.socket() as listener, closing(_connections(console)) as connections:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, console.port))
        listener.listen()
        port = listener.getsockname()[1]
        upstream = Upstream(console.endpoint, connections, token=console.token, signer=console.signer)
        with closing(ConsoleProxy(upstream, console.settings, port=port, secret=console.secret)) as proxy:
            opened_here = f"http://{_HOST}:{port}/console/#secret={console.secret}"
            asyncio.run(_serve(proxy, upstream, listener, lambda: opened(opened_here), warn))


def _connections(console: Console) -> Connections:
    return Connections(console.endpoint, timeout_seconds=_TIMEOUT_SECONDS)


async def _serve(
    proxy: ConsoleProxy,
    upstream: Upstream,
    listener: socket.socket,
    opened: Callable[[], None],
    warn: Callable[[AnswerError], None],
) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    registry = ConnectionRegistry(Bounds(), _CONNECTIONS)
    server = await loop.create_server(lambda: Connection(registry, proxy.respond), sock=listener)
    watch = asyncio.ensure_future(registry.watch())
    opened()
    trying = asyncio.ensure_future(_try(upstream, warn))
    await stopped.wait()
    server.close()
    trying.cancel()
    watch.cancel()
    registry.stopping = True
    registry.finish()
    if not await registry.drained(_STOP_SECONDS):
        registry.abort()


async def _try(upstream: Upstream, warn: Callable[[AnswerError], None]) -> None:
    """Makes a call that every token allows, so that a missing token is reported before a person opens the page."""
    try:
        reply = await asyncio.to_thread(upstream.exchange, UpstreamCall("GET", "/v1/subjects?limit=1"))
        if reply.status >= 400:
            raise from_answer(reply.status, reply.body, retry_after=reply.retry_after)
    except AnswerError as error:
        warn(error)
