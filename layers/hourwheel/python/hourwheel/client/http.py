"""Requests and typed answers: the base URL, the token or signature, problem documents, and what is tried again."""

import os
import threading
import time
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from hourwheel import __version__, gzipped
from hourwheel.answersize import nested_bytes
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
"""An answer that unpacks to more is none of ours: those of Lambda have 6 MB."""

_EVENT_BYTES = 6_200_000
"""Of the 6,291,456 bytes that Lambda takes as an event; the rest is for headers, of which the gateway takes 10 KB, and
for what it says of the request."""

_encoder = msgspec.json.Encoder()


def path(*parts: str) -> str:
    """``/v1/…`` with each part quoted. Refused are parts that proxies, and signatures, take out of a path: what is left
    would name something else."""
    if not {"", ".", ".."}.isdisjoint(parts):
        raise BadRequest(problem_of("name-invalid", "a name or an id cannot be empty, '.' or '..'"))
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def _check_event(data: bytes) -> None:
    """Raises ``TooLarge`` for a request that Lambda could not be given. It is not sent: the gateway's answer would be a
    5xx, as for a function that failed after it had stored something."""
    if 2 * len(data) > _EVENT_BYTES and (size := nested_bytes(data)) > _EVENT_BYTES:
        detail = (
            f"the request takes {size} bytes as an event of Lambda, where quotes count more than once, and"
            f" {_EVENT_BYTES} are the most: send smaller batches"
        )
        raise TooLarge(problem_of("request-too-large", detail))


class Http:
    """Thread-safe."""

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
    ) -> T:
        """The typed answer, or an ``AnswerError``.

        A call that raised ``ServerUnavailable`` is tried again with back-off for ``retry_seconds``
        (default: the client's; 0: not at all) if repeating it is ``safe``, or if it certainly did not reach the server.
        """
        data, headers = None, self._headers
        if body is not None:
            data, headers = _encoder.encode(body), {**headers, "content-type": "application/json"}
            if self._signer is not None:
                _check_event(data)
        target = self._connections.prefix + target
        give_up_at = time.monotonic() + (self._retry_seconds if retry_seconds is None else retry_seconds)
        attempt = 0
        while True:
            try:
                return self._once(method, target, data, headers, answer, wait_seconds)
            except ServerUnavailable as error:
                pause = pause_seconds(attempt, self._ids, at_least_seconds=error.retry_after_seconds)
                if (error.sent and not safe) or time.monotonic() + pause >= give_up_at:
                    raise
                if self._closing.wait(pause):
                    raise Closed("the connection was closed") from error
            attempt += 1

    def close(self) -> None:
        """Ends the calls under way, those that wait for another attempt too, with ``Closed``."""
        self._closing.set()
        self._connections.close()

    def _once(
        self,
        method: str,
        target: str,
        data: bytes | None,
        headers: dict[str, str],
        answer: msgspec.json.Decoder[T],
        wait_seconds: float,
    ) -> T:
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
            return answer.decode(body or b"null")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _strange(reply, error) from error


def _unpacked(reply: Reply) -> bytes:
    if reply.encoding is None or not reply.body:
        return reply.body
    try:
        if reply.encoding.lower() != "gzip":
            raise ValueError(f"its encoding is {reply.encoding[:100]!r}")
        return gzipped.unpack(reply.body, _ANSWER_BYTES)
    except ValueError as error:
        raise _strange(reply, error) from error


def _strange(reply: Reply, error: Exception) -> ServerFault:
    detail = f"the answer is not what this client understands ({error}): is there a Hourwheel server at this URL?"
    return ServerFault(Problem(status=reply.status, detail=detail))
