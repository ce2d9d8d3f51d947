"""A suppression of the linter or of mypy says why it is right, and none stands where mypy does not look."""

import re

from tests.unit.test_vocabulary import EVERY_FILE, ROOT

_NOQA = re.compile(r"# noqa(?P<rules>: [A-Z]+\d+(, ?[A-Z]+\d+)*)?(?P<reason>.*)")
_IGNORE = re.compile(r"# type: ignore(?P<kinds>\[[a-z,-]+\])?(?P<reason>.*)")
_CHECKED = ("layers", "pipeline")  # the packages of [tool.mypy]


def lines() -> list[tuple[str, str]]:
    own = "tests/unit/test_suppressions.py"
    files = {str(path.relative_to(ROOT)): path for path in EVERY_FILE}
    return [(name, line) for name, path in files.items() if name != own for line in path.read_text().splitlines()]


def test_each_suppression_names_its_rule_and_its_reason() -> None:
    marks = [(name, match) for name, line in lines() for rule in (_NOQA, _IGNORE) if (match := rule.search(line))]
    assert marks
    assert [(name, match[0]) for name, match in marks if not match[1] or not match["reason"].strip(" -#")] == []


def test_no_type_error_is_suppressed_in_code_that_is_not_checked() -> None:
    assert [(name, line) for name, line in lines() if _IGNORE.search(line) and not name.startswith(_CHECKED)] == []
