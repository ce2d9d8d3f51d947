"""Makes calls: adds the token or signature, decodes answers and problem documents, and retries."""

import os
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from hourwheel import __version__, gzipped
from hourwheel.answer_size import nested_bytes
from hourwheel.client.backoff import pause_seconds
from hourwheel.client.connections import Connections, Reply
from hourwheel.client.errors import (
    BadRequest,
    Closed,
    Problem,
    ServerFault,
    ServerUnavailable,
    TooLarge,
    from_answer,
    problem_of,
)
from hourwheel.client.signing import Sign, signer_of
from hourwheel.ports import Ids

T = TypeVar("T")

_ANSWER_BYTES = 64 << 20
"""The limit of a decompressed answer, against zip bombs: Lambda's answers have at most 6 MB."""

_EVENT_BYTES = 6_200_000
"""The limit of a body within the 6,291,456 bytes of an event of Lambda. The rest is for the headers, of which the
gateway takes 10 KB, and for the gateway's description of the request."""

_MSGPACK = "application/msgpack"

_encoder = msgspec.json.Encoder()
_packer = msgspec.msgpack.Encoder()


class PackedAnswer(NamedTuple, Generic[T]):
    """How a call reads an answer in msgpack: as what, and the record that this stands for."""

    decoder: msgspec.msgpack.Decoder[Any]
    record: Callable[[Any], T]


def path(*parts: str) -> str:
    """Returns ``/v1/…`` with each part quoted. Raises ``BadRequest`` for an empty part, ``.`` and ``..``.

    Proxies and signatures remove such parts from a path, and the rest would name something else.
    """
    if not {"", ".", ".."}.isdisjoint(parts):
        raise BadRequest(problem_of("name-invalid", "a name or an id cannot be empty, '.' or '..'"))
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _check_event(data: bytes, *, packed: bool) -> None:
    """Raises ``TooLarge`` for a request that is too large for an event of Lambda.

    The gateway would answer such a request with a 5xx, which a client must take for a failure after the messages were
    stored.
    """
    # Msgpack is base64 in an event.
    if 2 * len(data) > _EVENT_BYTES and (size := len(data) * 4 // 3 if packed else nested_bytes(data)) > _EVENT_BYTES:
        detail = (
            f"the request takes {size} bytes as an event of Lambda, where quotes count more than once, and"
            f" {_EVENT_BYTES} are the most: send smaller batches"
        )
        raise TooLarge(problem_of("request-too-large", detail))


class _Message(NamedTuple):
    """The body of a request, and its headers."""

    data: bytes | None
    headers: dict[str, str]


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
        if token is not None and not token.strip():
            raise ValueError("the token is blank: give one that is not, or none at all")
        self._connections = Connections(url, timeout_seconds=timeout_seconds, ca_file=ca_file)
        self._signer = signer_of(url, token=token, sign=sign, region=region)
        self._headers = {
            "accept": "application/json",
            "accept-encoding": "gzip",
            "user-agent": f"hourwheel/{__version__}",
        }
        if token is not None:
            self._connections.warn_of_clear_text()
            self._headers["authorization"] = f"Bearer {token}"
        self._packs = True
        """Whether the server reads msgpack, as far as is known."""
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
        packed: PackedAnswer[T] | None = None,
    ) -> T:
        """Makes a call and returns the typed answer. Raises ``AnswerError``, and ``Closed`` after ``close``.

        With ``packed`` the call is made in msgpack. The first server that cannot read msgpack gets the call again as
        JSON, and so does every later call.

        While the server is unavailable, retries the call with back-off for ``retry_seconds`` (default: the client's
        value; 0: not at all), where repeating it is ``safe`` or the call certainly had no effect.
        """
        how = (safe, wait_seconds, self._retry_seconds if retry_seconds is None else retry_seconds)
        target = self._connections.prefix + target
        if packed is not None and self._packs:
            try:
                return self._call(method, target, self._packed(body), answer, packed, *how)
            except BadRequest as error:
                # A server that knows no msgpack takes the body for JSON, or refuses its type.
                if error.slug != "json-invalid" and error.problem.status != HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
                    raise
                self._packs = False
        return self._call(method, target, self._plain(body), answer, packed, *how)

    def _plain(self, body: Any) -> _Message:
        if body is None:
            return _Message(None, self._headers)
        data = _encoder.encode(body)
        if self._signer is not None:
            _check_event(data, packed=False)
        return _Message(data, {**self._headers, "content-type": "application/json"})

    def _packed(self, body: Any) -> _Message:
        data = _packer.encode(body)
        if self._signer is not None:
            _check_event(data, packed=True)
        return _Message(data, {**self._headers, "accept": _MSGPACK, "content-type": _MSGPACK})

    def _call(
        self,
        method: str,
        target: str,
        message: _Message,
        answer: msgspec.json.Decoder[T],
        packed: PackedAnswer[T] | None,
        safe: bool,
        wait_seconds: float,
        retry_seconds: float,
    ) -> T:
        give_up_at = time.monotonic() + retry_seconds
        attempt = 0
        while True:
            try:
                return self._once(method, target, message, answer, packed, wait_seconds)
            except ServerUnavailable as error:
                pause = pause_seconds(attempt, self._ids, at_least_seconds=error.retry_after_seconds)
                if (error.sent and not safe) or time.monotonic() + pause >= give_up_at:
                    raise
                if self._closing.wait(pause):
                    raise Closed("the connection was closed") from error
            attempt += 1

    def close(self) -> None:
        """Closes the connections. Calls under way, also those that wait for a retry, raise ``Closed``."""
        self._closing.set()
        self._connections.close()

    def _once(
        self,
        method: str,
        target: str,
        message: _Message,
        answer: msgspec.json.Decoder[T],
        packed: PackedAnswer[T] | None,
        wait_seconds: float,
    ) -> T:
        data, headers = message
        signed: dict[str, str] = {}
        if self._signer is not None:
            signed = self._signer.headers(method, target, data, headers.get("content-type"))
        reply = self._connections.exchange(method, target, data, {**headers, **signed}, extra_seconds=wait_seconds)
        body = _unpacked(reply)
        if not 200 <= reply.status < 300:
            error = from_answer(reply.status, body, retry_after=reply.retry_after)
            if self._signer is not None:
                error = self._signer.explained(error, method, target, signed, reply.date)
            raise error
        try:
            if packed is not None and reply.kind == _MSGPACK:
                return packed.record(packed.decoder.decode(body))
            return answer.decode(body or b"null")
        except (msgspec.MsgspecError, UnicodeDecodeError, LookupError) as error:
            raise _not_understood(reply, error) from error


def _unpacked(reply: Reply) -> bytes:
    if reply.encoding is None or not reply.body:
        return reply.body
    try:
        if reply.encoding.lower() != "gzip":
            raise ValueError(f"its encoding is {reply.encoding[:100]!r}")
        return gzipped.unpack(reply.body, _ANSWER_BYTES)
    except ValueError as error:
        raise _not_understood(reply, error) from error


def _not_understood(reply: Reply, error: Exception) -> ServerFault:
    detail = f"the answer is not what this client understands ({error}): is there a Hourwheel server at this URL?"
    return ServerFault(Problem(status=reply.status, detail=detail))
