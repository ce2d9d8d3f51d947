"""Provides a server over loopback whose store fails at one call, or whose socket fails at one point of a request."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar, cast

import uvloop
from aws_lambda_powertools import Logger

from hourwheel.api.boundary import Boundary, log_line
from hourwheel.embedded.application import Application
from hourwheel.embedded.http.connection import Connection
from hourwheel.embedded.http.registry import ConnectionRegistry
from hourwheel.embedded.options import ServeOptions
from hourwheel.embedded.runtime import Runtime
from hourwheel.ports.storage import Store
from tests.unit.embedded.http.talking import LONG, quick

T = TypeVar("T")

READS = ("get", "get_many", "get_keys", "scan", "counter", "counters")
CALLS = (*READS, "add", "begin", "seal", "put", "delete", "trim")
HEAD, BODY, UNANSWERED, HALF_ANSWERED, ANSWERED = POINTS = (
    "within the head",
    "within the body",
    "before the answer",
    "within the answer",
    "behind the answer",
)
"""Where the socket of a request may fail."""


class Failure:
    """The failure of one call of a store: ``fails_at`` counts down to it. It comes before the call, or ``after`` it."""

    def __init__(self, store: Store) -> None:
        self.error: Exception = OSError()
        self.fails_at, self.after = 0, False
        hooked: Any = store
        transact = hooked.transact
        for name in READS:
            setattr(hooked, name, partial(self._made, getattr(hooked, name)))
        hooked.transact = lambda work: self._made(transact, lambda inner: work(_Session(inner, self)))

    @property
    def came(self) -> bool:
        return self.fails_at <= 0

    def _made(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        self.fails_at -= 1
        fails = self.fails_at == 0
        if fails and not self.after:
            raise self.error
        result = call(*arguments, **named)
        if fails:
            raise self.error
        return result


class _Session:
    """The store within a transaction, of which a call may fail too."""

    def __init__(self, store: Store, failure: Failure) -> None:
        self._store, self._failure = store, failure

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return partial(self._failure._made, found) if name in CALLS else found


class _Transport:
    """The server's end of a socket, which may fail when an answer is written."""

    def __init__(self, transport: asyncio.Transport, server: "FailingServer") -> None:
        self._transport, self._server = transport, server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        point = self._server.reached(UNANSWERED, HALF_ANSWERED, ANSWERED)
        if point == UNANSWERED:
            self._transport.abort()
            return
        self._transport.write(data[: len(data) // 2] if point == HALF_ANSWERED else data)
        if point:
            self._transport.close()


class _FailingConnection(Connection):
    server: "FailingServer"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("Any", _Transport(cast("asyncio.Transport", transport), self.server)))

    def data_received(self, data: bytes) -> None:
        point = self.server.reached(HEAD, BODY)
        if point:
            head = data.index(b"\r\n\r\n") + 4
            data = data[: head // 2 if point == HEAD else (head + len(data)) // 2]
        super().data_received(data)
        if point:
            self._transport.abort()


class FailingServer:
    """A server without background work. ``failure`` is that of its store; ``point`` is where the socket of the next
    request fails, and "" once it has failed."""

    def __init__(self, data: Path) -> None:
        options = ServeOptions(data=data, retry_seconds=0)
        self.runtime = Runtime(options)
        self._log = StringIO()
        logger = Logger(service=f"failing {data}", stream=self._log, json_serializer=log_line)
        self.runtime.boundary = Boundary(self.runtime.deployment, logger)
        self._application = Application(self.runtime, options)
        self.failure = Failure(self.runtime.deployment.context.store)
        self.point = ""
        self.statuses: list[int] = []

    @property
    def correlation_ids(self) -> list[str]:
        """The correlation ids of the lines that were logged."""
        return [json.loads(line)["correlation_id"] for line in self._log.getvalue().splitlines()]

    def reached(self, *points: str) -> str:
        """Returns the point at which the socket fails now, if it is one of these; "" otherwise."""
        point = self.point if self.point in points else ""
        if point:
            self.point = ""
        return point

    def serve(self, use: Callable[[str], Awaitable[None]]) -> None:
        """Serves while ``use`` runs, which gets the URL. Fails if a request is not answered, or a connection stays
        open."""

        async def run() -> None:
            loop = asyncio.get_running_loop()
            self.runtime.greenlets.attach(loop)
            registry = ConnectionRegistry(quick(), 100)

            def connection() -> Connection:
                made = _FailingConnection(registry, self._application.respond, self._application.plan)
                made.server = self
                return made

            listening = await loop.create_server(connection, "127.0.0.1", 0)
            watch = asyncio.ensure_future(registry.watch())
            try:
                async with asyncio.timeout(LONG):
                    await use("http://{}:{}".format(*listening.sockets[0].getsockname()))
                    await registry.drained(LONG)
                assert registry.busy == 0, "a request was never answered"
            finally:
                watch.cancel()
                listening.close()
                registry.abort()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
