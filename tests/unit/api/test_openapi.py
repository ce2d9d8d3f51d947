"""The OpenAPI document is that of the code: of each route, and of the types that parse requests."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hourwheel.api.routes import ROUTES
from layers.openapi.__main__ import DOCUMENT
from layers.openapi.document import document, text
from layers.openapi.examples import EXAMPLES
from layers.openapi.operations import OPERATIONS
from tests.unit.api.conftest import Api


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        yield from (value for name, value in part.items() if name == "$ref")
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from references(each)


def test_the_document_in_the_repository_is_that_of_the_code() -> None:
    assert DOCUMENT.read_text() == text(), "openapi.json is old: run make openapi"


def test_the_document_has_each_route_and_no_other() -> None:
    assert sorted(OPERATIONS) == sorted(route.call for route in ROUTES)
    shown = [f"{method.upper()} {path}" for path, methods in document()["paths"].items() for method in methods]
    assert sorted(shown) == sorted(route.key for route in ROUTES)


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


def test_each_operation_has_a_tag_that_the_document_describes() -> None:
    told = document()
    described = [tag["name"] for tag in told["tags"]]
    assert len(set(described)) == len(described)
    used = [call["tags"] for calls in told["paths"].values() for call in calls.values()]
    assert {len(tags) for tags in used} == {1}
    assert {tag for (tag,) in used} == set(described)


def test_the_examples_parse_as_the_server_and_the_client_parse_them() -> None:
    assert {"produce", "pull", "settle"} <= set(EXAMPLES)
    bodies = {route.call: route.body for route in ROUTES}
    for name, example in EXAMPLES.items():
        msgspec.convert(example.request, bodies[name], strict=True)
        answer = msgspec.convert(example.answer, OPERATIONS[name].answer, strict=True)
        known = msgspec.to_builtins(answer)
        assert set(example.answer) <= set(known), "the example has a field that no answer has"
        (shown,) = [
            each for calls in document()["paths"].values() for each in calls.values() if name == each["operationId"]
        ]
        assert shown["requestBody"]["content"]["application/json"]["example"] == example.request
        assert shown["responses"]["200"]["content"]["application/json"]["example"] == example.answer


LINK_TEXTS = {"operationRef", "operationId", "requestBody", "description"}
"""The fields of a link that the parser of openapi-generator (swagger-parser, ``getLink``) takes only as text."""

LINK_FIELDS = LINK_TEXTS | {"parameters", "server", "headers"}


def refused(told: Any) -> list[str]:
    """Returns what swagger-parser refuses, by its rules that other validators do not know."""
    calls = [call for path in told["paths"].values() for call in path.values()]
    links = [
        (f"{call['operationId']}: {name}", link)
        for call in calls
        for response in call["responses"].values()
        for name, link in response.get("links", {}).items()
    ]
    ids = [call["operationId"] for call in calls]
    found = [
        f"{where}.{key} is not text"
        for where, link in links
        for key in LINK_TEXTS & link.keys()
        if not isinstance(link[key], str)
    ]
    found += [f"{where}: no operation {link['operationId']}" for where, link in links if link["operationId"] not in ids]
    found += [f"{where}: unknown {key}" for where, link in links for key in link.keys() - LINK_FIELDS]
    found += [f"operationId {each} twice" for each in set(ids) if ids.count(each) > 1]
    found += [
        f"path parameter {each['name']} must be required"
        for call in calls
        for each in call.get("parameters", ())
        if each["in"] == "path" and each.get("required") is not True
    ]
    return found


def test_the_parser_of_openapi_generator_takes_the_document() -> None:
    assert refused(document()) == []


def test_the_rules_of_that_parser_find_a_body_that_is_no_text() -> None:
    told = document()
    pulled = told["paths"]["/v1/subjects/{subject}/groups/{group}/pull"]["post"]["responses"]["200"]
    pulled["links"]["settle"]["requestBody"] = {"settle": []}
    assert refused(told) == ["pull: settle.requestBody is not text"]


def test_the_api_answers_its_document() -> None:
    answer = Api().call("GET", "/v1/openapi.json")
    assert (answer.status, answer.json) == (200, json.loads(DOCUMENT.read_text()))


GROUP = "/v1/subjects/orders/groups/billing"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{GROUP}/consumers"),
        ("POST", f"{GROUP}/consumers/host-1/leave"),
        ("GET", f"{GROUP}/lag"),
        ("GET", f"{GROUP}/leases"),
        ("GET", f"{GROUP}/retries"),
        ("GET", f"{GROUP}/dead/reasons"),
        ("POST", f"{GROUP}/dead/redrive"),
        ("GET", "/v1/overview"),
        ("GET", "/v1/subjects/orders/overview"),
        ("GET", "/v1/cells"),
    ],
)
def test_the_document_has_each_field_of_an_answer(method: str, path: str) -> None:
    api, told = Api(), document()
    api.call("PUT", GROUP, {})
    answer = api.call(method, path, {"all": True} if path.endswith("redrive") else None)
    assert answer.status == 200
    template = next(each for each in ROUTES if each.key.startswith(method) and matches(each.key, path))
    shown = told["paths"][template.key.split()[1]][method.lower()]["responses"]["200"]["content"]["application/json"]
    schema = shown["schema"]
    if "$ref" in schema:
        schema = told["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert set(answer.json) <= set(schema["properties"])


def matches(key: str, path: str) -> bool:
    wanted, found = key.split()[1].split("/"), path.split("/")
    return len(wanted) == len(found) and all(
        each.startswith("{") or each == other for each, other in zip(wanted, found, strict=True)
    )
