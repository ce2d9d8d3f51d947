"""Finds the types of all stored records, by the calls of the library that read them."""

import ast
import importlib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

import hourwheel
from hourwheel.pull_log.ordered_rows import OrderedRow
from hourwheel.pull_log.records import PullRow

LIBRARY = Path(hourwheel.__file__).parent

# The raw value is a number in JSON as well as in msgpack.
_PLAIN: dict[Any, Any] = {
    str: "a",
    int: 7,
    float: 1.5,
    bool: True,
    bytes: b"b",
    memoryview: memoryview(b"b"),
    msgspec.Raw: msgspec.Raw(b"7"),
}

# Rooms that decode what others send, or what belongs to the program itself, and nothing from a store.
_NOT_STORED = {"client", "apps", "celery", "adapters", "aws", "cli", "console", "embedded", "wire"}
_REQUESTS = {"api/requests.py", "api/wire.py", "api/produce.py", "model/targets.py"}


def rewritten_types() -> list[Any]:
    """Returns the types of the records that are rewritten: those that ``CasRecord`` opens."""
    # The rows of a pull log have one type or the other, which the group decides.
    return _distinct([*(kind for call, kind in _found() if call == "CasRecord"), PullRow, OrderedRow])


def stored_types() -> list[Any]:
    """Returns the types of everything that is read from a store or an archive."""
    return _distinct([*rewritten_types(), *(kind for _, kind in _found())])


def structs_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yields the records of which a type consists, at any depth."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
        for field in msgspec.structs.fields(kind):
            yield from structs_in(field.type)
        return
    for part in typing.get_args(kind):
        yield from structs_in(part)


def listed_in(kind: Any) -> Iterator[type[msgspec.Struct]]:
    """Yields the records that are elements of lists of any length, at any depth."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, frozenset) or (origin is tuple and parts[-1] is Ellipsis):
        yield from (part for part in parts[:1] if isinstance(part, type) and issubclass(part, msgspec.Struct))
    fields = msgspec.structs.fields(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else ()
    for part in (*(field.type for field in fields), *parts):
        yield from listed_in(part)


def closed_forms(kind: Any) -> Iterator[type]:
    """Yields the named tuples of which a type consists, which have a fixed number of fields."""
    if is_closed(kind):
        yield kind
    fields = msgspec.structs.fields(kind) if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else ()
    for part in (*(field.type for field in fields), *typing.get_args(kind)):
        yield from closed_forms(part)


def is_closed(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _distinct(kinds: list[Any]) -> list[Any]:
    return list(dict.fromkeys(kind for kind in kinds if any(structs_in(kind))))


def _found() -> Iterator[tuple[str, Any]]:
    """Yields each type that a module decodes, with the name of the call."""
    for path in sorted(LIBRARY.rglob("*.py")):
        place = path.relative_to(LIBRARY).as_posix()
        if place.partition("/")[0] in _NOT_STORED or place in _REQUESTS:
            continue
        for call, node in _decoded(ast.parse(path.read_text())):
            module = importlib.import_module("hourwheel." + place.removesuffix(".py").replace("/", "."))
            names = {**vars(module), **dict.fromkeys(("S", "T"), object)}
            text = ast.unparse(node)
            if text not in ("kind", "self.kind", "self._kind", "list[kind]"):
                yield call, eval(text, names)


def _decoded(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("CasRecord"), [_, _, _, kind]):
                yield "CasRecord", kind
            case ast.Call(ast.Attribute(attr="Decoder"), [kind]):
                yield "Decoder", kind
            case ast.Call(ast.Attribute(attr="decode"), keywords=[ast.keyword("type", kind)]):
                yield "decode", kind


def sample(kind: Any) -> Any:
    """Returns a value of the type in which every field is filled, and every list has an element."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{field.name: sample(field.type) for field in msgspec.structs.fields(kind)})
    if origin is typing.Annotated:
        return sample(parts[0])
    if origin is typing.Literal:
        return parts[0]
    if origin in (typing.Union, types.UnionType):
        return sample(next((part for part in parts if any(structs_in(part))), parts[0]))
    if origin is tuple and parts[-1] is not Ellipsis:
        return tuple(sample(part) for part in parts)
    if origin in (list, tuple, frozenset):
        return origin([sample(parts[0])])
    if origin is dict:
        return {sample(parts[0]): sample(parts[1])}
    if is_closed(kind):
        return kind(*(sample(part) for part in typing.get_type_hints(kind).values()))
    return _PLAIN[kind]


def with_more(kind: Any, value: Any) -> Any:
    """Returns a value without types, as a later version would have stored it: each record has a field more."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        if isinstance(value, dict):
            known = {field.encode_name: field.type for field in fields}
            return {name: with_more(known[name], part) for name, part in value.items()} | {"later": {"new": [1]}}
        tag = [] if kind.__struct_config__.tag is None else [value[0]]
        places = zip(fields, value[len(tag) :], strict=True)
        return [*tag, *(with_more(field.type, part) for field, part in places), ["new", 1]]
    if value is None:
        return None
    if origin is typing.Annotated:
        return with_more(parts[0], value)
    if origin in (typing.Union, types.UnionType):
        return with_more(next((part for part in parts if any(structs_in(part))), None), value)
    if origin is tuple and parts[-1] is not Ellipsis:
        return [with_more(part, element) for part, element in zip(parts, value, strict=True)]
    if origin in (list, tuple, frozenset):
        return [with_more(parts[0], element) for element in value]
    if origin is dict:
        return {name: with_more(parts[1], element) for name, element in value.items()}
    return value
