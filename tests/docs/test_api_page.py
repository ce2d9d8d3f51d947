"""docs/api/ has each call of the HTTP API and each problem that it answers, and no other; so has the client."""

import contextlib
import inspect
import re
from typing import Any

import pytest

from hourwheel.api.problems import TITLES
from hourwheel.api.router import Match, Router
from hourwheel.api.routes import ROUTES
from hourwheel.aws.urls import URL_ROUTES
from hourwheel.client import Api, DeadSelection, Message, Settlement
from hourwheel.client.transport.http import Http
from tests.docs.api_pages import all_calls, unnamed
from tests.docs.pages import ROOT

ERRORS = (ROOT / "docs/api/errors.md").read_text()

OF_THE_SERVER = {"GET /v1/ready", "GET /v1/report", "GET /metrics"}
"""The embedded server answers these by itself."""

OF_GENERATORS = {"GET /v1/openapi.json"}
"""Generators of clients request it, not the client."""

OF_FRONTS = {"GET /v1/endpoints"}
"""A client asks for it by itself, before its first call."""


GIVEN = {
    "self": Api(),
    "messages": [Message("paid")],
    "settlements": [Settlement(receipt="receipt")],
    "to": "start",
    "which": DeadSelection.everything(),
}
"""Arguments by their name; the others are names themselves."""


class Asked(Exception):
    """A request would be sent now."""


def test_each_route_stands_in_a_page_and_each_call_of_the_pages_is_a_route() -> None:
    routes = {unnamed(route.key) for route in (*ROUTES, *URL_ROUTES)}
    assert sorted(all_calls()) == sorted(routes | OF_THE_SERVER)


def test_each_problem_stands_in_the_page_and_each_problem_of_the_page_exists() -> None:
    statuses = re.findall(r"^\| \d{3} \|.*$", ERRORS, re.MULTILINE)
    assert len(statuses) > 10
    listed = set(re.findall(r"`([a-z]+(?:-[a-z]+)+|internal|unavailable)`", "\n".join(statuses)))
    assert sorted(listed) == sorted(TITLES)


def test_the_client_has_a_method_for_each_route(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[str, str]] = []

    def call(self: Http, method: str, target: str, *_: Any, **__: Any) -> Any:
        called.append((method, target.partition("?")[0]))
        raise Asked

    monkeypatch.setattr(Http, "call", call)
    methods = [method for name, method in inspect.getmembers(Api, inspect.isfunction) if not name.startswith("_")]
    for method in methods:
        needed = [name for name, each in inspect.signature(method).parameters.items() if each.default is each.empty]
        optional = {"delay": 60} if method in (Api.reschedule, Api.move_chosen) else {}
        with contextlib.suppress(Asked):
            method(*(GIVEN.get(name, name) for name in needed), **optional)
    answer = [Router((*ROUTES, *URL_ROUTES)).find(method, path) for method, path in called]
    assert [match for match in answer if not isinstance(match, Match)] == []
    assert sorted(match.route.key for match in answer if isinstance(match, Match)) == sorted(
        each.key for each in (*ROUTES, *URL_ROUTES) if each.key not in OF_GENERATORS | OF_FRONTS
    )
