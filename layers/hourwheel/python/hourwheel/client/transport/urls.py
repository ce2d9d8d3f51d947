"""Finds the URL of each function, for a deployment that has function URLs in place of an API.

A client is given the URL of the function ``meta``, whose answer to ``GET /v1/endpoints`` names the other URLs.
"""

import os
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from hourwheel.client.in_process import AsyncExchange, Exchange
from hourwheel.client.transport.endpoint import Endpoint, Reply, closed

E = TypeVar("E", Exchange, AsyncExchange)

ENDPOINTS = "/v1/endpoints"
ENDPOINTS_ANSWER = msgspec.json.Decoder(dict[str, str])

_META = "meta"
_FUNCTIONS = {"messages": "produce", "pull": "pull", "ack": "ack"}
"""The function that serves a POST, by the last part of its path. ``meta`` serves all other requests."""


class FrontUrls:
    """Knows the URLs of the functions: at first that of ``meta`` alone, all once it is ``complete``."""

    def __init__(self, url: str, *, ca_file: str | os.PathLike[str] | None) -> None:
        self._urls = {_META: url}
        self._ca_file = ca_file
        self.complete = False

    def learn(self, urls: dict[str, str]) -> None:
        """Records the URLs that ``GET /v1/endpoints`` has answered. Then the URLs are ``complete``."""
        self._urls |= {function: url for function, url in urls.items() if function != _META}
        self.complete = True

    def function(self, method: str, target: str) -> str:
        """Returns the function that serves a request; ``meta`` while the URL of the other function is not known."""
        last = target.partition("?")[0].rpartition("/")[2]
        function = _FUNCTIONS.get(last, _META) if method == "POST" else _META
        return function if function in self._urls else _META

    def origin(self, method: str, target: str) -> str:
        """Returns scheme and host of the URL that serves a request."""
        parts = urlsplit(self._urls[self.function(method, target)])
        return f"{parts.scheme}://{parts.netloc}"

    def endpoint(self, function: str) -> Endpoint:
        return Endpoint(self._urls[function], ca_file=self._ca_file)


class FunctionConnections(Generic[E]):
    """Opens the connections to a function when the first request needs them."""

    def __init__(self, urls: FrontUrls, connect: Callable[[Endpoint], E]) -> None:
        self._urls = urls
        self._open: Callable[[Endpoint], E] = connect
        self._opened: dict[str, E] = {}
        self._closed = False

    def of(self, method: str, target: str) -> E:
        """Returns the connections to the function that serves a request. Raises ``Closed`` after ``close``."""
        function = self._urls.function(method, target)
        opened = self._opened.get(function)
        if opened is None and self._closed:
            raise closed()
        if opened is None:
            opened = self._opened.setdefault(function, self._open(self._urls.endpoint(function)))
        return opened

    def close(self) -> list[E]:
        """Opens no more connections, and returns those that are open."""
        self._closed = True
        return list(self._opened.values())


class UrlConnections:
    """Exchanges each request with the function that serves it. Thread-safe."""

    def __init__(self, urls: FrontUrls, connect: Callable[[Endpoint], Exchange]) -> None:
        self._opened = FunctionConnections(urls, connect)

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Reply:
        return self._opened.of(method, target).exchange(method, target, body, headers, extra_seconds=extra_seconds)

    def close(self) -> None:
        for opened in self._opened.close():
            opened.close()


class AsyncUrlConnections:
    """Exchanges each request with the function that serves it, for the tasks of one event loop."""

    def __init__(self, urls: FrontUrls, connect: Callable[[Endpoint], AsyncExchange]) -> None:
        self._opened = FunctionConnections(urls, connect)

    async def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Reply:
        opened = self._opened.of(method, target)
        return await opened.exchange(method, target, body, headers, extra_seconds=extra_seconds)

    async def close(self) -> None:
        for opened in self._opened.close():
            await opened.close()
