"""A suppression of the linter or of mypy names what it suppresses, and says why that is right."""

import re
from pathlib import Path

import pytest

from tests.unit.test_vocabulary import EVERY_FILE, FILES, ROOT

OWN = Path(__file__)

_NOQA = re.compile(r"# noqa(?P<rules>: [A-Z]+\d+(, ?[A-Z]+\d+)*)?(?P<reason>.*)")
_IGNORE = re.compile(r"# type: ignore(?P<kinds>\[[a-z,-]+\])?(?P<reason>.*)")


@pytest.mark.parametrize(("mark", "files"), [(_NOQA, EVERY_FILE), (_IGNORE, FILES)], ids=["ruff", "mypy"])
def test_each_suppression_names_its_rule_and_its_reason(mark: re.Pattern[str], files: list[Path]) -> None:
    lines = [(path.relative_to(ROOT), line) for path in files if path != OWN for line in path.read_text().splitlines()]
    marks = [(name, match) for name, line in lines if (match := mark.search(line))]
    assert marks
    assert [(name, match[0]) for name, match in marks if not match[1] or not match["reason"].strip(" -#")] == []
