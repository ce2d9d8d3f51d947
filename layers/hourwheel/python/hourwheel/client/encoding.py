"""Encodes objects as the bodies of messages: JSON, which consumers in every language read."""

from typing import Any, get_args

import msgspec


def encoded_body(body: Any) -> Any:
    """Returns the JSON of a pydantic model, a msgspec struct, a dataclass, a dictionary or a list; anything else as it
    is."""
    if isinstance(body, dict | list | msgspec.Struct) or is_pydantic(type(body)) or is_dataclass(type(body)):
        return _encode(body).decode()
    return body


def _encode(body: Any) -> bytes:
    if is_pydantic(type(body)):
        encoded: bytes = type(body).__pydantic_serializer__.to_json(body, by_alias=True)
        return encoded
    return msgspec.json.encode(body, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Returns a value within a body that msgspec does not know as values that it knows."""
    if is_pydantic(type(value)):
        return type(value).__pydantic_serializer__.to_python(value, mode="json", by_alias=True)
    raise TypeError(f"a body cannot contain {title_of(type(value))}: JSON has no form for it")


def is_pydantic(kind: Any) -> bool:
    """Returns whether this is a model or a dataclass of pydantic, without importing pydantic."""
    return isinstance(kind, type) and "__pydantic_validator__" in vars(kind)


def is_dataclass(kind: type) -> bool:
    return hasattr(kind, "__dataclass_fields__")  # without the import of dataclasses, which takes 5 ms


def title_of(annotation: Any) -> str:
    """Returns how sentences name a type."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
