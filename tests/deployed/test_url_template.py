"""The template with function URLs, deployed on ministack: its functions answer requests through URLs, and their roles
allow what the functions do then.

ministack makes the URLs, and judges no caller: it refuses requests without a signature, but has no IAM, and its events
do not say who called, so that the functions refuse them. Here the functions get the events that Lambda makes for a
signed request. So no test shows that a URL admits only callers whose policies allow it.
"""

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from hourwheel.api.router import Match, Router
from hourwheel.api.routes import ROUTES
from hourwheel.aws.urls import GRANT_HEADER, URL_ROUTES
from tests.function_urls import OPERATOR, OPERATOR_SESSION, SERVICE_SESSION, url_event

from .conftest import assert_built
from .policies import grants
from .recorded import calls_of
from .system import System, deployed
from .template import CELL, REGION, ROOT, synthesised

FRONTED = sorted({route.function for route in ROUTES})
PULL = "/v1/subjects/orders/groups/billing/pull"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, no_account: None) -> Iterator[System]:
    assert_built(ROOT / "build/layers/hourwheel", ROOT / "layers/hourwheel")
    template = synthesised(tmp_path_factory.mktemp("synthesised-urls"), {"front": "url", "operators": OPERATOR})
    with deployed(template, tmp_path_factory.mktemp("deployed-urls")) as found:
        yield found


def request(
    system: System, method: str, path: str, body: Any = None, *, token: str = "", caller: str = SERVICE_SESSION
) -> tuple[int, Any]:
    """Has the function of the route answer a signed request, and returns the status and the answer."""
    match = Router((*ROUTES, *URL_ROUTES)).find(method, path)
    assert isinstance(match, Match)
    headers = {"content-type": "application/json"} | ({GRANT_HEADER: token} if token else {})
    event = url_event(method, path, None if body is None else json.dumps(body), caller=caller, headers=headers)
    answer = system.functions.invoke(FunctionName=f"{CELL}-{match.route.function}", Payload=json.dumps(event))
    assert "FunctionError" not in answer
    response = json.loads(answer["Payload"].read())
    return response["statusCode"], json.loads(response["body"]) if response.get("body") else None


def operate(system: System, method: str, path: str, body: Any = None) -> Any:
    status, answer = request(system, method, path, body, caller=OPERATOR_SESSION)
    assert status == 200, answer
    return answer


def granted(system: System) -> str:
    grant = operate(system, "POST", "/v1/grants", {"produce": ["orders"], "pull": ["orders/billing"]})
    return str(grant["token"])


def test_each_function_that_serves_requests_has_its_url(shop: System) -> None:
    for function in FRONTED:
        config = shop.functions.get_function_url_config(FunctionName=f"{CELL}-{function}")
        assert config["AuthType"] == "AWS_IAM"
    assert operate(shop, "GET", "/v1/endpoints").keys() == set(FRONTED) - {"meta"}


def test_messages_pass_through_the_functions_with_a_token(shop: System) -> None:
    operate(shop, "PUT", "/v1/subjects/orders/groups/billing", {})
    token = granted(shop)
    later = {"body": "later", "delay": "2h"}
    soon = {"body": "soon", "delay": "20m", "precision": "minute"}
    sent = request(
        shop, "POST", "/v1/subjects/orders/messages", {"messages": [{"body": "now"}, soon, later]}, token=token
    )
    assert sent[0] == 200
    (pull,) = pulled(shop, token)
    assert [message["body"] for message in pull["messages"]] == ["now"]
    settle = {"settle": [{"receipt": pull["receipt"]}]}
    status, answer = request(shop, "POST", "/v1/subjects/orders/groups/billing/ack", settle, token=token)
    assert (status, answer["results"][0]["status"]) == (200, "settled")
    shop.clock.pass_time(20 * 60)
    (pull,) = shop.until(lambda: pulled(shop, token), "the delayed message")
    assert [message["body"] for message in pull["messages"]] == ["soon"]
    shop.swept(2)


def pulled(shop: System, token: str) -> list[Any]:
    status, answer = request(shop, "POST", PULL, {"consumer": "c1", "wait_seconds": 1}, token=token)
    assert status == 200, answer
    return list(answer["pulls"])


def test_nobody_but_an_operator_makes_tokens_and_nobody_without_one_sends(shop: System) -> None:
    for path, body in (
        ("/v1/grants", {"produce": ["orders"]}),
        ("/v1/subjects/orders/messages", {"messages": [{"body": "x"}]}),
    ):
        status, answer = request(shop, "POST", path, body)
        assert (status, answer["type"]) == (401, "urn:hourwheel:grant-missing")


def fetched(shop: System, headers: dict[str, str]) -> tuple[int, bytes]:
    """Asks ministack for the subjects, and returns the status and the answer."""
    connection = http.client.HTTPConnection(shop.endpoint.removeprefix("http://"))
    try:
        connection.request("GET", "/v1/subjects", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_url_refuses_what_is_not_signed_and_its_function_an_event_that_does_not_say_who_called(shop: System) -> None:
    url = shop.functions.get_function_url_config(FunctionName=f"{CELL}-meta")["FunctionUrl"]
    # ministack serves every URL at its own address, and chooses the function by the name of the host.
    host = {"host": urlsplit(url).netloc}
    assert fetched(shop, host)[0] == 403
    signed = AWSRequest("GET", f"{url}v1/subjects", headers=host)
    credentials = boto3.Session().get_credentials()
    assert credentials is not None
    SigV4Auth(credentials.get_frozen_credentials(), "lambda", REGION).add_auth(signed)
    status, answer = fetched(shop, dict(signed.headers))
    assert (status, json.loads(answer)["type"]) == (401, "urn:hourwheel:grant-missing")


def test_the_roles_of_the_functions_allow_each_call_that_they_made(shop: System) -> None:
    allowed = {function: grants(shop.template, role) for function, role in shop.roles.items()}
    made = {call for entry in shop.entries() if "function" in entry for call in calls_of(entry)}
    assert {call.function for call in made} >= {*FRONTED, "wheel", "sweep"}
    refused = [call for call in made if not any(grant.allows(call) for grant in allowed[call.function])]
    assert refused == []
