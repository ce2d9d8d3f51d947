"""Reads and writes the two forms of the data routes: JSON, and msgpack for clients that send and accept it.

A msgpack request has the fields of the JSON request; a body of bytes is binary, without base64. Msgpack answers are
drawn in docs/api.md: they say once for many messages what JSON says for each. Errors are JSON in both forms.
"""

import re
from typing import Generic, TypeVar

import msgspec

from hourwheel.api.events import Event, Response, answered
from hourwheel.api.requests import body_of
from hourwheel.errors import UNDECODABLE
from hourwheel.misfits import decode, decode_msgpack

T = TypeVar("T")

MSGPACK = "application/msgpack"

_ACCEPTED = re.compile(
    r"(?:^|,)\s*application/msgpack\s*(?:;\s*q=(?P<weight>[01](?:\.\d{0,3})?)\s*)?(?:,|$)", re.IGNORECASE
)
_HEADERS = {"content-type": MSGPACK}

_json_encoder = msgspec.json.Encoder()
_encoder = msgspec.msgpack.Encoder()


class RequestReader(Generic[T]):
    """Decodes the requests of one route, in either form."""

    def __init__(self, kind: type[T], msgpack_kind: type[T] | None = None) -> None:
        self._json = msgspec.json.Decoder(kind)
        self._msgpack = msgspec.msgpack.Decoder(msgpack_kind or kind)

    def decode(self, data: bytes, *, msgpack: bool) -> T:
        """Decodes a body. Raises ``Rejected``."""
        return decode_msgpack(self._msgpack, data) if msgpack else decode(self._json, data)

    def decode_if_fits(self, data: bytes) -> T | None:
        """Decodes a body of msgpack; returns None if it is no such request."""
        try:
            return self._msgpack.decode(data)
        except UNDECODABLE:
            return None

    def read(self, event: Event) -> T:
        """Decodes the body of a request. Raises ``Rejected``."""
        return self.decode(body_of(event), msgpack=is_msgpack(event))


def is_msgpack(event: Event) -> bool:
    """Returns whether the body of a request is msgpack."""
    kind = (event.get("headers") or {}).get("content-type")
    return kind is not None and (kind == MSGPACK or kind.partition(";")[0].strip().lower() == MSGPACK)


def accepts_msgpack(event: Event) -> bool:
    """Returns whether the client takes an answer as msgpack."""
    accepted = (event.get("headers") or {}).get("accept")
    if accepted is None or accepted == MSGPACK:
        return accepted is not None
    match = _ACCEPTED.search(str(accepted))
    return match is not None and float(match["weight"] or 1) > 0


def answer(event: Event, value: object) -> Response:
    """Returns a response of status 200 in the form that the client accepts."""
    return msgpack_answer(_encoder.encode(value)) if accepts_msgpack(event) else answered(_json_encoder.encode(value))


def msgpack_answer(data: bytes) -> Response:
    """Returns a response of status 200 whose body is this msgpack. Lambda needs base64: see ``for_lambda``."""
    return {"statusCode": 200, "headers": _HEADERS, "body": data}
