"""A server answers as its OpenAPI document says, to requests that schemathesis makes from the document."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hourwheel.api.routes import ROUTES
from tests.integration.process import Server, send

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
"""Not whether each request is accepted that the schemas allow: they cannot say which fields exclude each other."""

GROUP = "/v1/subjects/orders/groups/billing"
GROUP_PATH = "/v1/subjects/{subject}/groups/{group}"
THERE = {"subject": "orders", "group": "billing", "consumer": "host-1", "cell": "fast", "queue": 0}
"""Names of things that exist."""

HOW: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    server = Server(folder / "data", cells={"fast": folder / "fast"})
    yield server
    server.stop()
    server.process.close()


@pytest.fixture(scope="module")
def schema(server: Server) -> Any:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/v1/openapi.json")
    # A body by which schemathesis settles what it pulled. The document has none: openapi-generator takes only text.
    pulled = schema.raw_schema["paths"][f"{GROUP_PATH}/pull"]["post"]["responses"]["200"]
    pulled["links"]["settle"]["requestBody"] = {"settle": [{"receipt": "$response.body#/pulls/0/receipt"}]}
    return schema


def furnish(server: Server) -> None:
    """Creates the things that ``THERE`` names, with a message that is a dead letter, one that is leased and one that
    waits."""
    server.ok("PUT", "/v1/subjects/orders", {"read_only": False})
    server.ok("PUT", f"{GROUP}", {})
    for settle in ({"dead": [0]}, None):
        send(server, "paid", "later")
        (pull, *_) = server.ok("POST", f"{GROUP}/pull", {"consumer": "host-1", "max_messages": 1})["pulls"] or [None]
        if pull is not None and settle is not None:
            server.ok("POST", f"{GROUP}/ack", {"settle": [{"receipt": pull["receipt"], **settle}]})


def plausible(case: Any) -> Any:
    """Returns the request about things that exist, in the forms that clients send: whole numbers without a fraction,
    messages with one body. A pull does not wait."""
    case.path_parameters.update({name: THERE[name] for name in THERE.keys() & case.path_parameters.keys()})
    case.body = whole(case.body)
    if isinstance(case.body, dict):
        if "wait_seconds" in case.body:
            case.body["wait_seconds"] = 0
        # A link puts the receipt of a pull among made-up settlements, and into one of made-up indexes.
        receipts = [each.get("receipt") for each in objects(case.body.get("settle"))]
        pulled = [receipt for receipt in receipts if isinstance(receipt, str) and len(receipt) > 100]
        if pulled:
            case.body["settle"] = [{"receipt": pulled[0]}]
        for message in objects(case.body.get("messages")):
            message.pop("body_base64", None)
            message["body"] = "paid"
    return case


def objects(part: Any) -> list[dict[str, Any]]:
    """Returns the objects of a list. A malformed body may have something else in its place, and is sent as it is."""
    return [each for each in part if isinstance(each, dict)] if isinstance(part, list) else []


def whole(part: Any) -> Any:
    """Returns the value with whole floats as integers: JSON has one kind of number, and 1.0 is an integer for a schema,
    but not for the server."""
    if isinstance(part, dict):
        return {name: whole(each) for name, each in part.items()}
    if isinstance(part, list):
        return [whole(each) for each in part]
    return int(part) if isinstance(part, float) and part.is_integer() else part


def test_each_call_answers_as_the_document_says(server: Server, schema: Any) -> None:
    answers: Counter[bool] = Counter()
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == len(ROUTES) - 1  # all but the document itself
    for operation in operations:
        furnish(server)

        @settings(**HOW, max_examples=8)
        @given(case=operation.as_strategy())
        def call(case: Any) -> None:
            answer = plausible(case).call_and_validate(checks=CHECKS)
            answers[answer.status_code < 300] += 1

        call()
    assert answers[True] > 50
    assert answers[False] > 50


def test_calls_that_follow_one_another_answer_as_the_document_says(server: Server, schema: Any) -> None:
    taken: Counter[str] = Counter()
    chosen = schema.include(operation_id=["put_subject", "put_group", "produce", "pull", "settle", "get_scheduled"])

    class Following(chosen.as_state_machine()):  # type: ignore[misc] - made when the document is known
        def setup(self) -> None:
            furnish(server)

        def before_call(self, case: Any) -> None:
            plausible(case)

        def validate_response(self, response: Any, case: Any, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)
            if response.status_code < 300:
                taken[case.operation.definition.raw["operationId"]] += 1

    Following.run(settings=settings(**HOW, max_examples=20, stateful_step_count=10))
    assert {"produce", "pull", "settle"} <= set(taken), taken
