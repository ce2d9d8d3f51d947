"""Every public name has a docstring in one format: prose, then ``Returns:``, ``Raises:`` and ``Example:``.

A function says which errors it raises, or ``Raises nothing.``; what takes an argument names its unit; a class and a
function show one example.
"""

import ast
import inspect
import re
import textwrap

import pytest

from tests.docs.names import MODULES, Public, public

NAMES = public(MODULES)
CALLED = [each for each in NAMES if not each.is_property]
FUNCTIONS = [each for each in CALLED if not each.is_class]

_SECTION = re.compile(r"^([A-Z][a-z]+):$", re.MULTILINE)
_SECTIONS = ["Returns", "Raises", "Example"]
_NOUNS_OF_OTHERS = re.compile(r"^(Who|What|Whoever|Whether it|The same|It|They) ")


def labels(names: list[Public]) -> list[str]:
    return [each.name for each in names]


@pytest.mark.parametrize("each", NAMES, ids=labels(NAMES))
def test_it_has_a_docstring_that_begins_with_a_sentence(each: Public) -> None:
    first = each.text.split("\n\n")[0]
    assert first.endswith((".", ":")), first
    assert len(first) > 15
    assert not _NOUNS_OF_OTHERS.match(first), first


@pytest.mark.parametrize("each", NAMES, ids=labels(NAMES))
def test_its_sections_are_the_three_and_in_order(each: Public) -> None:
    found = _SECTION.findall(each.text)
    assert found == [name for name in _SECTIONS if name in found]


@pytest.mark.parametrize("each", CALLED, ids=labels(CALLED))
def test_it_shows_an_example(each: Public) -> None:
    assert "\nExample:\n    >>> " in each.text


@pytest.mark.parametrize("each", CALLED, ids=labels(CALLED))
def test_it_says_what_it_raises(each: Public) -> None:
    says_nothing, says = "\nRaises nothing." in each.text, "\nRaises:\n" in each.text
    if each.is_class:
        assert says or not hasattr(each.thing, "__post_init__")  # where a record checks itself
    else:
        assert says is not says_nothing


@pytest.mark.parametrize("each", FUNCTIONS, ids=labels(FUNCTIONS))
def test_each_error_that_it_raises_itself_is_named(each: Public) -> None:
    tree = ast.parse(textwrap.dedent(inspect.getsource(each.thing)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    names = [error.func.id for error in raised if isinstance(error.func, ast.Name)]
    assert [name for name in names if name not in each.text] == []


def test_names_that_are_not_public_are_not_walked() -> None:
    assert "hourwheel.client.Api.produce" in labels(NAMES)
    assert not [name for name in labels(NAMES) if "._" in name]
