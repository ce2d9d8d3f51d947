"""Encodes objects as the bodies of messages, in JSON, which consumers in every language can read."""

from typing import Any, get_args

import msgspec

_LEAVES = frozenset({str, int, float, bool, type(None)})
_PARENTS = (dict, list, tuple)
_SETS = (set, frozenset)


def encoded_body(body: Any) -> str | bytes:
    """Returns the JSON of a pydantic model, a msgspec struct, a dataclass, a dictionary or a list, and text or bytes
    unchanged. Raises ``TypeError`` for any other value, also for a number, as ``bytes(5)`` would be five zeros."""
    if isinstance(body, dict | list):
        encoded = _encode(body).decode()
        _check_no_sets(body)
        return encoded
    if isinstance(body, msgspec.Struct) or is_pydantic(type(body)) or is_dataclass(type(body)):
        return _encode(body).decode()
    if isinstance(body, str | bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(
        "a body is text, bytes, a dict, a list, a dataclass, a TypedDict, a pydantic model or a msgspec struct, not "
        + title_of(type(body))
    )


def _check_no_sets(body: Any) -> None:
    """Raises ``TypeError`` for a set within dictionaries, lists and tuples: msgspec would write it as a list, and the
    handler would get a list. Allows sets in the fields of objects, which a handler that takes the object gets back as
    sets."""
    parents = [body]
    for parent in parents:  # the list grows while the loop goes over it
        for value in parent.values() if isinstance(parent, dict) else parent:
            kind = value.__class__
            if kind in _LEAVES:
                continue
            if isinstance(value, _PARENTS):
                parents.append(value)
            elif isinstance(value, _SETS):
                raise _no_form(kind)


def _encode(body: Any) -> bytes:
    if is_pydantic(type(body)):
        encoded: bytes = type(body).__pydantic_serializer__.to_json(body, by_alias=True)
        return encoded
    return msgspec.json.encode(body, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Returns a value that msgspec cannot encode as values that it can. Raises ``TypeError``."""
    if is_pydantic(type(value)):
        return type(value).__pydantic_serializer__.to_python(value, mode="json", by_alias=True)
    raise _no_form(type(value))


def _no_form(kind: type) -> TypeError:
    return TypeError(f"a body cannot contain {title_of(kind)}: JSON has no form for it")


def is_pydantic(kind: Any) -> bool:
    """Returns whether a type is a model or a dataclass of pydantic, without importing pydantic."""
    return isinstance(kind, type) and "__pydantic_validator__" in vars(kind)


def is_dataclass(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__")  # without the import of dataclasses, which takes 5 ms


def title_of(annotation: Any) -> str:
    """Returns the name of a type for a sentence."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
