"""Keeps the fields of a stored record that this version does not know, when the record is rewritten.

At each upgrade, and after a roll-back, two versions work on the same records. The older one reads what the newer one
has stored, changes what it knows, and must leave the rest. Both forms of records are followed, at any depth: maps,
where unknown fields have unknown names, and arrays, where they follow the known ones.

An element of a list is found again by what this version knows of it: all of it, then the fields that name it. Its type
states their number in ``NAMED_BY``; 0 for elements that are named by their place in the list. An element that was
removed takes its unknown fields along.
"""

import types
import typing
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import islice
from typing import Any, TypeAlias

import msgspec

_Keep: TypeAlias = Callable[[Any, Any], Any]
"""Returns a value as it is to be stored, made of what was stored and of what this version stores, both without types.
"""


def with_kept(kind: Any, stored: bytes, data: bytes) -> bytes:
    """Returns the encoded record ``data`` of a type with the unknown fields of the ``stored`` one."""
    keep = _kept_of(kind)
    if keep is None:
        return data
    return msgspec.msgpack.encode(keep(msgspec.msgpack.decode(stored), msgspec.msgpack.decode(data)))


@cache
def _kept_of(kind: Any) -> _Keep | None:
    """Returns how to keep what a value of the type has; None for a type without records."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return partial(_keep_in_array if kind.__struct_config__.array_like else _keep_in_map, kind)
    # ``Annotated`` has numbers and words of requests, and no records.
    kept = [_kept_of(part) for part in parts if origin in _WITH_PARTS]
    return _HOW[origin](parts, kept) if any(kept) else None


def _kept_in_union(_: tuple[Any, ...], kept: list[_Keep | None]) -> _Keep:
    # Two records in one union would need a tag to tell which of them was stored; no stored type has such a union.
    (keep,) = filter(None, kept)
    return keep


def _kept_in_tuple(parts: tuple[Any, ...], kept: list[_Keep | None]) -> _Keep:
    return partial(_keep_elements, parts[0]) if parts[-1] is Ellipsis else partial(_keep_places, kept)


def _kept_in_list(parts: tuple[Any, ...], _: list[_Keep | None]) -> _Keep:
    return partial(_keep_elements, parts[0])


def _kept_in_dict(_: tuple[Any, ...], kept: list[_Keep | None]) -> _Keep:
    keep = kept[1]
    assert keep is not None  # the names of a map are no records
    return partial(_keep_values, keep)


def _keep_in_map(kind: type[msgspec.Struct], stored: Any, value: Any) -> Any:
    if not (isinstance(stored, dict) and isinstance(value, dict)):
        return value
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    shared = {name: _kept(fields[name], stored, name, value[name]) for name in value}
    return shared | {name: left for name, left in stored.items() if name not in fields}


def _keep_in_array(kind: type[msgspec.Struct], stored: Any, value: Any) -> Any:
    if not (isinstance(stored, list) and isinstance(value, list)):
        return value
    tags: list[Any] = [] if kind.__struct_config__.tag is None else [None]
    fields = [*tags, *(field.type for field in msgspec.structs.fields(kind))]
    numbered = dict(enumerate(stored))
    shared = [_kept(part, numbered, number, value[number]) for number, part in enumerate(fields)]
    return shared + stored[len(fields) :]


def _kept(kind: Any, stored: dict[Any, Any], name: Any, value: Any) -> Any:
    keep = _kept_of(kind)
    return value if keep is None or name not in stored else keep(stored[name], value)


def _keep_places(keeps: list[_Keep | None], stored: Any, value: Any) -> Any:
    if not (isinstance(stored, list) and isinstance(value, list)):
        return value
    return [new if keep is None else keep(old, new) for keep, old, new in zip(keeps, stored, value, strict=True)]


def _keep_values(keep: _Keep, stored: Any, value: Any) -> Any:
    if not (isinstance(stored, dict) and isinstance(value, dict)):
        return value
    return {name: keep(stored[name], new) if name in stored else new for name, new in value.items()}


def _keep_elements(kind: Any, stored: Any, value: Any) -> Any:
    if not (isinstance(stored, list) and isinstance(value, list)):
        return value
    named_by = named_by_of(kind)
    shared = _known(kind, stored)
    # Only elements with unknown fields have something to keep.
    left = {number: old for number, old in enumerate(stored) if shared[number] != old}
    result, keep = list(value), _kept_of(kind)
    assert keep is not None
    new = set(range(len(value)))
    for name_of in (_whole, partial(_first_fields, named_by)) if named_by else (_number,):
        for old_number, number in _pairs(name_of, {old: shared[old] for old in left}, {at: value[at] for at in new}):
            result[number] = keep(left.pop(old_number), value[number])
            new.remove(number)
    return result


def named_by_of(kind: Any) -> int:
    """Returns the number of first fields that name an element of this type; 0 if its place does. Pairs have a key."""
    return int(getattr(kind, "NAMED_BY", 1))


def _known(kind: Any, stored: list[Any]) -> list[Any]:
    """Returns the elements as this version would store them."""
    elements = msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=list[kind])
    shared: list[Any] = msgspec.msgpack.decode(msgspec.msgpack.encode(elements))
    return shared


def _pairs(
    name_of: Callable[[int, Any], Any], stored: dict[int, Any], value: dict[int, Any]
) -> Iterator[tuple[int, int]]:
    """Yields the numbers of stored elements and of new ones that have the same name. Of several with one name each is
    taken once, in their order."""
    named: dict[Any, list[int]] = {}
    for number, element in reversed(stored.items()):
        named.setdefault(name_of(number, element), []).append(number)
    for number in sorted(value):
        numbers = named.get(name_of(number, value[number]))
        if numbers:
            yield numbers.pop(), number


def _whole(_: int, element: Any) -> Any:
    return msgspec.msgpack.encode(element)


def _first_fields(count: int, _: int, element: Any) -> Any:
    fields = element.values() if isinstance(element, dict) else element
    return msgspec.msgpack.encode(list(islice(fields, count)))


def _number(number: int, _: Any) -> Any:
    return number


_HOW: dict[Any, Callable[[tuple[Any, ...], list[_Keep | None]], _Keep]] = {
    typing.Union: _kept_in_union,
    types.UnionType: _kept_in_union,
    list: _kept_in_list,
    frozenset: _kept_in_list,
    tuple: _kept_in_tuple,
    dict: _kept_in_dict,
}
_WITH_PARTS = _HOW.keys()
