"""Counts the branches of functions, comprehensions and boolean operators included."""

import ast
from pathlib import Path

import pytest

import hourwheel

LIBRARY = Path(hourwheel.__file__).parent
MOST = 10
MOST_OF_A_HUNDRED = 30
ROOMS = sorted(path.name for path in LIBRARY.iterdir() if path.is_dir())
PIPELINE = sorted(path for path in (Path(__file__).parents[2] / "pipeline/hourwheel_pipeline").glob("[!_]*/"))
_WITH_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)


def branches(tree: ast.AST) -> int:
    """Returns the number of branches in a piece of code."""
    total = 0
    for node in ast.walk(tree):
        total += isinstance(node, _BRANCHES)
        if isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.Match):
            total += len(node.cases)
    return total


def complex_functions(room: str) -> dict[str, int]:
    functions = {
        f"{path.name}: {node.name}": 1 + branches(node)
        for path in (LIBRARY / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {name: complexity for name, complexity in functions.items() if complexity > MOST}


@pytest.mark.parametrize("room", ROOMS)
def test_no_function_of_the_library_has_more_than_ten_ways(room: str) -> None:
    assert complex_functions(room) == {}


def code_lines(text: str) -> int:
    """Returns the number of lines without comments, docstrings and empty lines."""
    bodies = [node.body for node in ast.walk(ast.parse(text)) if isinstance(node, _WITH_DOCSTRINGS) and node.body]
    texts = [body[0] for body in bodies if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)]
    documented = {line for doc in texts for line in range(doc.lineno, (doc.end_lineno or doc.lineno) + 1)}
    lines = [line.strip() for number, line in enumerate(text.splitlines(), 1) if number not in documented]
    return sum(bool(line) and not line.startswith("#") for line in lines)


@pytest.mark.parametrize("room", [*(LIBRARY / room for room in ROOMS), *PIPELINE], ids=lambda room: room.name)
def test_a_room_has_few_branches(room: Path) -> None:
    texts = [path.read_text("utf-8") for path in room.rglob("*.py")]
    total = sum(branches(ast.parse(text)) for text in texts)
    assert 100 * total <= MOST_OF_A_HUNDRED * sum(map(code_lines, texts))


def test_each_kind_of_branch_counts() -> None:
    code = """
def f(x):
    if x and x.a or x.b:
        return [y for y in x if y]
    for y in x:
        while y:
            try:
                y = 1 if x else 2
            except ValueError:
                match y:
                    case 1: pass
                    case _: pass
"""
    assert branches(ast.parse(code)) == 11
