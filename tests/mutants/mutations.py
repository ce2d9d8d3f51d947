"""Lists the mutants of a module: every change of every function, named so that the name outlives other changes of the
file."""

import ast
import copy
import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import blocks, expressions

ROOT = Path(__file__).parents[2]
LIBRARY = ROOT / "layers/hourwheel/python/hourwheel"
_BLOCKS = ("body", "orelse", "finalbody")
_LONGEST = 90  # characters of a change in its name


@dataclass(frozen=True)
class Mutant:
    """One change of one function. ``at`` is the number of the change in the module."""

    module: str
    function: str
    line: int
    kind: str
    text: str
    at: int
    ordinal: int

    @property
    def name(self) -> str:
        """The name of the mutant in ``harmless.toml``, which contains no line number."""
        return f"{self.module} {self.function}: {self.kind}: {self.text}" + f" #{self.ordinal}" * (self.ordinal > 1)

    @property
    def place(self) -> str:
        return f"{(LIBRARY / self.module).relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class _Found:
    """A change: the node whose field is replaced, by its place in the walk of the function."""

    function: int
    node: int
    field: str
    item: int | None
    value: object
    line: int
    kind: str
    before: str
    after: str


def mutants(module: str) -> list[Mutant]:
    """Returns every mutant of the module, which is named by its path in the library."""
    tree = ast.parse((LIBRARY / module).read_text())
    functions = [function for _, function in _functions(tree)]
    names = [name for name, _ in _functions(tree)]
    seen: Counter[tuple[str, str, str]] = Counter()
    found = []
    for at, change in enumerate(_changes(functions)):
        position = (names[change.function], change.kind, _difference(change.before, change.after))
        seen[position] += 1
        found.append(Mutant(module, position[0], change.line, change.kind, position[2], at, seen[position]))
    return found


def changed_tree(mutant: Mutant) -> ast.Module:
    """Returns the tree of the module with the change of the mutant."""
    tree = ast.parse((LIBRARY / mutant.module).read_text())
    functions = [function for _, function in _functions(tree)]
    change = next(change for at, change in enumerate(_changes(functions)) if at == mutant.at)
    node = list(ast.walk(functions[change.function]))[change.node]
    value = copy.deepcopy(change.value)
    if change.item is None:
        setattr(node, change.field, value)
    else:
        getattr(node, change.field)[change.item] = value
    return ast.fix_missing_locations(tree)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yields the functions of the module and the methods of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, ast.FunctionDef))


def _changes(functions: list[ast.FunctionDef]) -> Iterator[_Found]:
    for number, function in enumerate(functions):
        known = {argument.arg for argument in ast.walk(function.args) if isinstance(argument, ast.arg)}
        skipped = _unchanged_parts(function)
        for at, node in enumerate(ast.walk(function)):
            if node in skipped:
                continue
            yield from _changed_blocks(number, at, node, known)
            yield from _changed_expressions(number, at, node)


def _unchanged_parts(function: ast.FunctionDef) -> set[ast.AST]:
    """Returns the nodes outside of the body: arguments, annotations and decorators."""
    parts: list[ast.AST] = [function.args, *function.decorator_list]
    parts += [node.annotation for node in ast.walk(function) if isinstance(node, ast.AnnAssign)]
    parts += [node.returns for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node.returns]
    return {node for part in parts for node in ast.walk(part)}


def _changed_blocks(number: int, at: int, node: ast.AST, known: set[str]) -> Iterator[_Found]:
    for field in _BLOCKS:
        statements = getattr(node, field, None)
        if not isinstance(statements, list) or not statements or not isinstance(statements[0], ast.stmt):
            continue
        loop = field == "body" and isinstance(node, ast.For | ast.While)
        for kind, index, value in blocks(statements, known, loop=loop):
            before, after = (ast.unparse(ast.Module(each, [])) for each in (statements, value))
            yield _Found(number, at, field, None, value, statements[index].lineno, kind, before, after)


def _changed_expressions(number: int, at: int, node: ast.AST) -> Iterator[_Found]:
    for field, child in ast.iter_fields(node):
        if field == "annotation" or (field == "returns" and isinstance(node, ast.FunctionDef)):
            continue
        for item, each in enumerate(child) if isinstance(child, list) else [(None, child)]:
            if isinstance(each, ast.expr):
                for kind, value in expressions(each):
                    before, after = ast.unparse(each), ast.unparse(ast.fix_missing_locations(value))
                    yield _Found(number, at, field, item, value, each.lineno, kind, before, after)


def _difference(before: str, after: str) -> str:
    """Returns what the change takes away and adds, in one line."""
    if "\n" not in before + after:
        return f"{_short(before)} → {_short(after)}"
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    changed = [line[0] + line[2:].strip() for line in lines if line[0] in "+-"]
    return _short(" ".join(changed))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
