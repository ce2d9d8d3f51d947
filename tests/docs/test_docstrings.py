"""Every public name of the client has a docstring in the format of ``docstrings.py``."""

import pytest

from tests.docs.docstrings import faults
from tests.docs.names import CLIENT, Public, members, public

NAMES = public(CLIENT)


@pytest.mark.parametrize("each", NAMES, ids=[each.name for each in NAMES])
def test_the_docstring_has_the_format(each: Public) -> None:
    assert list(faults(each)) == []


def test_methods_and_properties_are_walked_and_private_names_are_not() -> None:
    names = [each.name for each in NAMES]
    assert {"hourwheel.client.Api.produce", "hourwheel.client.Delivery.lost"} <= set(names)
    assert not [name for name in names if "._" in name]


def test_a_docstring_without_the_format_is_found() -> None:
    class Bad:
        def silent(self) -> None:
            """Does."""
            raise ValueError("no")

    (each,) = members("Bad", Bad)
    assert list(faults(each)) == [
        "does not begin with a sentence",
        "shows no example",
        "does not say what it raises, or that it raises nothing",
        "does not name ValueError",
    ]
