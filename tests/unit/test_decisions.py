"""Each decision is listed in order with a date in one form, and each number is a page or says where it went."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/decisions"
LIST = (FOLDER / "README.md").read_text()
PAGES = {page.name: page.read_text() for page in sorted(FOLDER.glob("0*.md"))}
NEVER_USED = {60, 62, 63, 64, 66, 84}

_STATUS = re.compile(
    r"# .+\n\n\*Accepted on (20\d\d-\d\d-\d\d)\.(?: Replaced in part by (\[\d+\]\([\w-]+\.md\))\.)?\*\n\n"
)
_MOVED = re.compile(r"^\| (\d+) \| .+ \| (?:`(.+)`|\[\d+\]\((.+)\)) \|$", re.MULTILINE)


def test_each_decision_is_listed_under_its_number() -> None:
    listed = re.findall(r"^- \[(\d+)\]\((.+?)\): ", LIST, re.MULTILINE)
    assert [(f"{int(number):04d}", page) for number, page in listed] == [(page[:4], page) for page in PAGES]
    assert all(PAGES[page].startswith(f"# {number}. ") for number, page in listed)


def test_each_decision_has_its_status_and_its_date_in_one_form() -> None:
    assert [page for page, text in PAGES.items() if _STATUS.match(text) is None] == []


def test_a_number_without_a_page_says_where_the_decision_stands() -> None:
    moved = {int(number): file or page for number, file, page in _MOVED.findall(LIST)}
    assert [target for target in moved.values() if not ((ROOT / target).exists() or (FOLDER / target).exists())] == []
    numbers = [int(page[:4]) for page in PAGES]
    assert sorted([*numbers, *moved, *NEVER_USED]) == list(range(1, max(numbers) + 1))
