"""The OpenAPI document is that of the code: of each route, and of the types that parse requests."""

import json
from collections.abc import Iterator
from typing import Any

from hourwheel.api.routes import ROUTES
from layers.openapi.__main__ import INDENTS, SERVED
from layers.openapi.document import document, text
from layers.openapi.operations import OPERATIONS
from tests.unit.api.conftest import Api


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (value for name, value in part.items() if name == "$ref")
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from references(each)


def test_the_documents_in_the_repository_are_those_of_the_code() -> None:
    for path, indent in INDENTS.items():
        assert path.read_text() == text(indent=indent), f"{path.name} is old: run make openapi"


def test_the_document_has_each_route_and_no_other() -> None:
    assert sorted(OPERATIONS) == sorted(route.key for route in ROUTES)
    shown = [f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods]
    assert sorted(shown) == sorted(OPERATIONS)


def test_a_route_takes_the_query_parameters_of_the_type_that_parses_them() -> None:
    shown = {
        f"{method.upper()} {path}": told for path, each in document()["paths"].items() for method, told in each.items()
    }
    for route in ROUTES:
        parameters = [each["name"] for each in shown[route.key].get("parameters", ()) if each["in"] == "query"]
        assert sorted(parameters) == sorted(route.query or ()), route.key


def test_a_route_takes_a_dry_run_in_the_body_if_the_type_of_its_body_has_one() -> None:
    bodies = {key: getattr(operation.body, "model_fields", {}) for key, operation in OPERATIONS.items()}
    assert {route.key for route in ROUTES if route.dry_run_in_body} == {
        key for key, fields in bodies.items() if "dry_run" in fields
    }


def test_each_reference_leads_somewhere_and_each_schema_is_used() -> None:
    told = document()
    used = set(references(told))
    assert used == {
        f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in told["components"][kind]
    }


def test_the_limits_of_a_request_are_those_of_its_parser() -> None:
    pull = document()["components"]["schemas"]["PullRequest"]
    assert pull["properties"]["max_messages"] == {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    assert pull["additionalProperties"] is False
    assert document()["components"]["schemas"]["Received"]["properties"]["produced_at"]["format"] == "date-time"


def test_the_api_answers_its_document() -> None:
    answer = Api().call("GET", "/v1/openapi.json")
    assert (answer.status, answer.json) == (200, json.loads(SERVED.read_text()))
