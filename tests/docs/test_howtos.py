"""The how-tos: a page each, whose example runs. Those of frameworks run in ``tests/apps/test_howtos.py``."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import HOWTOS, HOWTOS_OF_FRAMEWORKS, blocks
from tests.docs.walks import walked

_MOST_WORDS = 700
_SIZING = Path(__file__).parents[2] / "docs/howto/sizing.md"
_FROM = re.compile(r"^\| (.+) \| (.+) \| \[.+\]\(\.\./(\w+\.md).*\) \|$", re.MULTILINE)
_NUMBER = re.compile(r"\d+(?:[,.]\d+)*")
_SECTIONS = ["## What maps to what", "## The whole program", "## What is different", "## What to watch"]


@pytest.mark.parametrize("page", sorted({*HOWTOS} - {*HOWTOS_OF_FRAMEWORKS}), ids=lambda page: page.stem)
def test_a_reader_of_the_page_sees_what_it_shows(page: Path, tmp_path: Path) -> None:
    with walked(page, tmp_path):
        pass


@pytest.mark.parametrize("page", HOWTOS, ids=lambda page: page.stem)
def test_the_page_is_one_page_with_an_example(page: Path) -> None:
    text = page.read_text()
    assert len(text.split()) <= _MOST_WORDS
    assert {"sh", "text"} <= {block.language for block in blocks(page)}
    assert text.startswith("# ")


@pytest.mark.parametrize("page", [page for page in HOWTOS if page.stem != "sizing"], ids=lambda page: page.stem)
def test_the_page_has_the_sections_of_a_how_to(page: Path) -> None:
    assert [line for line in page.read_text().splitlines() if line.startswith("## ")] == _SECTIONS


@pytest.mark.parametrize(("what", "value", "source"), _FROM.findall(_SIZING.read_text()))
def test_a_number_of_the_sizing_stands_in_the_page_that_it_comes_from(what: str, value: str, source: str) -> None:
    given = set(_NUMBER.findall((_SIZING.parents[1] / source).read_text()))
    assert set(_NUMBER.findall(value)) - given == set(), what


def test_the_sizing_names_the_sources_of_its_numbers() -> None:
    assert {source for _, _, source in _FROM.findall(_SIZING.read_text())} == {
        "benchmarks.md",
        "costs.md",
        "operating.md",
    }
