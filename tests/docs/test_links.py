"""Links between pages lead to a file that exists, and to a heading in it."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

LINKING = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/**/*.md")])

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def targets(page: Path) -> list[str]:
    found = _LINK.findall(_CODE.sub("", page.read_text()))
    return [target for target in found if not target.startswith(("https://", "http://", "mailto:"))]


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub and the site give to headings."""
    headings = _HEADING.findall(re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=[str(page.relative_to(ROOT)) for page in LINKING])
def test_each_link_of_the_page_leads_somewhere(page: Path) -> None:
    broken = []
    for target in targets(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_the_readme_has_links() -> None:
    assert len(targets(ROOT / "README.md")) > 10
