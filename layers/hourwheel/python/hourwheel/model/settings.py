"""Declares the settings of a resource once, each with its bounds, its default and its texts.

A record lists its settings as fields, each ``Annotated`` with a ``Setting``. From these come the body of the request
that changes the settings, its schema and its table in the documentation, the options of the command line, and the
fields of the console's forms. The record itself has no bounds, so that a process reads what a later version stored or
answered under other bounds.
"""

from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType


class Setting(NamedTuple):
    """Declares what a setting does, and which values it takes."""

    title: str
    """The name of the setting in a form."""

    text: str
    """A phrase that says what the setting is. It may have links of Markdown, which go relative to ``docs/api``."""

    least: float | None = None
    """The smallest number."""

    most: float | None = None
    """The largest number."""

    zero: str = ""
    """What 0 stands for; "" if 0 is a number as any other."""

    fixed: bool = False
    """Whether the setting is chosen at creation and cannot change."""

    needs: str = ""
    """The setting without which this one has no effect and is refused; "" if there is none."""

    rises: bool = False
    """Whether the number can only grow."""


class DeclaredField(NamedTuple):
    """A setting of a record, under the name that it has in requests and answers."""

    name: str
    kind: Any
    default: Any
    setting: Setting

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that the setting takes; none if it takes numbers, or true and false."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def in_seconds(self) -> bool:
        return self.name.endswith("_seconds")

    @property
    def change(self) -> Any:
        """The type of the field in a request: bounded, and left out or null where the setting stays as it is."""
        bounds = {"ge": self.setting.least, "le": self.setting.most}
        bounded = self.kind if self.setting.least is None else Annotated[self.kind, Meta(**bounds)]  # type: ignore[arg-type]  # mypy knows one type for all of **bounds
        return Annotated[bounded | UnsetType | None, Meta(description=without_links(self.setting.text))]


@cache
def declared(record: type[Struct]) -> tuple[DeclaredField, ...]:
    """Returns the settings that a record declares, in the order of its fields."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(record)}
    hints = get_type_hints(record, include_extras=True)
    return tuple(
        DeclaredField(name, kind.__origin__, defaults[name], mark)
        for name, kind in hints.items()
        for mark in getattr(kind, "__metadata__", ())
        if isinstance(mark, Setting)
    )


@cache
def described(request: type[Struct]) -> tuple[DeclaredField, ...]:
    """Returns the fields of a request that have a title, each with its description and bounds, as settings."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(request)}
    return tuple(
        DeclaredField(name, kind.__origin__, defaults[name], Setting(mark.title, mark.description, mark.ge, mark.le))
        for name, hint in get_type_hints(request, include_extras=True).items()
        for kind in (hint, *get_args(hint))
        for mark in getattr(kind, "__metadata__", ())
        if isinstance(mark, Meta) and mark.title is not None and mark.description is not None
    )


def type_of_change(name: str, record: type[Struct], doc: str, **others: Any) -> type[Struct]:
    """Returns the type of a request that changes settings of a record. ``others`` are the types of further fields."""
    fields = {field.name: field.change for field in declared(record)}
    named = [(field, kind, UNSET) for field, kind in {**fields, **others}.items()]
    return msgspec.defstruct(
        name,
        named,
        namespace={"__doc__": doc},
        module=record.__module__,
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
    )


def named_fields(change: Struct) -> dict[str, Any]:
    """Returns the fields that a request names, with null as None."""
    return {name: value for name, value in msgspec.structs.asdict(change).items() if value is not UNSET}


def without_links(text: str) -> str:
    """Returns the text of Markdown with the words of its links alone."""
    beginning, *links = text.split("[")
    return beginning + "".join(link.replace("]", "", 1).partition("(")[0] + link.partition(")")[2] for link in links)
