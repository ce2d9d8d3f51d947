"""Finds the URL of each function, for a deployment that has function URLs in place of an API.

A client is given the URL of the function ``meta``, whose answer to ``GET /v1/endpoints`` names the other URLs.
"""

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hourwheel.client.transport.codec import Call
from hourwheel.client.transport.endpoint import Endpoint, closed
from hourwheel.client.transport.steps import Steps

_ENDPOINTS = "/v1/endpoints"
_ENDPOINTS_ANSWER = msgspec.json.Decoder(dict[str, str])

_META = "meta"
_FUNCTIONS = {"messages": "produce", "pull": "pull", "ack": "ack"}
"""The function that serves a POST, by the last part of its path. ``meta`` serves all other requests."""


class FrontUrls:
    """Knows the URLs of the functions: at first that of ``meta`` alone, and all once the server has named them."""

    def __init__(self, url: str, *, ca_file: str | os.PathLike[str] | None) -> None:
        self._urls = {_META: url}
        self._ca_file = ca_file
        self._complete = False

    def lookup_before(self, call: Call[Any]) -> Call[Any] | None:
        """Returns the call that finds the other URLs, if it has to come before this one; None if they are known."""
        if self._complete or call.target == _ENDPOINTS:
            return None
        return Call("GET", _ENDPOINTS, _ENDPOINTS_ANSWER, None, 0.0, None, self.learn, None)

    def learn(self, urls: dict[str, str]) -> None:
        """Records the URLs that the server has named."""
        self._urls |= {function: url for function, url in urls.items() if function != _META}
        self._complete = True

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


class UrlConnections:
    """Exchanges each request with the function that serves it, for threads or for tasks.

    Opens the connections to a function by ``connect``, when the first request needs them. ``run`` runs steps.
    """

    def __init__(self, urls: FrontUrls, connect: Callable[[Endpoint], Any], run: Callable[[Steps[None]], Any]) -> None:
        self._urls = urls
        self._connect = connect
        self._run = run
        self._opened: dict[str, Any] = {}
        self._closed = False

    def exchange(
        self, method: str, target: str, body: bytes | None, headers: dict[str, str], *, extra_seconds: float = 0.0
    ) -> Any:
        """Returns the reply, or for tasks an awaitable of it. Raises ``Closed`` after ``close``."""
        function = self._urls.function(method, target)
        opened = self._opened.get(function)
        if opened is None and self._closed:
            raise closed()
        if opened is None:
            opened = self._opened.setdefault(function, self._connect(self._urls.endpoint(function)))
        return opened.exchange(method, target, body, headers, extra_seconds=extra_seconds)

    def close(self) -> Any:
        """Opens no more connections, and closes those that are open."""
        self._closed = True
        return self._run(self._closing())

    def _closing(self) -> Steps[None]:
        for opened in list(self._opened.values()):
            yield opened.close()
