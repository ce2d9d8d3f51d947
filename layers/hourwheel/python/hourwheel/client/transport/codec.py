"""Encodes the calls of a client as HTTP requests, and decodes the answers. Does no input or output."""

from collections.abc import Callable
from http import HTTPStatus
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from hourwheel import __version__
from hourwheel.client.errors import (
    AnswerError,
    BadRequest,
    Problem,
    ServerFault,
    ServerUnavailable,
    TooLarge,
    from_answer,
    problem_of,
)
from hourwheel.client.transport.backoff import pause_seconds
from hourwheel.client.transport.endpoint import GRANT_HEADER, REPEAT_HEADER, Reply
from hourwheel.client.transport.signing import Signer
from hourwheel.ports.machine import Ids
from hourwheel.wire import gzipped
from hourwheel.wire.answer_size import nested_bytes

if TYPE_CHECKING:
    from hourwheel.client.transport.urls import FrontUrls

T = TypeVar("T")

_ANSWER_BYTES = 64 << 20
"""The limit of a decompressed answer, against zip bombs: Lambda's answers have at most 6 MB."""

_EVENT_BYTES = 6_200_000
"""The limit of a body, as an event of Lambda has at most 6,291,456 bytes. The rest is for the headers, 10 KB of which
the gateway accepts, and for the gateway's description of the request."""

_MSGPACK = "application/msgpack"

_encoder = msgspec.json.Encoder()
_msgpack_encoder = msgspec.msgpack.Encoder()


class MsgpackAnswer(NamedTuple, Generic[T]):
    """Says how a call reads an answer in msgpack: ``decoder`` decodes it, and ``record`` makes of that the record that
    an answer in JSON is decoded as."""

    decoder: msgspec.msgpack.Decoder[Any]
    record: Callable[[Any], T]


class Call(NamedTuple, Generic[T]):
    """A call of the HTTP API, and how to read its answer.

    With ``msgpack`` the call is made in msgpack. ``then`` receives the decoded answer and returns the result of the
    call; ``refused`` receives the error of a refused call, and returns the result or raises the error. ``repeated``
    says that the caller has made this call before.
    """

    method: str
    target: str
    answer: msgspec.json.Decoder[T]
    body: Any
    wait_seconds: float
    msgpack: MsgpackAnswer[T] | None
    then: Callable[[T], Any] | None
    refused: Callable[[AnswerError], Any] | None
    repeated: bool = False


class HttpRequest(NamedTuple):
    method: str
    target: str
    data: bytes | None
    headers: dict[str, str]

    def repeated(self) -> "HttpRequest":
        """Returns the request as it is sent after a failure."""
        return self._replace(headers={**self.headers, REPEAT_HEADER: "1"})


def path(*parts: str) -> str:
    """Returns ``/v1/…`` with each part quoted. Raises ``BadRequest`` for an empty part, ``.`` and ``..``.

    Proxies and signatures remove such parts from a path, and the rest would name something else.
    """
    if not {"", ".", ".."}.isdisjoint(parts):
        raise BadRequest(problem_of("name-invalid", "a name or an id cannot be empty, '.' or '..'"))
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _check_finite(value: Any, name: str) -> None:
    """Raises ``BadRequest`` for NaN and infinity, which JSON writes as null: the server would take the field as left
    out."""
    if isinstance(value, float) and not isfinite(value):
        raise BadRequest(problem_of("field-invalid", f"{name} must be a finite number, got {value}"))
    for field, part in value.items() if isinstance(value, dict) else ():
        _check_finite(part, field)
    for part in value if isinstance(value, list | tuple) else ():
        _check_finite(part, name)


