"""Makes calls: signs and sends their requests, and retries them while the server is unavailable."""

import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from hourwheel.client.codec import Call, CallCodec, HttpRequest, MsgpackAnswer, Tries
from hourwheel.client.connections import Connections
from hourwheel.client.endpoint import Endpoint, closed
from hourwheel.client.errors import AnswerError, BadRequest, ServerUnavailable
from hourwheel.client.in_process import Exchange, server_at
from hourwheel.client.signing import Sign, signer_of
from hourwheel.ports import Ids

T = TypeVar("T")


def begin(
    url: str, *, token: str | None, ca_file: str | os.PathLike[str] | None, sign: Sign | None, region: str | None
) -> tuple[Endpoint, CallCodec]:
    """Returns the server of a URL, and the codec of calls to this server. Raises ``ValueError`` or ``ClientError``."""
    endpoint = Endpoint(url, ca_file=ca_file)
    codec = CallCodec(prefix=endpoint.prefix, token=token, signer=signer_of(url, token=token, sign=sign, region=region))
    if token is not None:
        endpoint.warn_of_clear_text()
    return endpoint, codec


class Http:
    """Makes calls to one server. Thread-safe."""

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
        endpoint, self._codec = begin(url, token=token, ca_file=ca_file, sign=sign, region=region)
        server = server_at(url)
        self._connections: Exchange = (
            Connections(endpoint, timeout_seconds=timeout_seconds) if server is None else server.connect()
        )
        self._retry_seconds = retry_seconds
        self._ids = ids
        self._closing = threading.Event()

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
    ) -> Any:
        """Makes a ``Call`` and returns the typed answer. Raises ``AnswerError``, and ``Closed`` after ``close``.

        While the server is unavailable, retries the call with back-off for ``retry_seconds`` (default: the client's
        value; 0: not at all), where repeating it is ``safe`` or the call certainly had no effect.
        """
        call = Call(method, target, answer, body, wait_seconds, msgpack, then, refused)
        seconds = self._retry_seconds if retry_seconds is None else retry_seconds
        request = self._codec.request(call)
        try:
            return self._answer(call, request, safe, seconds)
        except BadRequest as error:
            request = self._codec.instead(call, request, error)
        return self._answer(call, request, safe, seconds)

    def _answer(self, call: Call[Any], request: HttpRequest, safe: bool, retry_seconds: float) -> Any:
        tries = Tries(self._ids, safe=safe, give_up_at=time.monotonic() + retry_seconds)
        while True:
            try:
                return self._once(call, request)
            except ServerUnavailable as error:
                pause = tries.pause_seconds(error, time.monotonic())
                if pause is None:
                    raise
                if self._closing.wait(pause):
                    raise closed() from error

    def close(self) -> None:
        """Closes the connections. Calls under way, also those that wait for a retry, raise ``Closed``."""
        self._closing.set()
        self._connections.close()

    def _once(self, call: Call[Any], request: HttpRequest) -> Any:
        method, target, data, headers = request
        signed = self._codec.signature(request)
        reply = self._connections.exchange(method, target, data, {**headers, **signed}, extra_seconds=call.wait_seconds)
        return self._codec.answer(call, request, signed, reply)
