"""Reads requests, and raises ``Rejected`` with the JSON path of the fault for every wrong one."""

import re
from base64 import b64decode
from typing import TypeVar

import msgspec

from hourwheel.api.events import Event
from hourwheel.api.routes import HttpRoute
from hourwheel.errors import Rejected, TooLarge, UnknownEncoding
from hourwheel.model.fields import REQUEST_BYTES, check_name
from hourwheel.times import parse_rfc3339
from hourwheel.wire import gzipped
from hourwheel.wire.misfits import QUOTED_CHARACTERS, convert, decode

T = TypeVar("T")

_BYTES_UNCOUNTED = 5
"""The values of a request are counted only if it has more than this many bytes for each allowed value: a shorter one
holds too few to slow the server down."""

_CONTROL_BYTES = 64 << 10
"""The largest control request names 1,000 dead letters of a group, in some 15 KB. A request with 1,000 long keys, or
1,000 ids of a broadcast group with long names, may be larger, and has to be split."""

_SIGNATURE = frozenset(
    f"X-Amz-{name}"
    for name in ("Algorithm", "Credential", "Date", "Expires", "Security-Token", "Signature", "SignedHeaders")
)
"""Query parameters of a request that is signed in its URL. AWS has checked them, and may leave them in the event."""

_UNESCAPED_PLUS = re.compile(r"(?<=\d) (?=\d\d:\d\d$)")


def path_name(event: Event, parameter: str) -> str:
    """Returns the name in the path that the route calls ``parameter``. Raises ``Rejected`` if it is no valid name."""
    return check_name(path_text(event, parameter), parameter)


def path_text(event: Event, parameter: str) -> str:
    # API Gateway has decoded the path. A second decoding would serve another path than the one IAM has judged.
    text: str = event["pathParameters"][parameter]
    return text


def body_of(event: Event) -> bytes:
    """Returns the body of a request, unpacked. Raises ``Rejected``, ``TooLarge`` or ``UnknownEncoding``, and
    ``MemoryFull`` if a server cannot hold the unpacked bytes too."""
    body = event.get("body") or b""
    try:
        data: bytes = body if isinstance(body, bytes) else _bytes_of(body, encoded=bool(event.get("isBase64Encoded")))
    except ValueError as error:
        raise Rejected("json-invalid", f"the body is not UTF-8: {error}") from None
    if len(data) > REQUEST_BYTES:
        raise too_large_request()
    encoding = (event.get("headers") or {}).get("content-encoding")
    if encoding is None:
        return data
    unpacked = _decompressed(data, encoding.strip().lower())
    if (hold := event.get("hold")) is not None:
        hold(len(unpacked))
    return unpacked


def _bytes_of(body: str, *, encoded: bool) -> bytes:
    return b64decode(body, validate=True) if encoded else body.encode()


def _decompressed(data: bytes, encoding: str) -> bytes:
    """Returns the decompressed body. Raises ``UnknownEncoding``, ``TooLarge`` or ``Rejected``."""
    if encoding in ("identity", "") or not data:
        return data
    if encoding != "gzip":
        raise UnknownEncoding(
            "encoding-unknown",
            f"content-encoding must be gzip, or be left out, got {encoding[:QUOTED_CHARACTERS]!r}",
        )
    if not data.startswith(gzipped.MAGIC):
        detail = "the header content-encoding says gzip, but the body is not: compress it, or leave out the header"
        raise Rejected("encoding-invalid", detail)
    try:
        return gzipped.unpack(data, REQUEST_BYTES)
    except gzipped.TooLong:
        raise too_large_request() from None
    except ValueError as error:
        raise Rejected("encoding-invalid", str(error)) from None


def too_large_request() -> TooLarge:
    return TooLarge("request-too-large", f"a request holds at most {REQUEST_BYTES} bytes: send smaller batches")


def check_values(data: bytes, most: int, error: Rejected) -> None:
    """Raises ``error`` where the JSON holds more than about ``most`` values, before any of them is parsed.

    A request of 6 MB has room for two million values. A comma precedes every value but the first of a list or object,
    so the check counts the commas outside of strings.
    """
    if len(data) <= _BYTES_UNCOUNTED * most or data.count(b",") <= most:
        return
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value and its name have at most four quotes. With more the split below would make too many objects.
    if unescaped.count(b'"') > 4 * most or b"".join(unescaped.split(b'"')[::2]).count(b",") > most:
        raise error


def decode_control(kind: type[T], data: bytes) -> T:
    """Returns the parsed body of a control request. Raises ``TooLarge``, or ``Rejected`` with the faulty field."""
    if len(data) > _CONTROL_BYTES:
        raise TooLarge(
            "request-too-large",
            f"a request of this kind holds at most {_CONTROL_BYTES} bytes: split its list over several requests",
        )
    return decode(msgspec.json.Decoder(kind), data)


def check_parameters(event: Event, route: HttpRoute) -> None:
    """Raises ``Rejected`` for the first query parameter that the route does not take."""
    if route.query is None:
        return
    for name in _parameters(event):
        if name not in route.query:
            raise Rejected("field-invalid", _unknown(name, route), field=name[:QUOTED_CHARACTERS] or None)


def check_no_body(event: Event, route: HttpRoute) -> None:
    """Raises ``Rejected`` for a body of a call that takes none. An empty object says nothing, and is no body."""
    data = body_of(event).strip()
    if data in (b"", b"{}"):
        return
    what = f"{route.key} takes no body: leave it out"
    if b'"dry_run"' in data:
        takes = "dry_run" in (route.query or ())
        what += ", and write dry_run=true into the query" if takes else "; the call has no dry run"
    raise Rejected("field-invalid", what, field="body")


def _unknown(name: str, route: HttpRoute) -> str:
    takes = f"takes {', '.join(route.query or ()) or 'none'}"
    if name == "dry_run":
        takes += "; write dry_run into the body" if route.dry_run_in_body else ", and has no dry run"
    return f"the query parameter {name[:QUOTED_CHARACTERS]!r} is unknown: {route.key} {takes}"


def _parameters(event: Event) -> dict[str, str]:
    parameters = event.get("queryStringParameters") or {}
    return {name: text for name, text in parameters.items() if name not in _SIGNATURE}


def decode_query(kind: type[T], event: Event) -> T:
    """Returns the parsed query parameters of a control request. Raises ``Rejected`` with the faulty field."""
    return convert(kind, _parameters(event))


def time_of(text: str | None, field: str) -> int | None:
    """Returns the Unix milliseconds of a time in a query; None without one. Raises ``Rejected`` for any other text.

    A + that stands in a query as it is arrives as a space, which no time has before the offset of its zone.
    """
    return None if text is None else parse_rfc3339(_UNESCAPED_PLUS.sub("+", text), field)
