"""docs/api.md has each call of the HTTP API and each problem that it answers, and no other."""

import re

from hourwheel.api.problems import TITLES
from hourwheel.api.routes import ROUTES
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/api.md").read_text()

OF_THE_SERVER = {"GET /v1/ready", "GET /metrics"}
"""The embedded server answers these by itself."""

_CALL = re.compile(r"\b(GET|PUT|POST|PATCH|DELETE) +(/[^\s`?]+)")


def unnamed(call: str) -> str:
    """The page may give a parameter another name than the route."""
    return re.sub(r"\{\w+\}", "{}", call)


def test_each_route_stands_in_the_page_and_each_call_of_the_page_is_a_route() -> None:
    told = {unnamed(f"{method} {path}") for method, path in _CALL.findall(PAGE)}
    routes = {unnamed(route.key) for route in ROUTES}
    assert sorted(told) == sorted(routes | OF_THE_SERVER)


def test_each_problem_stands_in_the_page_and_each_problem_of_the_page_exists() -> None:
    statuses = re.findall(r"^\| \d{3} \|.*$", PAGE.partition("## Errors")[2], re.MULTILINE)
    assert len(statuses) > 10
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)+|internal|unavailable)`", "\n".join(statuses)))
    assert sorted(listed) == sorted(TITLES)
