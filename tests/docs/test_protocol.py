"""docs/reference/formats.md names the modules that draw the stored formats."""

import re

import pytest

from tests.docs.pages import ROOT

PAGES = [(ROOT / page).read_text() for page in ("docs/protocol.md", "docs/reference/formats.md")]
LIBRARY = ROOT / "layers/hourwheel/python/hourwheel"

MODULES = sorted({name for page in PAGES for name in re.findall(r"`([a-z_/]+\.py)`", page)})

_DRAWN = re.compile(r"^ *partition {2,}", re.MULTILINE)


@pytest.mark.parametrize("module", MODULES)
def test_the_module_that_the_page_names_exists(module: str) -> None:
    assert (LIBRARY / module).is_file()


def test_each_module_that_draws_a_record_stands_in_the_page() -> None:
    drawing = {str(path.relative_to(LIBRARY)) for path in LIBRARY.rglob("*.py") if _DRAWN.search(path.read_text())}
    assert drawing - set(re.findall(r"`([a-z_/]+\.py)`", PAGES[1])) == set()
