"""Defines the kinds of changes that make a mutant: each leaves out, weakens or reorders one step of a protocol.

A change replaces one expression or one list of statements by another one. ``expressions`` and ``blocks`` yield the
replacements of a node, each with its kind.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

Node = TypeVar("Node", bound=ast.AST)

UNCONDITIONAL_SWAP, UNCONDITIONAL_PUT = "_unconditional_swap", "_unconditional_put"
"""The names under which ``planting.py`` adds the functions that write whatever stands there."""

_BOUNDS: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OTHER_SIDES = {"min": "max", "max": "min"}
_LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_UNJUDGED = ("_logger.", "_log.", ".meter.record(", "._count(")  # logs and metrics are no part of the protocol


class Change(NamedTuple):
    """A replacement, and what it does in the text of a report."""

    kind: str
    text: str
    node: ast.expr
    others: tuple[ast.stmt, ...] = ()


def expressions(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yields the kind and the replacement of each change of this expression."""
    match node:
        case ast.Compare(left, [op], others) if type(op) in _BOUNDS:
            yield "bound moved", ast.Compare(left, [_BOUNDS[type(op)]()], others)
        case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant(1)):
            yield "bound moved", left
        case ast.BinOp(left, ast.BitOr() | ast.Sub() | ast.BitAnd(), right) if not isinstance(right, ast.Constant):
            yield "one side left out", left
            yield from [("one side left out", right)] if isinstance(node.op, ast.BitOr) else []
        case ast.BoolOp(op, values):
            for at in range(len(values)):
                rest = values[:at] + values[at + 1 :]
                yield "comparison weakened", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.IfExp(_, body, other):
            yield "comparison weakened", body
            yield "comparison weakened", other
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp() if node.generators[0].ifs:
            first = ast.comprehension(node.generators[0].target, node.generators[0].iter, [], 0)
            changed = _copy(node)
            changed.generators = [first, *node.generators[1:]]
            yield "comparison weakened", changed
        case ast.Call():
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Call(ast.Attribute(record, "swap"), [_, *others]):
            yield "condition dropped", ast.Call(_name(UNCONDITIONAL_SWAP), [record, *others], node.keywords)
        case ast.Call(ast.Attribute(store, "put"), others, keywords) if any(each.arg == "expect" for each in keywords):
            rest = [each for each in keywords if each.arg != "expect"]
            yield "condition dropped", ast.Call(_name(UNCONDITIONAL_PUT), [store, *others], rest)
        case ast.Call(ast.Name("min" | "max" as name), others):
            yield "bound moved", ast.Call(_name(_OTHER_SIDES[name]), others, node.keywords)
        case ast.Call(ast.Name("replace") | ast.Attribute(_, "replace" | "_replace"), _, [_, _, *_]):
            for at in range(len(node.keywords)):
                kept = node.keywords[:at] + node.keywords[at + 1 :]
                yield "field kept", ast.Call(node.func, node.args, kept)
    for at, keyword in enumerate(node.keywords):
        if keyword.arg == "consistent" and not isinstance(keyword.value, ast.Constant | ast.Name):
            continue
        if keyword.arg == "consistent" and getattr(keyword.value, "value", True):
            stale = ast.keyword("consistent", ast.Constant(False))
            yield (
                "read may be stale",
                ast.Call(node.func, node.args, [*node.keywords[:at], stale, *node.keywords[at + 1 :]]),
            )


def blocks(statements: list[ast.stmt], known: set[str], *, loop: bool) -> Iterator[tuple[str, int, list[ast.stmt]]]:
    """Yields the kind, the index of the changed statement, and the replacement of each change of these statements.
    ``known``: the names that have a value before them."""
    for at, statement in enumerate(statements):
        before, after = statements[:at], statements[at + 1 :]
        without = [*before, *after] or [ast.Pass()]
        kind = _left_out(statement, known)
        if kind:
            yield kind, at, without
        match statement:
            case ast.If(_, body, other) if not _unjudged(statement):
                yield "condition ignored", at, [*before, *(other or [ast.Pass()]), *after]
                if not isinstance(body[-1], _LEAVING) and not other:
                    yield "condition ignored", at, [*before, *body, *after]
            case ast.AugAssign(target, _, value) if isinstance(target, ast.Name | ast.Attribute):
                yield "sum begun anew", at, [*before, ast.Assign([target], value, lineno=0), *after]
            case ast.Try(body, [], _, _):
                yield "end left out", at, [*before, *body, *after]
        if after and _may_swap(statement, after[0]):
            yield "order swapped", at, [*before, after[0], statement, *after[1:]]
        known |= _assigned(statement)
    if loop and not isinstance(statements[-1], _LEAVING):
        yield "loop ended early", len(statements) - 1, [*statements, ast.Break()]


def _left_out(statement: ast.stmt, known: set[str]) -> str:
    """Returns the kind of the change that leaves out this statement; "" if it may not be left out."""
    if _unjudged(statement):
        return ""
    match statement:
        case ast.Expr(ast.Call()):
            return "call left out"
        case ast.Assign([ast.Name(name)], value) if name in known and not isinstance(value, ast.Constant):
            return "old value kept"
        case ast.Assign([ast.Attribute() | ast.Subscript()]) | ast.Delete():
            return "old value kept"
        case ast.AugAssign():
            return "old value kept"
    return ""


def _unjudged(statement: ast.stmt) -> bool:
    text = ast.unparse(statement)
    return any(part in text for part in _UNJUDGED) and not isinstance(statement, ast.If | ast.For | ast.While)


def _may_swap(first: ast.stmt, second: ast.stmt) -> bool:
    """Returns whether both statements make calls, and the second uses nothing that the first assigns."""
    simple = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return)
    if not isinstance(first, simple[:3]) or not isinstance(second, simple[:3]) or _unjudged(first) or _unjudged(second):
        return False
    if not (_has_call(first) and _has_call(second)):
        return False
    return not (_assigned(first) & _used(second)) and not (_assigned(second) & _used(first))


def _has_call(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))


def _assigned(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _copy(node: Node) -> Node:
    return type(node)(**{name: getattr(node, name) for name in node._fields})
