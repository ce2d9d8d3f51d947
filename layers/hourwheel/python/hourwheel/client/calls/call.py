"""Defines the common base of the families of calls."""

import functools
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from hourwheel.client.http import Http
from hourwheel.ports import Clock


class Calls:
    """A family of calls, which ``Api`` gives its connections and its clock."""

    _http: Http
    _clock: Clock


@functools.cache
def answers(kind: Any) -> Any:
    """Returns the decoder of answers of this type."""
    return msgspec.json.Decoder(kind)


def without_none(**fields: Any) -> dict[str, Any]:
    """Returns the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def query(**fields: Any) -> str:
    """Returns the query string, with a blank as %20: signatures would take a "+" for itself."""
    return "?" + urlencode(without_none(**fields), quote_via=quote)
