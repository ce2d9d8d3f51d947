"""Counts the branches of functions, comprehensions and boolean operators included."""

import ast
from pathlib import Path

import pytest

import hourwheel

LIBRARY = Path(hourwheel.__file__).parent
MOST = 10
ROOMS = ("ordered", "pull_log", "pulling", "settling", "groups", "dozing", "sweep", "trace", "push")
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
        if isinstance(node, ast.FunctionDef)
    }
    return {name: complexity for name, complexity in functions.items() if complexity > MOST}


@pytest.mark.parametrize("room", ROOMS)
def test_no_function_of_a_room_has_more_than_ten_ways(room: str) -> None:
    assert complex_functions(room) == {}


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
