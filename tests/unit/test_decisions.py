"""The list of decisions names each page, in order."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs/decisions"


def test_each_decision_is_listed_under_its_number() -> None:
    listed = re.findall(r"^- \[(\d+)\]\((.+?)\): ", (FOLDER / "README.md").read_text(), re.MULTILINE)
    pages = sorted(page.name for page in FOLDER.glob("0*.md"))
    assert [(f"{int(number):04d}", page) for number, page in listed] == [(page[:4], page) for page in pages]
    assert all((FOLDER / page).read_text().startswith(f"# {number}. ") for number, page in listed)
