"""Reads the pages of docs/api/: the calls that they draw, their tables of fields, and their examples."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.docs.pages import API_PAGES, ROOT

_CALL = re.compile(r"\b(GET|PUT|POST|PATCH|DELETE) +(/[^\s`?]+)")
_EXAMPLES = re.compile(r"^```http\n.*?^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(http|json)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(?:^\|.*\|\n)+", re.MULTILINE)
_NAME = re.compile(r"`([a-z_0-9]+)`")
_SECTION = re.compile(r"^(?=## )", re.MULTILINE)


class Table(NamedTuple):
    """A table of fields, or of parameters of a query, with the calls that its section draws."""

    page: str
    head: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    calls: frozenset[str]

    @property
    def names(self) -> set[str]:
        return {name for row in self.rows for name in _NAME.findall(row[0])}

    def row(self, name: str) -> dict[str, str]:
        """Returns the cells of the row with this name, by column."""
        (found,) = (row for row in self.rows if name in _NAME.findall(row[0]))
        return dict(zip(self.columns, found, strict=True))


class Example(NamedTuple):
    """A request, and the answer that the page shows: None if it shows none."""

    method: str
    target: str
    body: Any
    answer: Any


def drawn(page: Path) -> str:
    """Returns the page without its examples: their paths have names instead of parameters."""
    return _EXAMPLES.sub("", page.read_text())


def unnamed(call: str) -> str:
    """Returns the call without the names of its parameters, for which a page may have other names than the route."""
    return re.sub(r"\{\w+\}", "{}", call)


def calls(text: str) -> set[str]:
    """Returns the calls that a text draws, such as ``GET /v1/cells/{}``."""
    return {unnamed(f"{method} {path}") for method, path in _CALL.findall(text)}


def all_calls() -> set[str]:
    return {call for page in API_PAGES for call in calls(drawn(page))}


def tables() -> list[Table]:
    return [table for page in API_PAGES for section in _SECTION.split(drawn(page)) for table in _tables(page, section)]


def _tables(page: Path, section: str) -> Iterator[Table]:
    for found in _TABLE.findall(section):
        head, _, *rows = (tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in found.splitlines())
        yield Table(page.stem, head[0], head, tuple(rows), frozenset(calls(section)))


def examples(page: Path) -> list[Example]:
    """Returns the examples of the page, in order."""
    found: list[Example] = []
    for kind, text in _BLOCK.findall(page.read_text()):
        if kind == "http":
            call, _, body = text.partition("\n")
            method, target = call.split(" ")
            found.append(Example(method, target, json.loads(body) if body.strip() else None, None))
        else:
            found[-1] = found[-1]._replace(answer=json.loads(text))
    return found


class Document:
    """layers/hourwheel/python/hourwheel/api/openapi.json."""

    def __init__(self) -> None:
        self._json = json.loads((ROOT / "layers/hourwheel/python/hourwheel/api/openapi.json").read_text())
        self.operations: dict[str, dict[str, Any]] = {
            unnamed(f"{method.upper()} {path}"): operation
            for path, operations in self._json["paths"].items()
            for method, operation in operations.items()
        }

    def schema(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._json["components"]["schemas"][name]
        return found

    def body(self, call: str) -> str | None:
        """Returns the name of the schema of a request's body."""
        content = self.operations[call].get("requestBody", {}).get("content", {}).get("application/json", {})
        return _name(content.get("schema", {}))

    def query(self, call: str) -> dict[str, dict[str, Any]]:
        """Returns the schema of each parameter of the query."""
        parameters = self.operations[call].get("parameters", [])
        return {each["name"]: each["schema"] for each in parameters if each["in"] == "query"}

    def answers(self, call: str) -> set[str]:
        """Returns the names of the schemas of a success, and of those within them."""
        found = [
            media["schema"]
            for status, answer in self.operations[call]["responses"].items()
            if status.startswith("2")
            for media in answer.get("content", {}).values()
        ]
        return self._within(found)

    def bodies(self, call: str) -> set[str]:
        """Returns the names of the schemas of a request's body."""
        body = self.body(call)
        return self._within([{"$ref": f"/{body}"}]) if body else set()

    def _within(self, schemas: list[Any]) -> set[str]:
        reached: set[str] = set()
        ahead = [name for schema in schemas for name in _names(schema)]
        while ahead:
            name = ahead.pop()
            if name not in reached:
                reached.add(name)
                ahead += _names(self.schema(name))
        return reached


def _name(schema: dict[str, Any]) -> str | None:
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else None


def _names(schema: Any) -> list[str]:
    return re.findall(r'"\$ref": "[^"]*/(\w+)"', json.dumps(schema))
