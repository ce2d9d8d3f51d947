"""The docstrings of ``hourwheel.testing`` have the format of the client's, and their examples run."""

import asyncio
import doctest

import pytest

import hourwheel.testing
from hourwheel.apps.testing import queue
from tests.docs.docstrings import faults
from tests.docs.names import public

PUBLIC = public((hourwheel.testing,))
EXAMPLES = doctest.DocTestFinder().find(queue, globs={**vars(queue), "asyncio": asyncio})


def test_each_docstring_says_what_a_caller_has_to_know() -> None:
    assert [f"{each.name}: {fault}" for each in PUBLIC for fault in faults(each)] == []


@pytest.mark.parametrize("each", EXAMPLES, ids=lambda each: each.name)
def test_each_example_runs(each: doctest.DocTest) -> None:
    assert doctest.DocTestRunner().run(each).failed == 0
