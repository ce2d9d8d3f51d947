"""docs/architecture.md names files and functions that exist."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
LIBRARY = ROOT / "layers/hourwheel/python/hourwheel"

_FILE = re.compile(r"`([a-z_/]+\.py)`")
_NAMED = re.compile(r"`([a-z_/]+\.py)` `([A-Za-z_.]+)`")
_STEP = re.compile(r"^\d+\. ", re.MULTILINE)


def file(path: str) -> Path:
    outside = path.split("/")[0] in {"functions", "infra", "layers", "pipeline", "tests"}
    return (ROOT if outside else LIBRARY) / path


def defined(path: Path) -> set[str]:
    """Returns the functions, classes with their methods, and constants of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        found |= names(node)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for inner in node.body for name in names(inner)}
    return found


def names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("path", sorted(set(_FILE.findall(PAGE))))
def test_the_file_that_the_page_names_exists(path: str) -> None:
    assert file(path).is_file()


@pytest.mark.parametrize(("path", "name"), sorted(set(_NAMED.findall(PAGE))))
def test_the_function_that_the_page_names_is_in_that_file(path: str, name: str) -> None:
    assert name in defined(file(path))


def test_each_step_of_a_walk_names_a_file() -> None:
    walks = PAGE.partition("## Walk 1")[2].partition("## Where to add")[0]
    steps = _STEP.split(walks)[1:]
    assert len(steps) > 25
    assert [step for step in steps if not _FILE.search(step)] == []


def test_the_picture_shows_the_floors_in_the_order_of_the_linter() -> None:
    picture = PAGE.partition("```text\n")[2].partition("```")[0].split("\n\n")[0]
    shown = [line.split()[0] for line in picture.splitlines() if re.match(r" \w", line)]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    floors = [re.split(r" [:|] ", re.sub("[()]", "", layer)) for layer in contracts[0]["layers"] if layer != "__main__"]
    assert len(shown) == len(floors)
    assert [(name, floor) for name, floor in zip(shown, floors, strict=True) if name not in floor] == []
