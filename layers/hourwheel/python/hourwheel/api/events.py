"""Names the types of API Gateway's events and responses, and builds responses."""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec
from msgspec import structs

from hourwheel.deployment.deployment import Deployment

Event: TypeAlias = dict[str, Any]
"""An event of API Gateway's payload 2.0. In events of the embedded server ``body`` holds the bytes themselves."""

Response: TypeAlias = dict[str, Any]
"""A response of payload 2.0. On Lambda a ``body`` of bytes becomes base64 (``compression.py``)."""


class Invocation(Protocol):
    """Declares the part of Lambda's context that the functions use."""

    def get_remaining_time_in_millis(self) -> int: ...


Function: TypeAlias = Callable[[Deployment, Event, Invocation | None], Response]
"""A function of the API. The embedded server passes no invocation, so no deadline bounds the call there."""

_encoder = msgspec.json.Encoder()
_JSON = {"content-type": "application/json"}


def ok(answer: object) -> Response:
    return answered(_encoder.encode(_in_slices(answer)))


def _in_slices(answer: object) -> object:
    """Returns a page whose entries are encoded, each by a call of its own. All threads of the process wait for a call,
    the event loop too, and one for 4 MB takes up to 70 ms."""
    if not isinstance(answer, msgspec.Struct):
        return answer
    lists = {name: entries for name in answer.__struct_fields__ if type(entries := getattr(answer, name)) is list}
    return structs.replace(
        answer, **{name: [msgspec.Raw(_encoder.encode(entry)) for entry in entries] for name, entries in lists.items()}
    )


def answered(body: bytes) -> Response:
    """Returns a response of status 200 whose body is this JSON."""
    return {"statusCode": 200, "headers": _JSON, "body": body.decode()}


def no_content() -> Response:
    return {"statusCode": 204, "headers": {}, "body": ""}
