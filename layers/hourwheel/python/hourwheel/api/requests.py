"""Reading requests: every way in which one can be wrong becomes ``Rejected``, with the place in the JSON."""

from base64 import b64decode
from typing import TYPE_CHECKING, Any, TypeVar

from hourwheel import gzipped
from hourwheel.api.events import Event
from hourwheel.errors import Rejected, TooLarge, UnknownEncoding
from hourwheel.misfits import QUOTED_CHARACTERS, not_json, of_pydantic
from hourwheel.model import REQUEST_BYTES, check_name

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
B = TypeVar("B", bound="BaseModel")

_BYTES_UNCOUNTED = 5
"""For each value that is allowed: so short a request cannot hold enough of them to hold anybody up."""

_CONTROL_BYTES = 64 << 10
"""More than the largest control request takes: 1,000 ids of dead letters."""


def path_name(event: Event, parameter: str) -> str:
    """A name in the path."""
    return check_name(path_text(event, parameter), parameter)


def path_text(event: Event, parameter: str) -> str:
    # API Gateway has taken the percent-encoding off. Taken off twice, IAM would judge another path than is served.
    text: str = event["pathParameters"][parameter]
    return text


def body_of(event: Event) -> bytes:
    text = event.get("body") or ""
    try:
        data = b64decode(text, validate=True) if event.get("isBase64Encoded") else text.encode()
    except ValueError as error:
        raise Rejected("json-invalid", f"the body is not UTF-8: {error}") from None
    if len(data) > REQUEST_BYTES:
        raise too_large_request()
    encoding = (event.get("headers") or {}).get("content-encoding")
    return data if encoding is None else _unpacked(data, encoding.strip().lower())


def _unpacked(data: bytes, encoding: str) -> bytes:
    """The body without its encoding."""
    # A gateway may have taken the encoding off, and left its name.
    if encoding in ("identity", "") or (encoding == "gzip" and not data.startswith(gzipped.MAGIC)):
        return data
    if encoding != "gzip":
        raise UnknownEncoding(
            "encoding-unknown", f"the encoding of a body is gzip, or none, got {encoding[:QUOTED_CHARACTERS]!r}"
        )
    try:
        return gzipped.unpack(data, REQUEST_BYTES)
    except gzipped.TooLong:
        raise too_large_request() from None
    except ValueError as error:
        raise Rejected("encoding-invalid", str(error)) from None


def too_large_request() -> TooLarge:
    return TooLarge("request-too-large", f"a request holds at most {REQUEST_BYTES} bytes: send smaller batches")


def check_values(data: bytes, most: int, error: Rejected) -> None:
    """Raises the error where JSON holds more than about that many values, before there is an object for each: a request
    of 6 MB has room for two million. Every value but the first of a list or an object follows a comma, and so do names:
    those outside texts are counted."""
    if len(data) <= _BYTES_UNCOUNTED * most or data.count(b",") <= most:
        return
    unescaped = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A value has two quotes at most, and so has its name.
    if unescaped.count(b'"') > 4 * most or b"".join(unescaped.split(b'"')[::2]).count(b",") > most:
        raise error


def decode_control(model: type[B], data: bytes) -> B:
    """The body of a control request."""
    if len(data) > _CONTROL_BYTES:
        raise TooLarge("request-too-large", f"a request of this kind holds at most {_CONTROL_BYTES} bytes")
    from pydantic import ValidationError  # 45 ms, and the functions of the data plane do not come here

    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        if fault["type"] == "json_invalid":
            raise not_json(data, fault["msg"]) from None
        raise _refused(fault) from None


def decode_query(model: type[B], event: Event) -> B:
    """The query parameters of a control request."""
    from pydantic import ValidationError  # as above

    try:
        return model.model_validate(event.get("queryStringParameters") or {})
    except ValidationError as error:
        raise _refused(error.errors(include_url=False, include_input=False)[0]) from None


def _refused(fault: Any) -> Rejected:
    """pydantic says where in a tuple of names and indexes."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"]).lstrip(".")
    field = path[:QUOTED_CHARACTERS] or None
    told = of_pydantic(fault)
    if fault["type"] == "value_error":  # ours, a whole sentence
        return Rejected("field-invalid", f"{field}: {told}" if field else told, field=field)
    return Rejected("field-invalid", f"{field or 'the request'} {told}", field=field)
