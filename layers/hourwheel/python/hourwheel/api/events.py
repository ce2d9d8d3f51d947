"""Events as API Gateway sends them, and responses as it takes them."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from hourwheel.cell import Cell

Event: TypeAlias = dict[str, Any]
Response: TypeAlias = dict[str, Any]


class Invocation(Protocol):
    """What the functions use of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int: ...


Function: TypeAlias = Callable[[Cell, Event, Invocation | None], Response]
"""Without an invocation nothing limits the time of a call but the call itself."""

_encoder = msgspec.json.Encoder()
_JSON = {"content-type": "application/json"}


def ok(answer: object) -> Response:
    return answered(_encoder.encode(answer))


def answered(body: bytes) -> Response:
    """The answer with this JSON."""
    return {"statusCode": 200, "headers": _JSON, "body": body.decode()}


def no_content() -> Response:
    return {"statusCode": 204, "headers": {}, "body": ""}
