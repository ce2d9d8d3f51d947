"""Turns the errors of decoders into sentences of Hourwheel. The sentences name the allowed values, and quote no
library."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from hourwheel.errors import Rejected
from hourwheel.model.fields import NAME_PATTERN

T = TypeVar("T")

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "None": "null",  # msgspec's name for it in msgpack
    "datetime": "a time",
    "bytes": "base64",
    "ext": "an extension of msgpack",
    "date": "a date",
    "time": "a time of day",
    "duration": "a duration",
    "decimal": "a decimal number",
    "uuid": "a UUID",
}

# Wrong names have the slug of ``check_name``, wherever they are found.
_NAMES = ("subject", "consumer")
# A longer name or value would fill the log and the terminal.
QUOTED_CHARACTERS = 200

_TEXT_CHARACTERS = 2_000
"""At most this much of a decoder's message is parsed: the fault stands at its beginning, the path at its end."""

_OTHERWISE = "is not what is allowed here"
"""The sentence for a fault that this module does not know, such as one of a later version of a decoder."""

_IN_JSON = {"True": "true", "False": "false", "None": "null"}
"""The words of JSON for constants that pydantic names as Python does."""

# By the type of pydantic's error. Each function receives the context of the error.
_PYDANTIC: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "missing": lambda _: "is missing",
    "extra_forbidden": lambda _: "is unknown here",
    "greater_than_equal": lambda bounds: f"must be at least {_number(bounds['ge'])}",
    "greater_than": lambda bounds: f"must be more than {_number(bounds['gt'])}",
    "less_than_equal": lambda bounds: f"must be at most {_number(bounds['le'])}",
    "less_than": lambda bounds: f"must be less than {_number(bounds['lt'])}",
    "finite_number": lambda _: "must be a finite number",
    "literal_error": lambda bounds: f"must be {_IN_JSON.get(bounds['expected'], bounds['expected'])}",
    "too_short": lambda bounds: f"must have at least {_of(bounds['min_length'], 'list')}",
    "too_long": lambda bounds: f"must have at most {_of(bounds['max_length'], 'list')}",
    "string_too_short": lambda bounds: f"must have at least {_of(bounds['min_length'], 'str')}",
    "string_too_long": lambda bounds: f"must have at most {_of(bounds['max_length'], 'str')}",
    "value_error": lambda bounds: str(bounds["error"]),
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

_IN_HEADERS = re.compile(r" - at `\$\.?(?P<path>[^`]*\bheaders)(?P<dots>\[\.\.\.\])`$")
"""The place of a value in a message's headers, of which msgspec does not tell the name."""

