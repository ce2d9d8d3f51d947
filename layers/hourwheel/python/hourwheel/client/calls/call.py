"""Defines the common base of the families of calls."""

import functools
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from hourwheel.client.transport.http import Http
from hourwheel.ports.machine import Clock


class Calls:
    """The base of a family of calls. ``Api`` and ``AsyncCalls`` set the connections and the clock."""

    _http: Http
    _clock: Clock


@functools.cache
def answers(kind: Any) -> Any:
    """Returns the decoder of JSON answers of this type, made once."""
    return msgspec.json.Decoder(kind)


def without_none(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def query(**fields: Any) -> str:
    """Returns the query string of the fields that are not None; nothing if all are None. Writes a blank as %20, because
    a signature of AWS takes "+" for a plus sign."""
    text = urlencode(without_none(**fields), quote_via=quote)
    return text and f"?{text}"
