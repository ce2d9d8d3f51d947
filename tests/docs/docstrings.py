"""Checks the format of docstrings: prose, then ``Returns:``, ``Raises:`` and ``Example:``.

A function says which errors it raises, or ``Raises nothing``; a class and a function show one example.
"""

import ast
import doctest
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from tests.docs.names import Public

_SECTION = re.compile(r"^([A-Z][a-z]+):$", re.MULTILINE)
_SECTIONS = ["Returns", "Raises", "Example"]
_NO_ACTOR = re.compile(r"^(Who|What|Whoever|Whether it|The same|It|They) ")


def faults(each: Public) -> Iterator[str]:
    """Yields the faults of the docstring, in words."""
    first, sections = each.text.split("\n\n")[0], _SECTION.findall(each.text)
    if not first.endswith((".", ":")) or len(first) < 16:
        yield "does not begin with a sentence"
    if _NO_ACTOR.match(first):
        yield "does not begin with a verb or a noun"
    if sections != [name for name in _SECTIONS if name in sections]:
        yield f"has other sections, or in another order: {sections}"
    if not each.is_property:
        yield from _faults_of_called(each)


def _faults_of_called(each: Public) -> Iterator[str]:
    nothing, something = "\nRaises nothing" in each.text, "\nRaises:\n" in each.text
    if "\nExample:\n    >>> " not in each.text:
        yield "shows no example"
    if each.is_class and hasattr(each.thing, "__post_init__") and not something:
        yield "checks itself, and does not say what it raises"
    if not each.is_class:
        if nothing is something:
            yield "does not say what it raises, or that it raises nothing"
        yield from (f"does not name {name}" for name in _raised(each.thing) if name not in each.text)


def _raised(function: Any) -> list[str]:
    """Returns the errors that the function makes and raises itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    errors = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    # A function that makes an error, such as ``unreachable``, has the error in its own contract.
    return [error.func.id for error in errors if isinstance(error.func, ast.Name) and error.func.id[0].isupper()]


def run_example(each: Public, text: str, names: Mapping[str, Any]) -> str:
    """Returns the faults of the example, as doctest reports them; empty where it prints what it says."""
    example = doctest.DocTestParser().get_doctest(text, dict(names), each.name, None, None)
    told: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=told.append)
    return "".join(told)
