"""Reading requests: every way in which one can be wrong becomes ``Rejected``, with the place in the JSON."""

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from hourwheel import gzipped
from hourwheel.api.events import Event
from hourwheel.errors import Rejected, TooLarge, UnknownEncoding
from hourwheel.model import NAME_PATTERN, REQUEST_BYTES, check_name

if TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
B = TypeVar("B", bound="BaseModel")

_NAMES = ("subject", "consumer")
_QUOTED_CHARACTERS = 200

_SAID_CHARACTERS = 2_000
"""Of what a decoder says: enough for what it says first, and where, at the end."""

_BYTES_UNCOUNTED = 5
"""For each value that is allowed: so short a request cannot hold enough of them to hold anybody up."""

_CONTROL_BYTES = 64 << 10
"""More than the largest control request takes: 1,000 ids of dead letters."""

# "… - at `$.messages[3].key`", or "… - at `key` in `$.messages[3].headers`" for a key of an object.
_PLACE = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_MEMBER = re.compile(r"Object (?:missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)


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
            "encoding-unknown", f"the encoding of a body is gzip, or none, got {encoding[:_QUOTED_CHARACTERS]!r}"
        )
    try:
        return gzipped.unpack(data, REQUEST_BYTES)
    except gzipped.TooLong:
        raise too_large_request() from None
    except ValueError as error:
        raise Rejected("encoding-invalid", str(error)) from None


def too_large_request() -> TooLarge:
    return TooLarge("request-too-large", f"a request holds at most {REQUEST_BYTES} bytes: send smaller batches")


def decode(decoder: msgspec.json.Decoder[T], data: bytes) -> T:
    """The body of a request that carries messages or receipts."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(data, str(error)) from None


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
            raise _not_json(data, fault["msg"]) from None
        raise _refused(fault) from None


def decode_query(model: type[B], event: Event) -> B:
    """The query parameters of a control request."""
    from pydantic import ValidationError  # as above

    try:
        return model.model_validate(event.get("queryStringParameters") or {})
    except ValidationError as error:
        raise _refused(error.errors(include_url=False, include_input=False)[0]) from None


def _not_json(data: bytes, reason: str) -> Rejected:
    if not data:
        return Rejected("json-invalid", "the body is empty: send a JSON object")
    return Rejected("json-invalid", f"the body is not JSON in UTF-8: {reason}")


def _misfit(text: str) -> Rejected:
    """msgspec says what and where in one sentence. It quotes names at full length."""
    if len(text) > _SAID_CHARACTERS:
        text = text[: _SAID_CHARACTERS // 2] + text[-_SAID_CHARACTERS // 2 :]
    found = _PLACE.fullmatch(text)
    what, path = (found["what"], found["path"] or "") if found else (text, "")
    member = _MEMBER.fullmatch(what)
    if member:
        path = f"{path}.{member['name']}".lstrip(".")
    field = path[:_QUOTED_CHARACTERS] or None
    if path.rpartition(".")[2] in _NAMES and ("length" in what or "matching" in what):
        return Rejected("name-invalid", f"{field} must match {NAME_PATTERN}", field=field)
    detail = f"{field}: {what[:_QUOTED_CHARACTERS]}" if field else what
    return Rejected("field-invalid", detail, field=field)


def _refused(fault: Any) -> Rejected:
    """pydantic says where in a tuple of names and indexes."""
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault["loc"]).lstrip(".")
    field = path[:_QUOTED_CHARACTERS] or None
    message = fault["msg"].removeprefix("Value error, ")
    return Rejected("field-invalid", f"{field}: {message}" if field else message, field=field)
