"""What decoders find wrong with a value, in sentences of our own: they name what is allowed, and quote no library."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from hourwheel.errors import Rejected
from hourwheel.model import NAME_PATTERN

T = TypeVar("T")

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "datetime": "a time",
    "bytes": "base64",
}

_NAMES = ("subject", "consumer")
QUOTED_CHARACTERS = 200

_SAID_CHARACTERS = 2_000
"""Of what a decoder says: enough for what it says first, and where, at the end."""

_OTHERWISE = "is not what is allowed here"

# By the type of pydantic's error; what it takes is in its context.
_PYDANTIC: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _: "is missing",
    "extra_forbidden": lambda _: "is unknown here",
    "greater_than_equal": lambda found: f"must be at least {found['ge']:g}",
    "greater_than": lambda found: f"must be more than {found['gt']:g}",
    "less_than_equal": lambda found: f"must be at most {found['le']:g}",
    "less_than": lambda found: f"must be less than {found['lt']:g}",
    "finite_number": lambda _: "must be a finite number",
    "literal_error": lambda found: f"must be {found['expected']}",
    "too_short": lambda found: f"must have at least {_of(found['min_length'], 'list')}",
    "too_long": lambda found: f"must have at most {_of(found['max_length'], 'list')}",
    "string_too_short": lambda found: f"must have at least {_of(found['min_length'], 'str')}",
    "string_too_long": lambda found: f"must have at most {_of(found['max_length'], 'str')}",
    "value_error": lambda found: str(found["error"]),
    "int_parsing_size": lambda _: "is too large",
}
_PYDANTIC_TYPES = {
    "int": "int",
    "float": "float",
    "string": "str",
    "bool": "bool",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "model": "object",
}

# "… - at `$.messages[3].key`", or "… - at `key` in `$.messages[3].headers`" for a key of an object.
_PLACE = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?", re.DOTALL)

# msgspec's whole sentences.
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_LENGTH = re.compile(r"Expected `(?P<kind>[^`]*)` of length (?P<sign>[<>]=|==) (?P<bound>\d+)")
_RANGE = re.compile(r"Expected `[^`]*` (?P<sign>[<>]=?) (?P<bound>[-\d.e+]+)")
_PATTERN = re.compile(r"Expected `[^`]*` matching regex (?P<pattern>.*)", re.DOTALL)
_MEMBER = re.compile(r"Object (?P<how>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_SIGNS = {">=": "at least", "<=": "at most", "==": "exactly", ">": "more than", "<": "less than"}

_PLACE_IN_JSON = re.compile(r"(?:byte (?P<byte>\d+)|line (?P<line>\d+) column (?P<column>\d+))")


def of_pydantic(fault: Mapping[str, Any]) -> str:
    """What is wrong, of one of the ``errors()`` of a ``ValidationError``. It stands behind the name of the field."""
    kind, found = fault["type"], fault.get("ctx", {})
    if kind in _PYDANTIC:
        return _PYDANTIC[kind](found)
    wanted = _PYDANTIC_TYPES.get(kind.partition("_")[0])
    return _OTHERWISE if wanted is None else f"must be {_TYPES[wanted]}"


def decode(decoder: msgspec.json.Decoder[T], data: bytes, *, whole: str = "the body") -> T:
    """A value, such as the body of a request that carries messages or receipts. Raises ``Rejected``; ``whole`` names
    the value there."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), whole) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise not_json(data, str(error), whole) from None


def not_json(data: bytes, reason: str, whole: str = "the body") -> Rejected:
    """The error of bytes that are no JSON, of what the parser says."""
    if not data:
        return Rejected("json-invalid", f"{whole} is empty: send a JSON object")
    return Rejected("json-invalid", f"{whole} is not JSON in UTF-8{_place_in_json(reason)}: send a JSON object")


def _misfit(text: str, whole: str) -> Rejected:
    """msgspec says what and where in one sentence. It quotes names at full length."""
    if len(text) > _SAID_CHARACTERS:
        text = text[: _SAID_CHARACTERS // 2] + text[-_SAID_CHARACTERS // 2 :]
    found = _PLACE.fullmatch(text)
    what, path = (found["what"], found["path"] or "") if found else (text, "")
    member = _MEMBER.fullmatch(what)
    if member:
        path = f"{path}.{member['name']}".lstrip(".")
    field = path[:QUOTED_CHARACTERS] or None
    if path.rpartition(".")[2] in _NAMES and ("length" in what or "matching" in what):
        return Rejected("name-invalid", f"{field} must match {NAME_PATTERN}", field=field)
    return Rejected("field-invalid", f"{field or whole} {_of_msgspec(what)[:QUOTED_CHARACTERS]}", field=field)


def _of_msgspec(text: str) -> str:
    """What is wrong, of the text of a ``ValidationError`` without its path. It stands behind the name of the field."""
    if found := _WRONG_TYPE.fullmatch(text):
        return f"must be {_types(found['wanted'])}, got {_types(found['got'])}"
    if found := _LENGTH.fullmatch(text):
        return f"must have {_SIGNS[found['sign']]} {_of(int(found['bound']), found['kind'])}"
    if found := _RANGE.fullmatch(text):
        return f"must be {_SIGNS[found['sign']]} {found['bound']}"
    if found := _PATTERN.fullmatch(text):
        return f"must match {found['pattern']}"
    if found := _MEMBER.fullmatch(text):
        return "is missing" if found["how"] == "missing required" else "is unknown here"
    return _OTHERWISE


def _place_in_json(text: str) -> str:
    """Where JSON ends to be JSON, of what a parser says: " (byte 7)", or nothing."""
    found = _PLACE_IN_JSON.search(text)
    if found is None:
        return ""
    return f" (byte {found['byte']})" if found["byte"] else f" (line {found['line']}, column {found['column']})"


def _types(text: str) -> str:
    return " or ".join(_TYPES.get(one, "something else") for one in text.split(" | "))


def _of(number: int, kind: str) -> str:
    one, more = ("character", "characters") if kind == "str" else ("entry", "entries")
    return f"{number} {one if number == 1 else more}"
