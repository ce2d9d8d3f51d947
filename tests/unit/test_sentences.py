"""A sentence of a docstring has at most 34 words, so that it can be read once."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.unit.test_names import FILES
from tests.unit.test_vocabulary import ROOT

MOST = 34

_END = re.compile(r"(?<=[.!?])[\"')\]`]*\s+(?=[A-Z`(\"\[*])")
_APART = re.compile(r"(>>>|\.\.\.|\|)|[A-Z][a-z]+:$")  # an example, a table, the head of a section
_ITEM = re.compile(r"([-*]|\d+\.) |\w[\w.]*: ")
_DRAWN = re.compile(r"\S {2}|──")  # columns, a tree


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each docstring with its line, also those behind constants and fields."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in node.body:
                match statement:
                    case ast.Expr(ast.Constant(str() as text)):
                        yield statement.lineno, text


def paragraphs(text: str) -> Iterator[str]:
    """Yields the paragraphs and the items of lists, but nothing that is drawn with blanks."""
    found: list[list[str]] = [[]]
    for number, line in enumerate(text.splitlines()):
        words = line.strip()
        if not words or _APART.match(words):
            found.append([])
            continue
        if number and _ITEM.match(words) and (words[0] in "-*" or line.startswith(" " * 8)):
            found.append([])
        found[-1].append(words)
    yield from (" ".join(lines) for lines in found if lines and not any(map(_DRAWN.search, lines)))


def long_sentences(text: str) -> list[str]:
    return [one for part in paragraphs(text) for one in _END.split(part) if len(one.split()) > MOST]


def test_no_sentence_of_a_docstring_is_longer_than_a_reader_can_hold() -> None:
    found = [(path, docstrings(ast.parse(path.read_text()))) for path in FILES]
    assert [
        f"{path.relative_to(ROOT)}:{line}: {sentence}"
        for path, texts in found
        for line, text in texts
        for sentence in long_sentences(text)
    ] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("word " * 34 + ".", 1),
        ("word " * 33 + "end.", 0),
        ("word " * 20 + "end. Next " + "word " * 20, 0),
        ("First.\n\n- " + "word " * 20 + "\n- " + "word " * 20, 0),
        ("First.\n\none    " + "word " * 40, 0),
        ("First.\n\nExample:\n    >>> " + "word " * 40, 0),
        ("First.\n\nRaises:\n        ValueError: " + "word " * 34, 1),
    ],
    ids=["too long", "just right", "two sentences", "a list", "a table", "an example", "an error"],
)
def test_sentences_are_counted_as_they_are_read(text: str, count: int) -> None:
    assert len(long_sentences(text)) == count
