"""``serve``: the HTTP API on one machine, until the process is told to stop."""

import asyncio
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from hourwheel.embedded.application import Application
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.protocol import Protocol
from hourwheel.embedded.runtime import Runtime
from hourwheel.embedded.tls import server_context
from hourwheel.errors import HourwheelError

_KEEP_ALIVE_SECONDS = 75
_FAREWELL_SECONDS = 0.3
_HANDSHAKE_SECONDS = 10.0
_GOODBYE_SECONDS = 1.0
"""Clients with an idle connection do not answer the end of TLS, and a server that stops would wait for them."""
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(options: ServeOptions) -> int:
    """Serves until SIGTERM or SIGINT, then finishes what is in flight. The exit status: 0, or 1 with a line on
    stderr when it could not start. Only from the main thread."""
    try:
        security = _security(options)
        listener = _listen(options)
    except ValueError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"cannot listen on {options.host} port {options.port}: {_reason(error)}")
    with listener:
        try:
            runtime = Runtime(options)
        except (HourwheelError, OSError) as error:
            return _refuse(f"cannot open {options.data}: {_reason(error)}")
        except ValueError as error:
            return _refuse(str(error))
        try:
            _run(runtime, options, listener, security)
        finally:
            runtime.close()
    return 0


def _run(runtime: Runtime, options: ServeOptions, listener: socket.socket, security: ssl.SSLContext | None) -> None:
    # sys.setswitchinterval stays as it is: threads give up the interpreter at each call into SQLite, long before their
    # time is over. From 5 ms down to 0.02 ms neither throughput (16 connections) nor latency moved beyond the noise.
    application = Application(runtime, options)
    if options.is_open and not options.is_loopback:
        sys.stderr.write(f"hourwheel: warning: anybody who reaches {options.host} can read and write\n")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    config = uvicorn.Config(
        application,
        http=Protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=options.stop_seconds,
    )
    runtime.start()
    where = f"{_url(options.host, listener, security)}, data in {options.data}"
    _Server(config, application, runtime, where, security).run([listener])


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        application: Application,
        runtime: Runtime,
        where: str,
        security: ssl.SSLContext | None,
    ) -> None:
        super().__init__(config)
        self._security = security
        self._application = application
        self._runtime = runtime
        self._where = where
        self._farewell: asyncio.Task[None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._runtime.fibres.attach(asyncio.get_running_loop())
        if self._security is None or sockets is None:
            await super().startup(sockets)
        else:
            await super().startup([])
            self.servers = [await self._listen_securely(listener, self._security) for listener in sockets]
        sys.stdout.write(f"hourwheel listening on {self._where}\n")
        sys.stdout.flush()

    async def _listen_securely(self, listener: socket.socket, security: ssl.SSLContext) -> asyncio.Server:
        """Listens with bounds of our own: uvicorn grants a silent client a minute for the handshake."""

        def protocol() -> Protocol:
            return Protocol(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

        return await asyncio.get_running_loop().create_server(
            protocol,
            sock=listener,
            ssl=security,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=_GOODBYE_SECONDS,
            backlog=self.config.backlog,
        )

    def _stop(self) -> None:
        if self._farewell is None:
            self._farewell = asyncio.ensure_future(self._say_farewell())
        else:
            # Asked a second time: what is under way is cut.
            self.should_exit = self.force_exit = True

    async def _say_farewell(self) -> None:
        """Takes no more connections and ends the waits of pulls. Clients that are at work learn from their next answer
        that the connection ends: closing an idle one could cut a request that is on its way."""
        for server in self.servers:
            server.close()
        self._application.stopping = True
        self._runtime.arrivals.close()
        deadline = asyncio.get_running_loop().time() + _FAREWELL_SECONDS
        while self.server_state.connections and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        self.should_exit = True


def _security(options: ServeOptions) -> ssl.SSLContext | None:
    """TLS, if the options ask for it. Raises ``ValueError`` where its files, or serving everybody, are wrong."""
    if options.is_open and not options.is_loopback and not options.insecure:
        raise ValueError(
            f"anybody who reaches {options.host} could read and write: give --token-file, or --insecure to allow it"
        )
    if options.tls_cert is None or options.tls_key is None:
        return None
    return server_context(options.tls_cert, options.tls_key)


def _listen(options: ServeOptions) -> socket.socket:
    found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # "localhost" may stand for both: clients try the older one more often.
    family, kind, protocol, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # From here on the port is ours; uvicorn listens again with its own backlog.
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def _url(host: str, listener: socket.socket, security: ssl.SSLContext | None) -> str:
    scheme = "http" if security is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _refuse(reason: str) -> int:
    sys.stderr.write(f"hourwheel: {reason}\n")
    return 1


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
