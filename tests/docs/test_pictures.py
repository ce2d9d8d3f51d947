"""The drawn pictures of the pages: small, described for people who do not see them, right in light and dark."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.pages import ROOT

PICTURES = sorted((ROOT / "docs/pictures").glob("*"))
SHOWING = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]

_SVG = "{http://www.w3.org/2000/svg}"
_NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'
_MOST_BYTES = 8_000
_SHOWN = re.compile(r"!\[([^\]]+)\]\(([^)]+\.svg)\)")


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_the_picture_says_in_words_what_it_shows(picture: Path) -> None:
    root = ElementTree.fromstring(picture.read_bytes())
    assert root.tag == f"{_SVG}svg"
    title, about = (root.findtext(f"{_SVG}{name}", "") for name in ("title", "desc"))
    assert len(title) > 5
    assert len(about) > 100
    assert root.get("aria-labelledby") == "title about"
    assert {each.get("id") for each in root if each.tag in {f"{_SVG}title", f"{_SVG}desc"}} == {"title", "about"}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_the_picture_is_small_loads_nothing_and_has_colours_for_the_dark(picture: Path) -> None:
    text = picture.read_text()
    assert len(text.encode()) < _MOST_BYTES
    assert text.count(_NAMESPACE) == 1
    assert re.findall(r"//|@import|<script|<image|<foreignObject|href=", text.replace(_NAMESPACE, "")) == []
    assert "@media (prefers-color-scheme: dark)" in text


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_the_picture_defines_each_colour_twice_and_uses_no_other(picture: Path) -> None:
    text = picture.read_text()
    light, dark = (set(re.findall(r"(--\w+):", part)) for part in text.partition("@media")[::2])
    assert light == dark
    assert set(re.findall(r"var\((--\w+)\)", text)) <= light
    assert re.findall(r'(?:fill|stroke)="(?!none)', text) == []


def test_each_picture_is_shown_by_a_page_and_described_there() -> None:
    shown = {
        (page.parent / path).resolve(): words for page in SHOWING for words, path in _SHOWN.findall(page.read_text())
    }
    assert sorted(shown) == PICTURES
    assert [words for words in shown.values() if len(words) < 20] == []
