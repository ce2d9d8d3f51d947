"""Checks that features which cut across the library are named where their owners are, and nowhere else.

A name is an identifier of the code, an attribute, a keyword or the path of an import; comments and texts do not count.
The rooms ``api``, ``cli`` and ``client`` are left out: their records have the fields that users name.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hourwheel

LIBRARY = Path(hourwheel.__file__).parent
USERS = frozenset({"api", "cli", "client", "console", "apps"})
ORDERED = frozenset(
    {
        "archive/blocks.py",  # segments contain the rows of ordered groups
        "archive/reading.py",
        "archive/rebuild.py",
        "archive/summary.py",
        "deployment/deployment.py",  # makes the caches
        "groups/service.py",  # refuses decisions for other groups
        "groups/settings.py",  # the setting of a group
        "groups/numbers.py",  # a field of the overview
        "model/group_settings.py",
        "model/groups.py",
        "model/overview.py",
        "model/pulls.py",
        "pulling/answers.py",  # a field of the answer
        "registry/records.py",  # the setting of a new group
        "registry/registry.py",
        "sweep/erasure.py",  # removes snapshots, also where no process has opened the logs
        "trace/key_reader.py",
    }
)
GROWTH = frozenset({"pull_log/claiming/growth.py", "pull_log/pull_log.py", "pull_log/records.py"})
DOZING = frozenset(
    {
        "deployment/deployment.py",
        "dozing/dozing.py",
        "dozing/rests.py",
        "groups/deletions.py",
        "model/subjects.py",
        "pulling/pull.py",
    }
)


_OF_PYTHON = frozenset({"OrderedDict"})  # says nothing of groups


def names_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield value
        if isinstance(node, ast.alias) and node.asname is not None:
            yield node.asname


def words_in(path: Path) -> set[str]:
    names = (name for name in names_in(ast.parse(path.read_text("utf-8"))) if name not in _OF_PYTHON)
    apart = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name) for name in names)
    return {word.lower() for name in apart for word in re.split(r"[^A-Za-z0-9]+", name)}


def files_that_say(words: frozenset[str], rooms: frozenset[str] = frozenset()) -> set[str]:
    files = {path.relative_to(LIBRARY): path for path in LIBRARY.rglob("*.py")}
    return {
        relative.as_posix()
        for relative, path in files.items()
        if relative.parts[0] not in USERS | rooms and words & words_in(path)
    }


@pytest.mark.parametrize(
    ("words", "owners", "allowed", "most"),
    [
        (frozenset({"ordered"}), frozenset({"ordered", "pull_log"}), ORDERED, 18),
        (frozenset({"growth", "grow", "grows", "grown", "growing"}), frozenset(), GROWTH, 3),
        (frozenset({"doze", "dozes", "dozing"}), frozenset(), DOZING, 8),
    ],
    ids=["ordered", "growth", "dozing"],
)
def test_a_feature_is_named_where_its_owner_is(
    words: frozenset[str], owners: frozenset[str], allowed: frozenset[str], most: int
) -> None:
    assert files_that_say(words, owners) == allowed
    assert len(allowed) <= most


def test_names_are_found_in_imports_calls_and_classes() -> None:
    tree = ast.parse("from a.ordered.b import c as grows\nclass OrderedLog: pass\nf(x, dozing=1)\n")
    assert {"a.ordered.b", "grows", "OrderedLog", "dozing"} <= set(names_in(tree))
