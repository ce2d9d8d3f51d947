"""Makes calls: signs and sends their requests, and retries them while the server is unavailable."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hourwheel.client.errors import AnswerError, BadRequest, ServerUnavailable
from hourwheel.client.in_process import Exchange, InProcessServer, server_at
from hourwheel.client.transport import signing
from hourwheel.client.transport.codec import Call, CallCodec, HttpRequest, MsgpackAnswer, Tries
from hourwheel.client.transport.connections import Connections
from hourwheel.client.transport.endpoint import Endpoint, closed
from hourwheel.client.transport.signing import Sign
from hourwheel.client.transport.steps import Steps, finished
from hourwheel.locks import Event
from hourwheel.ports.machine import Ids

if TYPE_CHECKING:
    from hourwheel.client.transport.urls import FrontUrls

T = TypeVar("T")


def begin(
    url: str, *, token: str | None, ca_file: str | os.PathLike[str] | None, sign: Sign | None, region: str | None
) -> "tuple[Endpoint, CallCodec, FrontUrls | None]":
    """Returns the server at a URL, the codec of calls to it, and for the URL of a function also the URLs of all
    functions. Raises ``ValueError`` or ``ClientError``."""
    endpoint = Endpoint(url, ca_file=ca_file)
    urls = None
    if signing.LAMBDA_URL.fullmatch(endpoint.host):
        # Few programs use function URLs; others do not load this.
        from hourwheel.client.transport.urls import FrontUrls

        urls = FrontUrls(url, ca_file=ca_file)
    signer = signing.signer_of(url, token=token, sign=sign, region=region, urls=urls)
    codec = CallCodec(prefix=endpoint.prefix, token=token, signer=signer, urls=urls)
    if token is not None:
        endpoint.warn_of_clear_text()
    return endpoint, codec, urls


class HttpCalls(ABC):
    """Makes calls to one server: what ``Http`` and ``AsyncHttp`` have in common. They add what waits."""

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
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._ids = ids
        self._connections = self._connected(url, endpoint)
        self._closing = self._new_event()
        self.host = endpoint.host
        self.signer = self._codec.signer
        """Signs the requests; None where they are not signed."""

    def call(
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
        """Makes a ``Call`` and returns its result; ``AsyncHttp`` returns a coroutine. Raises ``AnswerError``, and
        ``Closed`` after ``close``.

        While the server is unavailable, retries the call with back-off for ``retry_seconds`` (None: those of the
        client; 0: not at all), if repeating it is ``safe`` or the call certainly had no effect.
        """
        call = Call(method, target, answer, body, wait_seconds, msgpack, then, refused, repeated)
        return self._send(call, safe, self._retry_seconds if retry_seconds is None else retry_seconds)

    def _connected(self, url: str, endpoint: Endpoint) -> Any:
        if self._urls is not None:
            from hourwheel.client.transport.urls import UrlConnections

            return UrlConnections(self._urls, self._connect, self._run)
        server = server_at(url)
        return self._connect(endpoint) if server is None else self._connect_in_process(server)

    def _tries(self, call: Call[Any], safe: bool, retry_seconds: float) -> Tries:
        return Tries(self._codec, call, self._ids, safe=safe, give_up_at=time.monotonic() + retry_seconds)

    @abstractmethod
    def _send(self, call: Call[Any], safe: bool, retry_seconds: float) -> Any:
        """Sends the requests of a call until it has an answer, or may not be repeated."""

    @abstractmethod
    def _run(self, steps: Steps[T]) -> Any:
        """Carries out steps that wait, and returns their result."""

    @abstractmethod
    def _new_event(self) -> Any:
        """Returns the event that ``close`` sets."""

    @abstractmethod
    def _connect(self, endpoint: Endpoint) -> Any:
        """Returns the connections to a server."""

    @abstractmethod
    def _connect_in_process(self, server: InProcessServer) -> Any:
        """Returns the connections to a server in this process."""


class Http(HttpCalls):
    """Makes calls to one server. Thread-safe."""

    def close(self) -> None:
        """Closes the connections. Calls under way, also those that wait for a retry, raise ``Closed``."""
        self._closing.set()
        self._connections.close()

    def _send(self, call: Call[Any], safe: bool, retry_seconds: float) -> Any:
        if self._urls is not None and (lookup := self._urls.lookup_before(call)) is not None:
            self._send(lookup, True, self._retry_seconds)
        tries = self._tries(call, safe, retry_seconds)
        while True:
            try:
                return self._once(call, tries.request)
            except (ServerUnavailable, BadRequest) as error:
                if self._closing.wait(tries.pause_seconds(error, time.monotonic())):
                    raise closed() from error

    def _once(self, call: Call[Any], request: HttpRequest) -> Any:
        method, target, data, headers = request
        signed = self._codec.signature(request)
        reply = self._connections.exchange(method, target, data, {**headers, **signed}, extra_seconds=call.wait_seconds)
        return self._codec.answer(call, request, signed, reply)

    def _run(self, steps: Steps[T]) -> T:
        return finished(steps)

    def _new_event(self) -> Event:
        return Event()

    def _connect(self, endpoint: Endpoint) -> Connections:
        return Connections(endpoint, timeout_seconds=self._timeout_seconds)

    def _connect_in_process(self, server: InProcessServer) -> Exchange:
        return server.connect()