# msgspec's whole sentences.
_WRONG_TYPE = re.compile(r"Expected `(?P<wanted>[^`]*)`(?:, got `(?P<got>[^`]*)`)?")
_LENGTH = re.compile(r"Expected `(?P<kind>[^`]*)` of length (?:(?P<sign>[<>]=|==) )?(?P<bound>\d+)(?:, got \d+)?")
_RANGE = re.compile(r"Expected `[^`]*` (?P<sign>[<>]=?) (?P<bound>[-\d.e+]+)")
_PATTERN = re.compile(r"Expected `[^`]*` matching regex (?P<pattern>.*)", re.DOTALL)
_MEMBER = re.compile(r"Object (?P<how>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_UNKNOWN = "Object contains unknown field"
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")  # of a path
_TOO_LARGE = "is a number that is too large to be read: send one below 1.8e308"
_WHOLE: dict[str, str] = {
    "Number out of range": _TOO_LARGE,
    "Integer value out of range": _TOO_LARGE,
    "Invalid base64 encoded string": (
        "must be base64 of the standard alphabet (A-Z, a-z, 0-9, + and /) with its padding (=)"
    ),
    "Invalid RFC3339 encoded datetime": "must be a time as in RFC 3339, such as 2026-11-20T09:00:00Z",
    "Invalid RFC3339 encoded date": "must be a date such as 2026-11-20",
    "Invalid RFC3339 encoded time": "must be a time of day such as 09:00:00",
    "Invalid ISO8601 duration": "must be a duration as in ISO 8601, such as PT90S",
    "Invalid UUID": "must be a UUID",
    "Invalid decimal string": "must be a decimal number",
}
_ENUM = "Invalid enum value "
_NO_CHOICE = re.compile(rf"{_ENUM}|Expected `[^`]*`(?:, got|$)")
"""What msgspec says of a value that is none of the words of a choice, or no word at all."""

_SIGNS = {">=": "at least", "<=": "at most", "==": "exactly", ">": "more than", "<": "less than"}

_MSGPACK_FAULTS: dict[type[Exception], str] = {
    UnicodeDecodeError: " whose texts are UTF-8",
    RecursionError: " of a sensible depth",
}

_PLACE_IN_JSON = re.compile(r"(?:byte (?P<byte>\d+)|line (?P<line>\d+) column (?P<column>\d+))")


def of_pydantic(fault: Mapping[str, Any]) -> str:
    """Returns a sentence without its subject, the field, for one of the ``errors()`` of a ``ValidationError``."""
    kind, bounds = fault["type"], fault.get("ctx", {})
    if kind in _PYDANTIC:
        return _PYDANTIC[kind](bounds)
    expected = _PYDANTIC_TYPES.get(kind.partition("_")[0])
    return _OTHERWISE if expected is None else f"must be {_TYPES[expected]}"


def decode(decoder: msgspec.json.Decoder[T], data: bytes, *, noun: str = "the body") -> T:
    """Decodes a value, such as the body of a request. Raises ``Rejected``, whose message calls the value by this
    ``noun``."""
    return _decoded(decoder, data, noun, lambda error: not_json(data, str(error), noun))


def decode_msgpack(decoder: msgspec.msgpack.Decoder[T], data: bytes, *, noun: str = "the body") -> T:
    """Decodes a value from msgpack, as ``decode`` does from JSON. Raises ``Rejected``."""
    return _decoded(decoder, data, noun, lambda error: _not_msgpack(data, error, noun))


def _decoded(
    decoder: msgspec.json.Decoder[T] | msgspec.msgpack.Decoder[T],
    data: bytes,
    noun: str,
    malformed: Callable[[Exception], Rejected],
) -> T:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        text = _with_name(str(error), lambda: type(decoder)().decode(data))
        raise _misfit(text, noun, decoder.type, is_own=error.__cause__ is not None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(error) from None


def convert(kind: type[T], texts: Mapping[str, str], *, noun: str = "the request") -> T:
    """Returns the value that texts describe, such as the parameters of a query. No text stands for null. Raises
    ``Rejected``."""
    try:
        value = msgspec.convert(texts, kind, strict=False)
        if nulls := _nulls(value, texts):
            msgspec.convert({**texts, **nulls}, kind, strict=False)
        return value
    except msgspec.ValidationError as error:
        text = str(error).replace(", got `str`", "")  # all of them are texts
        raise _misfit(text, noun, kind, is_own=error.__cause__ is not None) from None


def _nulls(value: Any, texts: Mapping[str, str]) -> dict[str, str]:
    """Returns the fields whose text msgspec has read as null, with a text that it reads as nothing: the caller would
    take such a field for one that was left out."""
    absent = {name for name, field in msgspec.to_builtins(value).items() if field is None}
    return dict.fromkeys(absent & texts.keys(), "")


def _with_name(text: str, read: Callable[[], Any]) -> str:
    """Returns the message of a decoder with the name of a header in place of the three dots in its path. ``read``
    returns the whole value. Returns the message unchanged where no header is at fault."""
    match = _IN_HEADERS.search(text)
    breaks = None if match is None else _broken_value(text[: match.start()])
    if match is None or breaks is None:
        return text
    try:
        headers = _value_at(read(), match["path"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text  # what follows the fault is malformed
    entries = headers if isinstance(headers, dict) else {}
    name = next((name for name, header in entries.items() if isinstance(name, str) and breaks(header)), None)
    if name is None:
        return text
    quotable = name[:QUOTED_CHARACTERS].replace("`", "'")  # a backtick ends the path in a message of msgspec
    return f"{text[: match.start('dots')]}.{quotable}`"


def _value_at(value: Any, path: str) -> Any:
    """Returns the part of a value at a path; None if there is none, as where a name stands twice in an object."""
    for step in _STEP.findall(path):
        index = int(step[1:-1]) if step.startswith("[") else None
        if isinstance(value, dict) and index is None:
            value = value.get(step)
        elif isinstance(value, list) and index is not None and index < len(value):
            value = value[index]
        else:
            return None
    return value


def _broken_value(what: str) -> Callable[[Any], bool] | None:
    """Returns whether a value is at fault, by what msgspec says of it; None if no value but another part is."""
    if length := _LENGTH.fullmatch(what):
        most = int(length["bound"])
        return lambda value: isinstance(value, str) and len(value) > most
    return (lambda value: not isinstance(value, str)) if _WRONG_TYPE.fullmatch(what) else None


def _not_msgpack(data: bytes, error: Exception, noun: str) -> Rejected:
    if not data:
        return Rejected("msgpack-invalid", f"{noun} is empty: send a map")
    what = _MSGPACK_FAULTS.get(type(error), _place_in_json(str(error)))
    return Rejected("msgpack-invalid", f"{noun} is not msgpack{what}: send one map, and nothing after it")


def not_json(data: bytes, reason: str, noun: str = "the body") -> Rejected:
    """Returns the error for bytes that are no JSON. ``reason`` is the message of the parser."""
    if not data:
        return Rejected("json-invalid", f"{noun} is empty: send a JSON object")
    return Rejected("json-invalid", f"{noun} is not JSON in UTF-8{_place_in_json(reason)}: send a JSON object")


def _misfit(text: str, noun: str, kind: Any, *, is_own: bool) -> Rejected:
    """Returns the error for a message of msgspec, which says what is wrong and where in one sentence. ``kind`` is the
    type of the whole value. ``is_own``: a record itself found the fault, and has a whole sentence."""
    what, path = _parts(text)
    field, name = path[:QUOTED_CHARACTERS] or None, path.rpartition(".")[2]
    if is_own:
        return Rejected("field-invalid", f"{field}: {what}" if field else what, field=field)
    if name in _NAMES and ("length" in what or "matching" in what):
        return Rejected("name-invalid", f"{field} must match {NAME_PATTERN}", field=field)
    if words := _allowed(what, kind, path):
        return Rejected("field-invalid", f"{field or noun} must be {words}", field=field)
    fields = _known_fields(kind, path) if what.startswith(_UNKNOWN) else ""
    return Rejected("field-invalid", _sentence(what, path, noun) + fields, field=field)


def of_msgspec(text: str, noun: str = "the body") -> str:
    """Returns a sentence for the text of a ``ValidationError``. Its subject is the field, or without a field this
    ``noun``."""
    return _sentence(*_parts(text), noun)


def _parts(text: str) -> tuple[str, str]:
    """Returns what is wrong, as msgspec says it, and the path of the field ("": the whole value)."""
    # msgspec quotes names at full length, and a name may have megabytes.
    if len(text) > _TEXT_CHARACTERS:
        text = text[: _TEXT_CHARACTERS // 2] + text[-_TEXT_CHARACTERS // 2 :]
    match = _PLACE.fullmatch(text)
    what, path = (match["what"], match["path"] or "") if match else (text, "")
    member = _MEMBER.fullmatch(what)
    if member:
        path = f"{path}.{member['name']}".lstrip(".")
    return what, path


def _sentence(what: str, path: str, noun: str) -> str:
    return f"{path[:QUOTED_CHARACTERS] or noun} {_of_msgspec(what)[:QUOTED_CHARACTERS]}"


def _of_msgspec(text: str) -> str:
    """Returns a sentence without its subject, the field, for the text of a ``ValidationError`` without its path."""
    if match := _WRONG_TYPE.fullmatch(text):
        return f"must be {_types(match['wanted'])}" + (f", got {_types(match['got'])}" if match["got"] else "")
    if match := _LENGTH.fullmatch(text):
        return f"must have {_SIGNS[match['sign'] or '==']} {_of(int(match['bound']), match['kind'])}"
    if match := _RANGE.fullmatch(text):
        return f"must be {_SIGNS[match['sign']]} {match['bound'].removesuffix('.0')}"
    if match := _PATTERN.fullmatch(text):
        return f"must match {match['pattern']}"
    if match := _MEMBER.fullmatch(text):
        return "is missing" if match["how"] == "missing required" else "is unknown here"
    return "is none of the allowed values" if text.startswith(_ENUM) else _WHOLE.get(text, _OTHERWISE)


def _place_in_json(text: str) -> str:
    """Returns the position at which a parser of JSON failed, as " (byte 7)"; "" if its message names none."""
    match = _PLACE_IN_JSON.search(text)
    if match is None:
        return ""
    return f" (byte {match['byte']})" if match["byte"] else f" (line {match['line']}, column {match['column']})"


def _types(text: str) -> str:
    """Returns the types that are allowed. Null is left out beside others, since it says what leaving the field out
    says, and whole numbers are left out beside numbers."""
    names = text.replace("int | float", "float").split(" | ")
    named = [name for name in names if name != "null"] or names
    return " or ".join(_TYPES.get(name, "something else") for name in named)


def _known_fields(kind: Any, path: str) -> str:
    """Returns, as the end of a sentence, the names of the fields beside an unknown one of this path; "" where the type
    does not tell."""
    nodes = _nodes(kind, _STEP.findall(path)[:-1])
    return known_fields(field.encode_name for node in nodes for field in getattr(node, "fields", ()))


def _allowed(what: str, kind: Any, path: str) -> str:
    """Returns the words of a choice, or the bounds of a number that is too large to be read. Returns "" for another
    fault, and where the type does not tell."""
    if _WHOLE.get(what) == _TOO_LARGE:
        return _bounds(_nodes(kind, _STEP.findall(path)))
    return _words(_nodes(kind, _STEP.findall(path))) if _NO_CHOICE.match(what) else ""


def _bounds(nodes: Iterable[Any]) -> str:
    """Returns the bounds of a number, as "from 1 to 64"; "" for one that has none on one side."""
    bounds: list[tuple[Any, Any]] = [(getattr(node, "ge", None), getattr(node, "le", None)) for node in nodes]
    return next((f"from {_number(low)} to {_number(high)}" for low, high in bounds if None not in (low, high)), "")


def _words(nodes: Iterable[Any]) -> str:
    """Returns the values of a choice, as "'start' or 'end'"; "" for another field."""
    values = [value for node in nodes for value in getattr(node, "values", ())]
    *others, last = [_IN_JSON.get(repr(value), repr(value)) for value in values] or [""]
    return " or ".join(filter(None, (", ".join(others), last)))


def _nodes(kind: Any, steps: Iterable[str]) -> list[Any]:
    """Returns the types to which the steps of a path lead from a type."""
    from msgspec import inspect  # for refused requests alone

    nodes: list[Any] = [inspect.type_info(kind)]
    for step in steps:
        nodes = [below for node in nodes for below in _below(inspect, node, step)]
    return nodes


def _below(inspect: Any, node: Any, step: str) -> list[Any]:
    """Returns the types that a step of a path, such as ``messages`` or ``[3]``, leads to from a type."""
    plain = (kind.type if isinstance(kind, inspect.Metadata) else kind for kind in _kinds(inspect, node, step))
    return [choice for kind in plain for choice in getattr(kind, "types", (kind,))]


def _kinds(inspect: Any, node: Any, step: str) -> list[Any]:
    """Returns the declared types of the fields, or of the entries, to which a step leads."""
    if isinstance(node, inspect.StructType):
        return [field.type for field in node.fields if field.encode_name == step]
    below = getattr(node, "item_type", None) or getattr(node, "value_type", None)
    return [below] if below is not None and step.startswith("[") else []


def known_fields(names: Iterable[str]) -> str:
    """Returns the end of a sentence about an unknown field: the names of the fields that exist; "" without any."""
    listed = ", ".join(dict.fromkeys(names))
    return f": the fields are {listed}" if listed else ""


def _number(bound: float) -> str:
    if bound == int(bound):
        return str(int(bound))
    return f"{bound:.15g}"  # all digits of a whole number: ``:g`` alone turns a million into 1e+06


def _of(number: int, kind: str) -> str:
    singular, plural = ("character", "characters") if kind == "str" else ("entry", "entries")
    return f"{number} {singular if number == 1 else plural}"
