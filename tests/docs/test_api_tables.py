"""The tables in docs/api/ have the fields, the bounds and the defaults of the types that parse requests."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from layers.openapi.tables import TABLES as SETTINGS
from layers.openapi.tables import SettingTable, with_settings
from tests.docs.api_pages import Document, Table, calls, drawn, tables
from tests.docs.pages import API_PAGES, ROOT

DOCUMENT = Document()
TABLES = tables()

BODIES = {
    "field of a batch": {"ProduceRequest", "ProduceManyRequest"},
    "field of a message": {"NewMessage", "AddressedMessage"},
    "field of a pull": {"PullRequest"},
    "field of a settlement": {"Settlement"},
    "field of an entry": {"RetryLater", "Rejection"},
    "field of a move": {"RescheduleBody"},
    "field of a subject": {"SubjectBody"},
    "field of a group": {"GroupBody"},
    "field of a policy": {"RetryBody"},
    "field of a filter": {"FilterBody"},
    "field of a target": {"PushBody"},
    "field of a seek": {"SeekBody"},
    "field of a decision": {"DecisionBody"},
    "field of a retry": {"EarlyRetryBody"},
    "field of a choice": {"ChoiceBody", "ChoiceMoveBody"},
    "field of a selection": {"SelectionBody"},
    "field of a change": {"MoveBody", "SpreadBody", "QueuesBody"},
    "field of a cell": {"CellBody"},
}
"""The schemas of requests by the heads of their tables."""

IN_A_SENTENCE = {"SettleRequest", "DrainBody"}
"""Bodies of one field."""

TEXTS_OF_TIMES = {"delay", "deliver_at", "from", "to", "time", "after"}
"""Their lengths bound the work of a parser: no caller comes near them. So does that of a receipt."""

A_NAME = ("1", "100")
"""The lengths of a name, which the conventions tell once."""


def bounds(schema: dict[str, Any]) -> Iterator[str]:
    """Yields the limits of a field as a table writes them."""
    for inner in (*schema.get("anyOf", ()), *filter(None, [schema.get("items"), schema.get("propertyNames")])):
        if isinstance(inner, dict):
            yield from bounds(inner)
    values = schema.get("additionalProperties")
    yield from bounds(values) if isinstance(values, dict) else ()
    for limit in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"):
        if limit in schema and schema[limit] < 2**53:
            yield f"{schema[limit]:,}"
    if "exclusiveMaximum" in schema:
        yield f"{schema['exclusiveMaximum'] - 1:,}"
    yield from (f"`{value}`" for value in schema.get("enum", ()) if value is not True)


def missing(name: str, schema: dict[str, Any], cells: dict[str, str]) -> set[str]:
    """Returns the limits and the default that the row of a field leaves out."""
    values = cells.get("values", "")
    told = [*re.findall(r"`[^`]+`|[\d,]*\d", values), *(A_NAME if values.startswith("a name") else ())]
    left = set() if name in {*TEXTS_OF_TIMES, "receipt"} else set(bounds(schema)) - set(told)
    default = schema.get("default")
    if default not in (None, [], {}, False) and f"{default}".lower() not in re.findall(
        r"\w+", cells.get("default", "")
    ):
        left.add(f"default {default}")
    return left


def of_bodies() -> dict[str, Table]:
    return {table.head: table for table in TABLES if table.head in BODIES}


@pytest.mark.parametrize("head", BODIES)
def test_a_table_has_each_field_of_the_request_with_its_limits(head: str) -> None:
    table = of_bodies()[head]
    fields = {name: field for schema in BODIES[head] for name, field in DOCUMENT.schema(schema)["properties"].items()}
    assert table.names == set(fields)
    assert {name: gap for name, field in fields.items() if (gap := missing(name, field, table.row(name)))} == {}


@pytest.mark.parametrize("table", SETTINGS, ids=lambda table: table.page)
def test_a_table_has_the_declared_settings(table: SettingTable) -> None:
    page = (ROOT / "docs/api" / table.page).read_text()
    assert with_settings(page, table) == page, "make openapi writes the table"


def test_each_request_has_a_table() -> None:
    asked = {name for call in DOCUMENT.operations for name in DOCUMENT.bodies(call)}
    assert asked - IN_A_SENTENCE == {schema for schemas in BODIES.values() for schema in schemas}


@pytest.mark.parametrize("table", [each for each in TABLES if each.head == "parameter"], ids=lambda each: each.page)
def test_a_table_has_each_parameter_of_the_query_with_its_limits(table: Table) -> None:
    parameters = {
        name: schema
        for call in table.calls & DOCUMENT.operations.keys()
        for name, schema in DOCUMENT.query(call).items()
    }
    assert table.names == set(parameters)
    assert {name: gap for name, each in parameters.items() if (gap := missing(name, each, table.row(name)))} == {}


def test_each_parameter_beside_those_of_pages_stands_in_a_table() -> None:
    told = {
        (call, name) for table in TABLES if table.head == "parameter" for call in table.calls for name in table.names
    }
    asked = {(call, name) for call in DOCUMENT.operations for name in DOCUMENT.query(call)}
    assert {(call, name) for call, name in asked - told if name not in {"limit", "after"}} == set()


@pytest.mark.parametrize("page", API_PAGES, ids=lambda page: page.stem)
def test_a_page_names_each_field_of_the_answers_to_its_calls(page: Any) -> None:
    told = set(re.findall(r"[`\"]([a-z_0-9]+)[`\"]", page.read_text()))
    for other in re.findall(r"\]\(([a-z-]+\.md)", page.read_text()):  # a page need not repeat what it links
        told |= set(re.findall(r"[`\"]([a-z_0-9]+)[`\"]", (page.parent / other).read_text()))
    names = {
        name
        for call in calls(drawn(page)) & DOCUMENT.operations.keys()
        for schema in DOCUMENT.answers(call)
        for name in DOCUMENT.schema(schema)["properties"]
    }
    assert names - told == set()


def test_a_wrong_table_is_seen() -> None:
    schema = DOCUMENT.schema("PullRequest")["properties"]["max_messages"]
    assert missing("max_messages", schema, {"values": "1 to 1,000", "default": "100"}) == set()
    assert missing("max_messages", schema, {"values": "1 to 100", "default": "10"}) == {"1,000", "default 100"}
