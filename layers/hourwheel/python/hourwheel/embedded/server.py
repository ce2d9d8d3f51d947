"""Serves the HTTP API on one machine until a signal stops the process."""

import asyncio
import errno
import gc
import os
import signal
import socket
import ssl
import sys
from contextlib import suppress

import uvloop

from hourwheel.embedded.application import Application
from hourwheel.embedded.credentials.access import PROBES
from hourwheel.embedded.credentials.tls import server_context
from hourwheel.embedded.http.bounds import Bounds, connection_cap
from hourwheel.embedded.http.connection import Connection
from hourwheel.embedded.http.registry import ConnectionRegistry
from hourwheel.embedded.http.secure import Secure
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.embedded.systemd import Systemd
from hourwheel.errors import HourwheelError

_BACKLOG = 2_048  # after a restart many clients connect at once
_FAREWELL_SECONDS = 0.3  # the time for the answers to pulls whose wait a stop has ended
_COLLECTED_OBJECTS = 10_000
"""The garbage collector runs after this many new objects. A batch of a thousand messages creates thousands, and few of
them are part of a cycle. With Python's default of 700 the collector took a sixth of the time of such a batch."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(options: ServeOptions) -> int:
    """Serves until SIGTERM or SIGINT, then finishes the requests in flight.

    Returns the exit status: 0, or 1 after a line on stderr when the server could not start. Called on the main thread.
    """
    try:
        security = _security(options)
        systemd = Systemd()
        listener = _listen(options)
    except ValueError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"cannot listen on {options.host} port {options.port}: {_reason(error)}{_advice(error)}")
    with listener:
        try:
            runtime = Runtime(options)
        except (HourwheelError, OSError) as error:
            # The error of a file names it: the file may be in the directory of another cell.
            at_fault = getattr(error, "filename", None) or options.data
            return _refuse(f"cannot open {at_fault}: {_reason(error)}")
        except ValueError as error:
            return _refuse(str(error))
        try:
            _run(runtime, options, listener, security, systemd)
        finally:
            runtime.close()
    with suppress(BrokenPipeError):  # the reader may be gone; unbuffered, as Python would fail to flush at its exit
        os.write(sys.stdout.fileno(), b"hourwheel stopped\n")
    return 0


def _run(
    runtime: Runtime,
    options: ServeOptions,
    listener: socket.socket,
    security: ssl.SSLContext | None,
    systemd: Systemd,
) -> None:
    # sys.setswitchinterval keeps its default, because threads release the interpreter at each call into SQLite, long
    # before their interval ends. Between 5 ms and 0.02 ms, throughput (16 connections) and latency did not change.
    application = Application(runtime, options)
    if options.is_open and not options.is_loopback:
        sys.stderr.write(f"hourwheel: warning: anybody who reaches {options.host} can read and write\n")
    for name in runtime.unopened_cells():
        sys.stderr.write(
            f"hourwheel: warning: cell {name} is not opened, and its queues are out of reach:"
            f" start with --cell {name}=DIRECTORY\n"
        )
    runtime.start()
    # Modules and their objects stay until the end, so the garbage collector need not search them each time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECTED_OBJECTS)
    server = _Server(application, runtime, options, security, systemd)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.run(listener))


class _Server:
    def __init__(
        self,
        application: Application,
        runtime: Runtime,
        options: ServeOptions,
        security: ssl.SSLContext | None,
        systemd: Systemd,
    ) -> None:
        self._application = application
        self._runtime = runtime
        self._options = options
        self._security = security
        bounds = Bounds(
            request_seconds=options.body_seconds,
            held_bytes=options.max_held_mb << 20,
            connections_per_address=options.max_connections_per_address,
        )
        self._registry = ConnectionRegistry(bounds, connection_cap(options.max_connections), PROBES)
        runtime.wakeups.is_full = lambda: self._registry.is_full
        runtime.connections = lambda: len(self._registry.open)
        self._systemd = systemd
        self._stopped = asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        """Serves until a signal comes, then finishes the requests in flight."""
        loop = asyncio.get_running_loop()
        self._runtime.greenlets.attach(loop)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        listening = await self._listen(listener)
        watches = [asyncio.ensure_future(watch) for watch in (self._registry.watch(), self._systemd.show_life())]
        url = _url(self._options.host, listener, self._security)
        console = f"console: {url}/console/\n" if self._options.console else ""
        # One write for both lines: a program that has read the first line may close the output.
        sys.stdout.write(f"hourwheel listening on {url}, data in {self._options.data}\n{console}")
        sys.stdout.flush()
        self._systemd.notify("READY=1")
        await self._stopped.wait()
        self._systemd.notify("STOPPING=1")
        listening.close()
        await self._say_farewell()
        for watch in watches:
            watch.cancel()

    async def _listen(self, listener: socket.socket) -> asyncio.Server:
        loop = asyncio.get_running_loop()

        def connection() -> asyncio.Protocol:
            plain = Connection(self._registry, self._application.respond, self._application.plan)
            return plain if self._security is None else Secure(self._security, plain)

        return await loop.create_server(connection, sock=listener, backlog=_BACKLOG)

    def _stop(self) -> None:
        if self._stopped.is_set():
            # The second signal cuts the requests in flight.
            self._registry.abort()
        self._stopped.set()

    async def _say_farewell(self) -> None:
        """Ends the waits of pulls, and closes the connections.

        The next answer of each connection says that the connection ends: closing an idle one at once could cut a
        request that is on its way.
        """
        registry = self._registry
        registry.stopping = True
        self._runtime.wakeups.close()
        await registry.drained(_FAREWELL_SECONDS)
        registry.finish()
        if not await registry.drained(self._options.stop_seconds):
            registry.abort()
            await registry.drained(_FAREWELL_SECONDS)


def _security(options: ServeOptions) -> ssl.SSLContext | None:
    """Returns the TLS context, or None for plain HTTP. Raises ``ValueError`` for wrong files, and for a server without
    tokens that other machines could reach."""
    if options.is_open and not options.is_loopback and not options.insecure:
        raise ValueError(
            f"anybody who reaches {options.host} could read and write: give --token-file, or --insecure to allow it"
        )
    if options.tls_cert is None or options.tls_key is None:
        return None
    return server_context(options.tls_cert, options.tls_key)


def _listen(options: ServeOptions) -> socket.socket:
    addresses = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # "localhost" may resolve to both IPv4 and IPv6: more clients try IPv4 first.
    family, kind, protocol, _, address = min(addresses, key=lambda listed: listed[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # From here on no other process gets the port. The loop listens once more, with ``_BACKLOG``.
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


def _advice(error: OSError) -> str:
    return " (--port takes another one)" if error.errno == errno.EADDRINUSE else ""


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
