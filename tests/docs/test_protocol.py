"""docs/protocol.md names the modules that draw the stored formats."""

import re

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/protocol.md").read_text()
LIBRARY = ROOT / "layers/hourwheel/python/hourwheel"

MODULES = sorted(set(re.findall(r"`([a-z_/]+\.py)`", PAGE)))

_DRAWN = re.compile(r"^ *partition {2,}", re.MULTILINE)


@pytest.mark.parametrize("module", MODULES)
def test_the_module_that_the_page_names_exists(module: str) -> None:
    assert (LIBRARY / module).is_file()


def test_each_module_that_draws_a_record_stands_in_the_page() -> None:
    drawing = {str(path.relative_to(LIBRARY)) for path in LIBRARY.rglob("*.py") if _DRAWN.search(path.read_text())}
    assert drawing - set(MODULES) == set()
