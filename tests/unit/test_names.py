"""Names of variables are nouns: ``each`` and ``anew`` say nothing about what they hold."""

import ast
from collections.abc import Iterator

from tests.unit.test_vocabulary import ROOT

TREES = ("layers", "pipeline", "functions", "infra", "bench", "demo")
FILES = sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))
EMPTY = frozenset({"each", "anew"})


def named(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields each name that the code gives or reads, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute):
            yield node.attr, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.alias | ast.ExceptHandler):
            yield getattr(node, "asname", None) or node.name or "", node.lineno


def test_no_name_is_an_empty_word() -> None:
    assert FILES
    found = [(path, named(ast.parse(path.read_text()))) for path in FILES]
    assert [f"{path.relative_to(ROOT)}:{line}" for path, names in found for name, line in names if name in EMPTY] == []


def test_the_search_sees_every_way_to_give_a_name() -> None:
    code = (
        "import os as each\nfor each in (): pass\n(lambda anew: 0)\ndef each(): pass\n"
        "row.each()\n[each for each in ()]\ntry: pass\nexcept OSError as anew: pass\n"
    )
    assert sorted({line for name, line in named(ast.parse(code)) if name in EMPTY}) == [1, 2, 3, 4, 5, 6, 8]
