"""A route refuses each query parameter that it does not take, before it does anything."""

from collections.abc import Callable
from typing import TypeVar

import pytest
from msgspec import Struct
from msgspec.structs import fields

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.api.requests import decode_query
from hourwheel.api.routes import ROUTES, HttpRoute
from hourwheel.aws.urls import URL_ROUTES
from hourwheel.context import Settings
from hourwheel.errors import Rejected
from hourwheel.ports.storage import CellStorage, Store
from tests.function_urls import OPERATOR_SESSION
from tests.support import AT_ONCE, Bench
from tests.unit.api.conftest import GROUP, MESSAGES, Answer, Api
from tests.unit.aws.test_urls import Urls

T = TypeVar("T")

SUBJECT = "/v1/subjects/orders"
HEALTH = "GET /v1/health"


class ClosableStore(MemoryStore):
    """Fails at each write while it is closed."""

    closed = False

    def transact(self, work: Callable[[Store], T]) -> T:
        assert not self.closed, "a write"
        return super().transact(work)


class CellApi(Api):
    """With the cell ``fast``, and the group ``billing``, for which two messages wait. ``close`` lets writes fail."""

    def __init__(self) -> None:
        self.store = ClosableStore()
        fast = {"fast": CellStorage(MemoryStore(), MemoryBlobs())}
        super().__init__(Bench(self.store, settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=fast))
        assert self.call("PUT", "/v1/cells/fast", {"kinds": ["real-time"]}).status == 200
        assert self.call("PUT", GROUP, {"start": "earliest"}).status == 200
        self.send("a", "b")

    def close(self) -> None:
        self.store.closed = True


@pytest.fixture
def api() -> CellApi:
    return CellApi()


def target(route: HttpRoute, query: str) -> str:
    names = {"subject": "orders", "group": "billing", "queue": "0", "cell": "fast", "consumer": "c"}
    return route.template.format(**names, id="0:0", dead_id="0-0") + f"?{query}"


def refused(answer: Answer, name: str) -> str:
    """Checks that the answer refuses the parameter, and returns its sentence."""
    assert (answer.status, answer.json.get("type")) == (400, "urn:hourwheel:field-invalid"), answer
    assert answer.json["field"] == name
    detail = str(answer.json["detail"])
    assert detail.startswith(f"the query parameter {name!r} is unknown: ")
    return detail


@pytest.mark.parametrize("route", [route for route in ROUTES if route.key != HEALTH], ids=lambda route: route.key)
def test_each_route_refuses_a_parameter_that_it_does_not_know(api: CellApi, route: HttpRoute) -> None:
    api.close()
    detail = refused(api.call(route.method, target(route, "dryrun=true"), {}), "dryrun")
    assert route.key in detail
    assert all(name in detail for name in route.query or ("takes none",))


@pytest.mark.parametrize(
    "route", [route for route in (*ROUTES, *URL_ROUTES) if route.key != HEALTH], ids=lambda route: route.key
)
def test_so_does_the_url_of_its_function(route: HttpRoute) -> None:
    store = ClosableStore()
    urls = Urls(Bench(store))
    urls.call(route.function, route.method, "/")  # the first call reads the format of the tables
    store.closed = True
    answer = urls.call(route.function, route.method, target(route, "dryrun=true"), {}, caller=OPERATOR_SESSION)
    refused(answer, "dryrun")


def test_a_caller_without_rights_learns_nothing_about_parameters() -> None:
    answer = Urls(Bench()).call("meta", "DELETE", f"{SUBJECT}?dryrun=true")
    assert (answer.status, answer.slug) == (401, "grant-missing")


def test_a_dry_run_of_a_deletion_deletes_nothing(api: CellApi) -> None:
    detail = refused(api.call("DELETE", f"{SUBJECT}?dry_run=true"), "dry_run")
    assert detail.endswith("DELETE /v1/subjects/{subject} takes none, and has no dry run")
    assert api.call("GET", SUBJECT).json["groups"] == ["billing"]


def test_a_dry_run_of_a_seek_in_the_query_moves_nothing(api: CellApi) -> None:
    detail = refused(api.call("POST", f"{GROUP}/seek?dry_run=true", {"to": "end"}), "dry_run")
    assert detail.endswith("takes none; write dry_run into the body")
    assert [message["body"] for pull in api.pull() for message in pull["messages"]] == ["a", "b"]


def test_a_dry_run_of_a_move_in_the_query_moves_nothing(api: CellApi) -> None:
    detail = refused(api.call("POST", f"{SUBJECT}/queues/0/move?dry_run=true", {"cell": "fast"}), "dry_run")
    assert detail.endswith("takes none; write dry_run into the body")
    route = api.call("GET", "/v1/routes/orders").json
    assert [mapping["cell"] for mapping in route["queues"][0]["mappings"]] == ["home"]


def test_the_removal_of_a_cell_takes_its_dry_run_in_the_query(api: CellApi) -> None:
    assert api.call("POST", "/v1/cells/fast/drain", {}).status == 200
    assert api.call("DELETE", "/v1/cells/fast?dry_run=true").status == 200
    assert api.call("GET", "/v1/cells/fast").status == 200


def test_a_delay_in_the_query_sends_nothing(api: CellApi) -> None:
    refused(api.call("POST", f"{MESSAGES}?delay=5s", {"messages": [{"body": "c"}]}), "delay")
    assert api.call("GET", f"{GROUP}/lag").json["waiting"] == 2


@pytest.mark.parametrize("path", [SUBJECT, "/v1/subjects"])
def test_a_signature_in_the_query_is_left_to_the_gateway(api: CellApi, path: str) -> None:
    names = ("Algorithm", "Credential", "Date", "Expires", "SignedHeaders", "Security-Token", "Signature")
    signed = "&".join(f"X-Amz-{name}=x" for name in names)
    assert api.call("GET", f"{path}?{signed}").status == 200


def test_a_probe_of_the_health_may_have_any_query(api: CellApi) -> None:
    assert api.call("GET", "/v1/health?at=1795438800").status == 200


def test_a_parameter_without_a_name_and_a_long_one_are_refused(api: CellApi) -> None:
    answer = api.call("GET", f"{SUBJECT}?=1")
    assert (answer.status, answer.slug, answer.json.get("field")) == (400, "field-invalid", None)
    answer = api.call("GET", f"{SUBJECT}?{'x' * 60_000}=1")
    assert (answer.status, answer.json["field"]) == (400, "x" * 200)
    assert len(answer.json["detail"]) < 400


# A text of a query is no null of JSON: with it a call would act as if the parameter had been left out.
@pytest.mark.parametrize("text", ["null", "Null", "NULL", "None", ""])
@pytest.mark.parametrize("query", sorted({route.parameters for route in ROUTES if route.parameters}, key=repr))
def test_no_text_says_that_a_parameter_was_left_out(query: type[Struct], text: str) -> None:
    for field in fields(query):
        try:
            value = getattr(decode_query(query, {"queryStringParameters": {field.encode_name: text}}), field.name)
        except Rejected:
            continue
        assert value == text, field.encode_name
