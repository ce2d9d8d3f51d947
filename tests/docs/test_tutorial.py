"""docs/tutorial.md runs from its first block to its last, in an empty folder, and prints what it shows."""

import urllib.request
from pathlib import Path

from tests.docs.pages import ROOT
from tests.docs.walks import walked


def test_a_reader_of_the_tutorial_sees_what_it_shows(tmp_path: Path) -> None:
    with walked(ROOT / "docs/tutorial.md", tmp_path) as walk, urllib.request.urlopen(walk.url + "/console/") as page:
        assert b"Hourwheel" in page.read()
