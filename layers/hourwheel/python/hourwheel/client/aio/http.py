"""Makes calls from the tasks of an event loop, and retries them while the server is unavailable."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hourwheel.client.aio.connections import AsyncConnections
from hourwheel.client.errors import AnswerError, BadRequest, ServerUnavailable
from hourwheel.client.in_process import AsyncExchange, AwaitedExchange, server_at
from hourwheel.client.transport.codec import Call, HttpRequest, MsgpackAnswer, Tries
from hourwheel.client.transport.endpoint import Endpoint, closed
from hourwheel.client.transport.http import begin
from hourwheel.client.transport.signing import Sign
from hourwheel.ports.machine import Ids

if TYPE_CHECKING:
    from hourwheel.client.transport.urls import FrontUrls

T = TypeVar("T")


class AsyncHttp:
    """Makes calls to one server, as ``Http`` does. ``call`` returns a coroutine."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None,
        ca_file: str | os.PathLike[str] | None,
        sign: Sign | None,
        region: str | None,
        timeout_seconds: float,
        retry_seconds: float,
        ids: Ids,
    ) -> None:
        endpoint, self._codec, self._urls = begin(url, token=token, ca_file=ca_file, sign=sign, region=region)
        self._connections = _connected(url, endpoint, self._urls, timeout_seconds)
        self._retry_seconds = retry_seconds
        self._ids = ids
        self.host = endpoint.host
        self.signer = self._codec.signer
        """Signs the requests; None where they are not signed."""
        self._closing = asyncio.Event()

    async def call(
        self,
        method: str,
        target: str,
        answer: msgspec.json.Decoder[T],
        *,
        body: Any = None,
        safe: bool = True,
        wait_seconds: float = 0.0,
        retry_seconds: float | None = None,
        msgpack: MsgpackAnswer[T] | None = None,
        then: Callable[[T], Any] | None = None,
        refused: Callable[[AnswerError], Any] | None = None,
        repeated: bool = False,
    ) -> Any:
        """Makes a ``Call`` and returns the typed answer. ``Http.call`` describes the arguments and the errors."""
        if self._urls is not None and not self._urls.complete:
            await self._find_endpoints(self._urls)
        call = Call(method, target, answer, body, wait_seconds, msgpack, then, refused, repeated)
        seconds = self._retry_seconds if retry_seconds is None else retry_seconds
        request = self._codec.request(call)
        try:
            return await self._answer(call, request, safe, seconds)
        except BadRequest as error:
            request = self._codec.instead(call, request, error)
        return await self._answer(call, request, safe, seconds)

    async def close(self) -> None:
        """Closes the connections. Calls under way, also those that wait for a retry, raise ``Closed``."""
        self._closing.set()
        await self._connections.close()

    async def _find_endpoints(self, urls: "FrontUrls") -> None:
        from hourwheel.client.transport.urls import ENDPOINTS, ENDPOINTS_ANSWER

        call: Call[Any] = Call("GET", ENDPOINTS, ENDPOINTS_ANSWER, None, 0.0, None, None, None)
        urls.learn(await self._answer(call, self._codec.request(call), True, self._retry_seconds))

    async def _answer(self, call: Call[Any], request: HttpRequest, safe: bool, retry_seconds: float) -> Any:
        tries = Tries(self._ids, safe=safe, give_up_at=time.monotonic() + retry_seconds)
        while True:
            try:
                return await self._once(call, request)
            except ServerUnavailable as error:
                pause = tries.pause_seconds(error, time.monotonic())
                if pause is None:
                    raise
                if await self._closing_within(pause):
                    raise closed() from error
                request = request.repeated()

    async def _closing_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._closing.wait()
        except TimeoutError:
            return False

    async def _once(self, call: Call[Any], request: HttpRequest) -> Any:
        method, target, data, headers = request
        signed: dict[str, str] = {}
        if self._codec.signer is not None:
            # In a thread: the source of the credentials may take seconds to answer.
            signed = await asyncio.to_thread(self._codec.signature, request)
        reply = await self._connections.exchange(
            method, target, data, {**headers, **signed}, extra_seconds=call.wait_seconds
        )
        return self._codec.answer(call, request, signed, reply)


def _connected(url: str, endpoint: Endpoint, urls: "FrontUrls | None", timeout_seconds: float) -> AsyncExchange:
    if urls is not None:
        from hourwheel.client.transport.urls import AsyncUrlConnections

        return AsyncUrlConnections(urls, lambda front: AsyncConnections(front, timeout_seconds=timeout_seconds))
    server = server_at(url)
    if server is not None:
        return AwaitedExchange(server.connect())
    return AsyncConnections(endpoint, timeout_seconds=timeout_seconds)
