"""Files and folders stay small enough to be read as a whole."""

from collections import Counter
from pathlib import Path

import pytest

from tests.rooms import LIBRARY, ROOT

MOST_LINES = 400
PIPELINE = Path("pipeline/hourwheel_pipeline")
MOST_MODULES = {LIBRARY: 20, PIPELINE: 15}  # with ``__init__``, without those of the folders inside
LONG = frozenset({"client/producing/producer.py", "delay/wheel.py"})
"""Files that were longer when the limit was set: none may be added."""


def lengths(package: Path = LIBRARY) -> dict[str, int]:
    folder = ROOT / package
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.py")}
    return {name: len(path.read_text().splitlines()) for name, path in paths.items()}


def test_no_file_has_more_than_four_hundred_lines_but_those_that_had() -> None:
    assert {name for name, lines in lengths().items() if lines > MOST_LINES} <= LONG


def test_a_file_that_was_shortened_is_no_exception_any_more() -> None:
    assert {name for name in LONG if lengths().get(name, 0) <= MOST_LINES} == set()


@pytest.mark.parametrize(("package", "most"), MOST_MODULES.items(), ids=lambda value: getattr(value, "name", None))
def test_no_folder_holds_more_modules(package: Path, most: int) -> None:
    modules = Counter(Path(name).parent.as_posix() for name in lengths(package))
    assert {folder: count for folder, count in modules.items() if count > most} == {}
