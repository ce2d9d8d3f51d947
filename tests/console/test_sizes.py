"""The pages and the picture of them are small."""

import gzip

from hourwheel.console.files import contents
from tests.console.chromium import ROOT
from tests.console.screenshot import MOST_BYTES, PICTURE

MOST_COMPRESSED_BYTES = 150 * 1024


def test_the_pages_are_small() -> None:
    whole = sum(len(gzip.compress(file.plain)) for name, file in contents().items() if name)
    assert whole < MOST_COMPRESSED_BYTES


def test_the_picture_in_the_readme_is_there_and_small() -> None:
    assert "](docs/console.png)" in (ROOT / "README.md").read_text()
    picture = PICTURE.read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) <= MOST_BYTES
