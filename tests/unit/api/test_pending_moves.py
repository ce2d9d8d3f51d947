"""A pending move over the HTTP API: the 503 says so, the route shows it, and it is withdrawn."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.context import Settings
from hourwheel.errors import Throttled
from hourwheel.ports.storage import CellStorage
from tests.support import AT_ONCE, Bench
from tests.unit.api.conftest import Api

PENDING = "/v1/routes/orders/pending"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """Returns an API with a queue in the cell ``fast``, which does not answer, and with a pending move to ``home``."""
    cells = {"fast": CellStorage(MemoryStore(), MemoryBlobs())}
    api = Api(Bench(settings=Settings(retry=AT_ONCE, registry_seconds=60), cells=cells))
    assert api.call("PUT", "/v1/cells/fast", {}).status == 200
    assert api.call("PUT", "/v1/subjects/orders", {"queues": 1}).status == 200
    assert api.call("POST", "/v1/subjects/orders/queues/0/move", {"cell": "fast"}).status == 200

    def fail(*_: Any, **__: Any) -> None:
        raise Throttled("the disk does not answer")

    for name in ("transact", "counter", "seal"):
        monkeypatch.setattr(cells["fast"].store, name, fail)
    answer = api.call("POST", "/v1/subjects/orders/queues/0/move", {"cell": "home"})
    assert (answer.status, answer.json["type"]) == (503, "urn:hourwheel:unavailable")
    assert "is pending" in answer.json["detail"]
    assert "send the request again" not in answer.json["detail"]
    assert "hourwheel queue withdraw orders 0" in answer.json["detail"]
    return api


def moving_to(api: Api) -> Any:
    return api.call("GET", "/v1/routes/orders").json["queues"][0]["moving_to"]


def test_a_pending_move_is_shown_until_it_is_withdrawn(api: Api) -> None:
    assert moving_to(api) == "home"
    foreseen = api.call("DELETE", f"{PENDING}?queue=0&dry_run=true")
    assert (foreseen.status, foreseen.json["dry_run"]) == (200, True)
    assert moving_to(api) == "home"
    withdrawn = api.call("DELETE", f"{PENDING}?queue=0")
    assert [withdrawn.json[when]["queues"][0]["moving_to"] for when in ("before", "after")] == ["home", None]
    assert moving_to(api) is None
    again = api.call("DELETE", PENDING)
    assert (again.status, again.json["before"]) == (200, again.json["after"])


@pytest.mark.parametrize(
    ("path", "status", "slug"),
    [
        (f"{PENDING}?queue=3", 404, "queue-unknown"),
        (f"{PENDING}?queue=64", 400, "field-invalid"),
        (f"{PENDING}?queue=null", 400, "field-invalid"),
        (f"{PENDING}?queue=", 400, "field-invalid"),
        (f"{PENDING}?queues=1", 400, "field-invalid"),
        ("/v1/routes/parcels/pending", 404, "subject-unknown"),
    ],
)
def test_a_wrong_withdrawal_is_refused(api: Api, path: str, status: int, slug: str) -> None:
    answer = api.call("DELETE", path)
    assert (answer.status, answer.slug) == (status, slug)
    assert moving_to(api) == "home"
