"""Makes calls from the tasks of an event loop, and retries them while the server is unavailable."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from hourwheel.client.aio.connections import AsyncConnections
from hourwheel.client.errors import BadRequest, ServerUnavailable
from hourwheel.client.in_process import AwaitedExchange, InProcessServer
from hourwheel.client.transport.codec import Call, HttpRequest
from hourwheel.client.transport.endpoint import Endpoint, closed
from hourwheel.client.transport.http import HttpCalls
from hourwheel.client.transport.steps import Steps, awaited

T = TypeVar("T")


class AsyncHttp(HttpCalls):
    """Makes calls to one server, as ``Http`` does. ``call`` returns a coroutine."""

    async def close(self) -> None:
        """Closes the connections. Calls under way, also those that wait for a retry, raise ``Closed``."""
        self._closing.set()
        await self._connections.close()

    async def _send(self, call: Call[Any], safe: bool, retry_seconds: float) -> Any:
        if self._urls is not None and (lookup := self._urls.lookup_before(call)) is not None:
            await self._send(lookup, True, self._retry_seconds)
        tries = self._tries(call, safe, retry_seconds)
        while True:
            try:
                return await self._once(call, tries.request)
            except (ServerUnavailable, BadRequest) as error:
                if await self._closing_within(tries.pause_seconds(error, time.monotonic())):
                    raise closed() from error

    async def _once(self, call: Call[Any], request: HttpRequest) -> Any:
        method, target, data, headers = request
        signed: dict[str, str] = {}
        if self.signer is not None:
            # In a thread: the source of the credentials may take seconds to answer.
            signed = await asyncio.to_thread(self._codec.signature, request)
        reply = await self._connections.exchange(
            method, target, data, {**headers, **signed}, extra_seconds=call.wait_seconds
        )
        return self._codec.answer(call, request, signed, reply)

    async def _closing_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
                return True
        except TimeoutError:
            return False

    def _run(self, steps: Steps[T]) -> Coroutine[Any, Any, T]:
        return awaited(steps)

    def _new_event(self) -> asyncio.Event:
        return asyncio.Event()

    def _connect(self, endpoint: Endpoint) -> AsyncConnections:
        return AsyncConnections(endpoint, timeout_seconds=self._timeout_seconds)

    def _connect_in_process(self, server: InProcessServer) -> AwaitedExchange:
        return AwaitedExchange(server.connect())
