"""Finds the URL of each function of a deployment that has function URLs in place of one API.

The URL of ``meta`` is the one that a client is given; its answer to ``GET /v1/endpoints`` names those of the others.
"""

import os
from collections.abc import Callable
from typing import Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from hourwheel.client.endpoint import Endpoint, Reply, closed
from hourwheel.client.in_process import AsyncExchange, Exchange

E = TypeVar("E", Exchange, AsyncExchange)

ENDPOINTS = "/v1/endpoints"
ENDPOINTS_ANSWER = msgspec.json.Decoder(dict[str, str])

_META = "meta"
_FUNCTIONS = {"messages": "produce", "pull": "pull", "ack": "ack"}
"""The function by the last part of the path of a POST; every other request goes to ``meta``."""


class FrontUrls:
    """The URLs by function, as far as they are known: at first that of ``meta``."""

    def __init__(self, url: str, *, ca_file: str | os.PathLike[str] | None) -> None:
        self._urls = {_META: url}
        self._ca_file = ca_file
        self.complete = False

    def learn(self, urls: dict[str, str]) -> None:
        """Takes the answer of ``GET /v1/endpoints``."""
        self._urls |= {function: url for function, url in urls.items() if function != _META}
        self.complete = True

    def function(self, method: str, target: str) -> str:
        """Returns the function that serves a request; ``meta`` where no URL of another function is known."""
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
        for each in self._opened.close():
            each.close()


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
        for each in self._opened.close():
            await each.close()
