"""Lists the public names of the library, and the examples in their docstrings."""

import inspect
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import hourwheel.client
import hourwheel.client.webhooks

CLIENT: tuple[ModuleType, ...] = (hourwheel.client, hourwheel.client.webhooks)

CALLS = "hourwheel.client.calls."
"""The modules of the base classes of ``Api``: each family of calls has one."""


class Public(NamedTuple):
    """A class, a function, or a method or property of a class."""

    name: str
    thing: Any

    @property
    def text(self) -> str:
        return inspect.cleandoc(self.thing.__doc__ or "")

    @property
    def is_class(self) -> bool:
        return inspect.isclass(self.thing)

    @property
    def is_property(self) -> bool:
        return isinstance(self.thing, property)


def public(modules: Iterable[ModuleType]) -> list[Public]:
    """Returns the names in ``__all__``, and the members of its classes that the package defines."""
    found: dict[str, Public] = {}
    for module in modules:
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                label = f"{module.__name__}.{name}"
                found[label] = Public(label, thing)
                found |= {each.name: each for each in members(label, thing)}
    return list(found.values())


def members(label: str, thing: Any) -> Iterator[Public]:
    families = [each for each in getattr(thing, "__mro__", ()) if each.__module__.startswith(CALLS)]
    for name, member in (item for each in [thing, *families] if inspect.isclass(each) for item in vars(each).items()):
        inner = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        copied = hasattr(inner, "__wrapped__")  # a coroutine of a call, documented where the call is
        if not name.startswith("_") and not copied and (inspect.isfunction(inner) or isinstance(inner, property)):
            yield Public(f"{label}.{name}", inner)
