import json

from hourwheel.api.routes import ROUTES
from tests.infra.synthesis import Synthesis


def test_each_route_goes_to_its_function(each: Synthesis) -> None:
    integrations = {
        key: each.resolved(found["Properties"]["IntegrationUri"])
        for key, found in each.resources("ApiGatewayV2::Integration").items()
    }
    found = {}
    for route in each.properties("ApiGatewayV2::Route"):
        function = integrations[route["Target"].removeprefix("integrations/")]
        found[route["RouteKey"]] = function.rpartition(f"{each.cell}-")[2]
    assert found == {route.key: route.function for route in ROUTES}


def test_nobody_calls_a_route_without_a_signature(each: Synthesis) -> None:
    assert {route["AuthorizationType"] for route in each.properties("ApiGatewayV2::Route")} == {"AWS_IAM"}


def test_only_this_api_may_call_the_functions(each: Synthesis) -> None:
    permissions = each.properties("Lambda::Permission")
    assert {permission["Principal"] for permission in permissions} == {"apigateway.amazonaws.com"}
    (api,) = each.resources("ApiGatewayV2::Api")
    assert all(f":{api}/" in permission["SourceArn"] for permission in permissions)


def test_each_request_is_a_line_of_json_that_says_who_asked_and_how_it_went(each: Synthesis) -> None:
    (stage,) = each.properties("ApiGatewayV2::Stage")
    line = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"requestId", "routeKey", "status", "latency", "error", "caller"} <= line.keys()
    assert all(value.startswith("$context.") for value in line.values())


def test_requests_are_limited_as_set(defaults: Synthesis, everything: Synthesis) -> None:
    for synthesis, rate, burst in ((defaults, 1_000, 1_000), (everything, 50, 70)):
        (stage,) = synthesis.properties("ApiGatewayV2::Stage")
        assert stage["DefaultRouteSettings"] == {"ThrottlingRateLimit": rate, "ThrottlingBurstLimit": burst}


def test_polling_and_producing_do_not_use_up_each_others_requests(defaults: Synthesis, everything: Synthesis) -> None:
    for synthesis, polling in ((defaults, (1_000, 1_000)), (everything, (15, 2))):
        (stage,) = synthesis.properties("ApiGatewayV2::Stage")
        limits = {
            key: (found["ThrottlingRateLimit"], found["ThrottlingBurstLimit"])
            for key, found in stage["RouteSettings"].items()
        }
        own = (
            stage["DefaultRouteSettings"]["ThrottlingRateLimit"],
            stage["DefaultRouteSettings"]["ThrottlingBurstLimit"],
        )
        assert limits == {
            "POST /v1/subjects/{subject}/messages": own,
            "POST /v1/messages": own,
            "POST /v1/subjects/{subject}/groups/{group}/pull": polling,
        }


def test_settings_of_routes_are_made_after_the_routes(each: Synthesis) -> None:
    (stage,) = each.resources("ApiGatewayV2::Stage").values()
    assert set(each.resources("ApiGatewayV2::Route")) <= set(stage["DependsOn"])


def test_a_name_of_its_own_is_mapped_to_the_api(defaults: Synthesis, everything: Synthesis) -> None:
    assert not defaults.properties("ApiGatewayV2::DomainName")
    (domain,) = everything.properties("ApiGatewayV2::DomainName")
    assert domain["DomainName"] == "queue.example.org"
    assert everything.properties("ApiGatewayV2::ApiMapping")
    for synthesis, closed in ((defaults, False), (everything, True)):
        (api,) = synthesis.properties("ApiGatewayV2::Api")
        assert api["DisableExecuteApiEndpoint"] is closed, "there is no second way in"
    assert everything.template["Outputs"]["ApiUrl"]["Value"] == "https://queue.example.org"
    assert "DomainTarget" in everything.template["Outputs"]
