"""Names of classes and modules are words of the glossary or plain English, and no word comes back that was replaced."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / "layers/hourwheel/python/hourwheel",
    ROOT / "pipeline/hourwheel_pipeline",
    ROOT / "pipeline/pyspark_hourwheel",
]
FILES = sorted(path for folder in SOURCES for path in folder.rglob("*.py"))
PLAIN = frozenset((Path(__file__).parent / "plain_words.txt").read_text().split())
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_TERM = re.compile(r"^\| \*\*(.+?)\*\* \|", re.MULTILINE)

_EVERYWHERE, _IN_THE_LIBRARY = (Path(__file__).parent / "replaced_words.txt").read_text().split("\n\n")
REPLACED = frozenset(_EVERYWHERE.split()[1:])
REPLACED_IN_THE_LIBRARY = frozenset(_IN_THE_LIBRARY.split()[3:])
LIBRARY = [path for path in FILES if path.is_relative_to(SOURCES[0])]
TREES = ("layers", "pipeline", "functions", "infra", "tests", "bench", "demo")
EVERY_FILE = sorted(path for tree in TREES for path in (ROOT / tree).rglob("*.py"))


def words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def glossary() -> set[str]:
    terms = _TERM.findall((ROOT / "docs/glossary.md").read_text())
    return {word for term in terms for word in re.findall("[a-z]+", term.lower())}


def names(path: Path) -> set[str]:
    """Returns the names of the module and of its classes."""
    tree = ast.parse(path.read_text())
    stem = path.parent.name if path.stem == "__init__" else path.stem
    return {stem} | {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def identifiers(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
    return found


def test_each_class_and_module_is_named_in_words_of_the_glossary_or_plain_english() -> None:
    known = glossary() | PLAIN
    unknown = {(name, word) for path in FILES for name in names(path) for word in words(name) if word not in known}
    unknown = {(name, word) for name, word in unknown if word.removesuffix("s") not in known}
    assert unknown == set()


def test_no_word_that_was_replaced_is_an_identifier_again() -> None:
    back = {(path.relative_to(ROOT), name) for path in EVERY_FILE for name in identifiers(path) & REPLACED}
    assert back == set()


def test_no_word_that_says_too_little_is_an_identifier_of_the_library_again() -> None:
    back = {(path.relative_to(ROOT), name) for path in LIBRARY for name in identifiers(path) & REPLACED_IN_THE_LIBRARY}
    assert back == set()


def test_each_plain_word_is_used() -> None:
    used = {
        form
        for path in FILES
        for name in names(path)
        for word in words(name)
        for form in (word, word.removesuffix("s"))
    }
    assert PLAIN - used == set()


def test_the_glossary_has_the_terms_that_a_reader_meets_first() -> None:
    assert len(_TERM.findall((ROOT / "docs/glossary.md").read_text())) <= 40


def test_each_term_of_the_glossary_names_files_that_exist() -> None:
    rows = re.findall(r"^\| \*\*.+?\*\* \|.*\| (.+?) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    positions = [position for row in rows for position in re.findall(r"`(.+?)`", row)]
    assert rows
    assert [
        position for position in positions if not any((base / position).exists() for base in (SOURCES[0], ROOT))
    ] == []