def _check_event(data: bytes, *, msgpack: bool) -> None:
    """Raises ``TooLarge`` for a request that is too large for an event of Lambda.

    The gateway would answer such a request with a 5xx. A client has to assume after a 5xx that the messages may be
    stored, and would repeat the request in vain.
    """
    # An event holds msgpack as base64.
    if 2 * len(data) > _EVENT_BYTES and (size := len(data) * 4 // 3 if msgpack else nested_bytes(data)) > _EVENT_BYTES:
        detail = (
            f"the request takes {size} bytes as an event of Lambda, where quotes count more than once, and"
            f" {_EVENT_BYTES} are the most: send smaller batches"
        )
        raise TooLarge(problem_of("request-too-large", detail))


class CallCodec:
    """Encodes the calls to one server, and decodes its answers. Remembers whether a proxy refuses msgpack."""

    def __init__(
        self, *, prefix: str, token: str | None, signer: Signer | None, urls: "FrontUrls | None" = None
    ) -> None:
        if token is not None and not token.strip():
            raise ValueError("the token is blank: give the token of the server, or leave it out")
        self._prefix = prefix
        self.signer = signer
        self._headers = {
            "accept": "application/json",
            "accept-encoding": "gzip",
            "user-agent": f"hourwheel/{__version__}",
        }
        if token is not None and urls is None:
            self._headers["authorization"] = f"Bearer {token}"
        elif token is not None:
            self._headers[GRANT_HEADER] = token  # ``authorization`` holds the signature of a request to a function URL
        self._speaks_msgpack = True  # until a proxy refuses it

    def request(self, call: Call[Any]) -> HttpRequest:
        """Returns the request of a call, without its signature. Raises ``TooLarge``, and ``BadRequest`` for a number
        that JSON cannot express."""
        target = self._prefix + call.target
        if call.body is None:
            return HttpRequest(call.method, target, None, self._headers)
        msgpack = call.msgpack is not None and self._speaks_msgpack
        try:
            data = (_msgpack_encoder if msgpack else _encoder).encode(call.body)
        except OverflowError:
            detail = "a whole number of the request has more than 64 bits: send a smaller one"
            raise BadRequest(problem_of("field-invalid", detail)) from None
        if not msgpack and b"null" in data:
            _check_finite(msgspec.to_builtins(call.body), "")
        if self.signer is not None:  # signed requests go to Lambda
            _check_event(data, msgpack=msgpack)
        kinds = {"accept": _MSGPACK, "content-type": _MSGPACK} if msgpack else {"content-type": "application/json"}
        request = HttpRequest(call.method, target, data, {**self._headers, **kinds})
        return request.repeated() if call.repeated else request

    def instead(self, call: Call[Any], request: HttpRequest, error: BadRequest) -> HttpRequest:
        """Returns the request in JSON, if a proxy refused msgpack as a media type; later calls are made in JSON too.
        Raises an error that has another reason."""
        msgpack = request.headers.get("content-type") == _MSGPACK
        if not msgpack or error.status != HTTPStatus.UNSUPPORTED_MEDIA_TYPE:
            raise error
        self._speaks_msgpack = False
        return self.request(call)

    def signature(self, request: HttpRequest) -> dict[str, str]:
        """Returns the headers that sign a request now; none without a signer. May wait for the source of the
        credentials."""
        if self.signer is None:
            return {}
        return self.signer.headers(request.method, request.target, request.data, request.headers.get("content-type"))

    def answer(self, call: Call[Any], request: HttpRequest, signed: dict[str, str], reply: Reply) -> Any:
        """Returns the result of a call, from the answer of the server. Raises ``AnswerError``."""
        if reply.grant is not None and GRANT_HEADER in self._headers:
            self._headers = {
                **self._headers,
                GRANT_HEADER: reply.grant,
            }  # the renewed token, in place of the former one
        body = _decompressed(reply)
        if 200 <= reply.status < 300:
            answer = _decoded(call, reply, body)
            return answer if call.then is None else call.then(answer)
        error = from_answer(reply.status, body, retry_after=reply.retry_after)
        if self.signer is not None:
            error = self.signer.explained(error, request.method, request.target, signed, reply.date)
        if call.refused is None:
            raise error
        return call.refused(error)


class Tries:
    """Decides what a call sends next, and after which pause: what one of threads and one of tasks have in common. Does
    no input or output."""

    def __init__(self, codec: CallCodec, call: Call[Any], ids: Ids, *, safe: bool, give_up_at: float) -> None:
        self._codec = codec
        self._call = call
        self._ids = ids
        self._safe = safe
        self._give_up_at = give_up_at
        self._attempt = 0
        self.request = codec.request(call)

    def pause_seconds(self, error: ServerUnavailable | BadRequest, now: float) -> float:
        """Prepares the request of the next try, and returns the pause before it. Raises the error of the last try if
        there is no next one: it would be too late, change nothing, or might take effect twice."""
        if isinstance(error, BadRequest):
            self.request = self._codec.instead(self._call, self.request, error)
            return 0.0
        pause = pause_seconds(self._attempt, self._ids, at_least_seconds=error.retry_after_seconds)
        self._attempt += 1
        if (error.sent and not self._safe) or now + pause >= self._give_up_at:
            raise error
        self.request = self.request.repeated()
        return pause


def _decoded(call: Call[T], reply: Reply, body: bytes) -> T:
    try:
        if call.msgpack is not None and reply.kind == _MSGPACK:
            return call.msgpack.record(call.msgpack.decoder.decode(body))
        return call.answer.decode(body or b"null")  # a 204 has no body
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError) as error:
        raise _not_understood(reply, error) from error


def _decompressed(reply: Reply) -> bytes:
    if reply.encoding is None or not reply.body:
        return reply.body
    try:
        if reply.encoding.lower() != "gzip":
            raise ValueError(f"its encoding is {reply.encoding[:100]!r}, which the client did not ask for")
        return gzipped.unpack(reply.body, _ANSWER_BYTES)
    except ValueError as error:
        raise _not_understood(reply, error) from error


def _not_understood(reply: Reply, error: Exception) -> ServerFault:
    detail = f"the answer is not what this client understands ({error}): is there a Hourwheel server at this URL?"
    return ServerFault(Problem(status=reply.status, detail=detail))
