"""Reads and writes the two forms of the data routes: JSON, and msgpack for clients that send and accept it.

A msgpack request has the fields of the JSON request, except that it may carry a body of bytes without base64. Msgpack
answers, which docs/api/msgpack.md draws, say once for many messages what JSON says for each. Errors are always JSON.
"""

import re
from typing import Generic, TypeVar

import msgspec

from hourwheel.api.events import Event, Response, answered
from hourwheel.api.requests import body_of
from hourwheel.errors import UNDECODABLE, Rejected
from hourwheel.wire.misfits import decode, decode_msgpack

T = TypeVar("T")

MSGPACK = "application/msgpack"

_LONG_MAP = b"\xde"
"""This byte, or the one after it, begins a map of more than 15 fields. The number of fields follows, in two bytes or in
four."""

_MOST_FIELDS = 100  # no request has more than seven; in a map of up to this many, an unknown one is named

_ACCEPTED = re.compile(
    r"(?:^|,)\s*application/msgpack\s*(?:;\s*q=(?P<weight>[01](?:\.\d{0,3})?)\s*)?(?:,|$)", re.IGNORECASE
)
_HEADERS = {"content-type": MSGPACK}

_json_encoder = msgspec.json.Encoder()
_encoder = msgspec.msgpack.Encoder()


class RequestReader(Generic[T]):
    """Decodes the requests of one route from JSON or msgpack. ``msgpack_kind`` is the type of msgpack requests where it
    is not ``kind``."""

    def __init__(self, kind: type[T], msgpack_kind: type[T] | None = None) -> None:
        self._json = msgspec.json.Decoder(kind)
        self._msgpack = msgspec.msgpack.Decoder(msgpack_kind or kind)

    def decode(self, data: bytes, *, msgpack: bool) -> T:
        """Returns the request that a body holds. Raises ``Rejected``."""
        if not msgpack:
            return decode(self._json, data)
        if data >= _LONG_MAP and _repeats_fields(data):
            detail = "the body has each of its fields once, and this one has many more: send each once"
            raise Rejected("field-invalid", detail)
        return decode_msgpack(self._msgpack, data)

    def decode_if_fits(self, data: bytes) -> T | None:
        """Returns the request that a msgpack body holds; None if the body is no such request."""
        try:
            if data >= _LONG_MAP and _repeats_fields(data):
                return None
            return self._msgpack.decode(data)
        except UNDECODABLE:
            return None

    def read(self, event: Event) -> T:
        """Returns the request in the body of an event. Raises ``Rejected``."""
        return self.decode(body_of(event), msgpack=is_msgpack(event))


def _repeats_fields(data: bytes) -> bool:
    """Returns whether the body is a map with more fields than any request has: some are repeated.

    A decoder reads each repetition: 6 MB of the field ``messages``, each with a thousand empty maps, take a third of a
    second.
    """
    width = {0xDE: 2, 0xDF: 4}.get(data[0], 0)
    return int.from_bytes(data[1 : 1 + width], "big") > _MOST_FIELDS


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
    """Returns a response of status 200 whose body is this msgpack. On Lambda ``compressed`` makes it base64."""
    return {"statusCode": 200, "headers": _HEADERS, "body": data}
