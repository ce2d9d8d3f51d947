"""``make docs``: the site loads nothing from elsewhere, its links lead somewhere, and it has every public name."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import hourwheel.client
from tests.docs.names import CLIENT, public

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/docs"
PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_FOREIGN = re.compile(r"(https?:)?//")


class Page(HTMLParser):
    """Collects the files that a page loads, its links, and the names of its parts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.loads: list[str] = []
        self.links: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if target := given.get(_LOADED.get(tag, "")):
            self.loads.append(target)
        if tag == "a" and (target := given.get("href")):
            self.links.append(target)
        if name := given.get("id"):
            self.names.add(name)


@pytest.fixture(scope="module")
def pages() -> dict[Path, Page]:
    if not PAGES:
        pytest.fail("there is no site in build/docs: make docs", pytrace=False)
    return {path: Page(path) for path in PAGES}


def test_no_page_loads_anything_from_elsewhere(pages: dict[Path, Page]) -> None:
    assert [(page.path.name, each) for page in pages.values() for each in page.loads if _FOREIGN.match(each)] == []
    sheets = [*SITE.rglob("*.css"), *PAGES]
    assert [path for path in sheets if re.search(r"url\(\W?(https?:)?//|@import", path.read_text())] == []


def test_each_link_leads_to_a_page_and_to_a_part_of_it(pages: dict[Path, Page]) -> None:
    broken = []
    for page in pages.values():
        for target in page.links:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            names = pages[file].names if file in pages else None
            if not file.exists() or (parts.fragment and names is not None and unquote(parts.fragment) not in names):
                broken.append((str(page.path.relative_to(SITE)), target))
    assert broken == []


def test_the_reference_has_each_public_name(pages: dict[Path, Page]) -> None:
    names = pages[SITE / "docs/reference/client.html"].names
    missing = [each.name for each in public(CLIENT) if each.name not in names]
    assert missing == []
    assert "hourwheel.client.Api.produce" in names
    assert hourwheel.client.__all__


def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Title\n\n[nowhere](docs/nothing.md), [no part](#nothing)\n")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", str(ROOT / "docs/site"), str(tmp_path)]
    done = subprocess.run([*command, str(tmp_path / "site")], capture_output=True, text=True)
    assert done.returncode == 1
    assert "docs/nothing.md" in done.stderr
    assert "#nothing" in done.stderr or "'nothing'" in done.stderr
