"""Each request goes to the function of its route."""

import pytest

from hourwheel.api import meta
from hourwheel.api.router import Match, Router, unknown_path
from hourwheel.api.routes import ROUTES, HttpRoute

router = Router()


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.key)
def test_each_route_is_found(route: HttpRoute) -> None:
    match = router.find(
        route.method,
        route.template.format(
            subject="s%2F", group="messages", dead_id="1-0", id="1", queue="0", cell="fast", consumer="c"
        ),
    )
    assert isinstance(match, Match)
    assert match.route == route
    assert match.parameters.get("subject", "s/") == "s/"


def test_every_route_of_the_control_plane_has_a_call() -> None:
    assert {route.key for route in ROUTES if route.function == "meta"} == set(meta._CALLS)


@pytest.mark.parametrize(
    "path",
    ["/", "/v1", "/v1/subjects/", "/v1/subjects//messages", "/v2/health", "/v1/health/", "*", "", "/v1/subjects/s/x"],
)
def test_other_paths_have_no_route(path: str) -> None:
    assert router.find("GET", path) in ((), [])


def test_another_method_is_told_which_there_are() -> None:
    assert router.find("POST", "/v1/subjects/orders") == ["DELETE", "GET", "PUT"]


def test_a_path_that_begins_twice_with_the_version_is_told_to_leave_it_out() -> None:
    assert unknown_path("/v1/v1/subjects").endswith(": leave /v1 out of the URL of the server")
    assert "leave" not in unknown_path("/v1/subject")
