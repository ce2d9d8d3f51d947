"""A call that takes no body refuses one, before it does anything: a dry run of a deletion deletes nothing."""

import pytest

from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.aws.urls import URL_ROUTES
from tests.function_urls import OPERATOR_SESSION
from tests.support import Bench
from tests.unit.api.conftest import Answer
from tests.unit.api.test_query_parameters import HEALTH, SUBJECT, CellApi, ClosableStore, target
from tests.unit.aws.test_urls import Urls

DRY_RUN = {"dry_run": True}
BODILESS = [route for route in (*ROUTES, *URL_ROUTES) if route.body is None and route.key != HEALTH]
each_route = pytest.mark.parametrize("route", BODILESS, ids=lambda route: route.key)


@pytest.fixture
def api() -> CellApi:
    return CellApi()


def path(route: HttpRoute) -> str:
    return target(route, "").rstrip("?")


def refused(answer: Answer, route: str) -> str:
    assert (answer.status, answer.json.get("type")) == (400, "urn:hourwheel:field-invalid"), answer
    assert answer.json["field"] == "body"
    detail = str(answer.json["detail"])
    assert detail.startswith(f"{route} takes no body: ")
    return detail


@pytest.mark.parametrize("route", [route for route in BODILESS if route in ROUTES], ids=lambda route: route.key)
def test_each_call_without_a_body_refuses_one(api: CellApi, route: HttpRoute) -> None:
    api.close()
    refused(api.call(route.method, path(route), DRY_RUN), route.key)


@each_route
def test_so_does_the_url_of_its_function(route: HttpRoute) -> None:
    store = ClosableStore()
    urls = Urls(Bench(store))
    urls.call(route.function, route.method, "/")  # the first call reads the format of the tables
    store.closed = True
    refused(urls.call(route.function, route.method, path(route), DRY_RUN, caller=OPERATOR_SESSION), route.key)


@pytest.mark.parametrize("route", [route for route in ROUTES if route.body is not None], ids=lambda route: route.key)
def test_each_other_call_parses_the_type_that_its_route_names(api: CellApi, route: HttpRoute) -> None:
    assert route.body is not None
    answer = api.call(route.method, path(route), {"unheard": 1})
    assert (answer.status, answer.json["field"]) == (400, "unheard")
    assert str(answer.json["detail"]).endswith(f": the fields are {', '.join(route.body.__struct_encode_fields__)}")


@pytest.mark.parametrize("raw", [b"", b"{}", b" {}\n"])
def test_an_empty_object_says_nothing(api: CellApi, raw: bytes) -> None:
    assert api.call("POST", f"{SUBJECT}/pause", raw=raw).json["paused"] is True


@pytest.mark.parametrize("raw", [b"[]", b"null", b"x", b"\xff", b'{"a": 1}', b" " * 70_000 + b"x"])
def test_any_other_body_is_refused(api: CellApi, raw: bytes) -> None:
    refused(api.call("POST", f"{SUBJECT}/pause", raw=raw), "POST /v1/subjects/{subject}/pause")
    assert api.call("GET", SUBJECT).json["paused"] is False


def test_a_dry_run_in_the_body_of_a_deletion_deletes_nothing(api: CellApi) -> None:
    detail = refused(api.call("DELETE", SUBJECT, DRY_RUN), "DELETE /v1/subjects/{subject}")
    assert detail.endswith("leave it out; the call has no dry run")
    assert api.call("GET", SUBJECT).json["groups"] == ["billing"]


def test_the_dry_run_of_the_removal_of_a_cell_belongs_into_the_query(api: CellApi) -> None:
    assert api.call("POST", "/v1/cells/fast/drain", {}).status == 200
    detail = refused(api.call("DELETE", "/v1/cells/fast", DRY_RUN), "DELETE /v1/cells/{cell}")
    assert detail.endswith("leave it out, and write dry_run=true into the query")
    assert api.call("GET", "/v1/cells/fast").status == 200


def test_a_probe_of_the_health_may_have_any_body(api: CellApi) -> None:
    assert api.call("GET", "/v1/health", DRY_RUN).status == 200
