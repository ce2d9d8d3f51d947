"""Calls on a cell that is lost, and on subjects with messages in it."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs
from hourwheel.context import Settings
from hourwheel.model.routes import LOST_GAP
from hourwheel.ports.storage import CellStorage
from tests.support import AT_ONCE, Bench
from tests.unit.api.conftest import Api
from tests.unit.delay.test_cells_out_of_reach import ALL, Outage

SUBJECT = "/v1/subjects/orders"
GIVE_UP = "/v1/cells/fast?lost=true"


@pytest.fixture
def api() -> Api:
    """Returns an API whose cell ``fast`` is out of reach and has the queue of ``orders``."""
    fast = Outage()
    cells = {"fast": CellStorage(fast, MemoryBlobs())}
    api = Api(Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells))
    assert api.call("PUT", "/v1/cells/fast", {}).status == 200
    assert api.call("PUT", SUBJECT, {}).status == 200
    assert api.call("POST", f"{SUBJECT}/queues/0/move", {"cell": "fast"}).status == 200
    fast.down = ALL
    return api


def test_a_cell_is_given_up_once_it_is_off_line(api: Api) -> None:
    refused = api.call("DELETE", GIVE_UP)
    assert (refused.status, refused.slug) == (409, "cell-state")
    assert api.call("PUT", "/v1/cells/fast", {"state": "offline"}).status == 200
    foreseen = api.call("DELETE", f"{GIVE_UP}&dry_run=true")
    answer = api.call("DELETE", GIVE_UP)
    assert (foreseen.status, foreseen.json) == (200, answer.json)
    lost = {"log": "fast:orders~1/0.1", "start": 0, "end": None, "next_start": LOST_GAP, "next_cell": "home"}
    assert answer.json["state"] == "removed"
    assert answer.json["lost"] == [{"subject": "orders", "queue": 0, **lost}]
    (mapping, following) = api.call("GET", "/v1/routes/orders").json["queues"][0]["mappings"]
    assert (mapping["state"], mapping["end"], following["start"]) == ("lost", None, LOST_GAP)
    assert api.call("GET", "/v1/cells/fast").status == 404
    assert api.call("PUT", "/v1/cells/fast", {}).slug == "cell-state"


def test_a_deletion_says_which_cells_are_left_to_the_sweeper(api: Api) -> None:
    for _ in range(2):
        answer = api.call("DELETE", SUBJECT)
        assert (answer.status, answer.json) == (200, {"cells_out": ["fast"]})
    assert api.call("GET", SUBJECT).status == 404
    again = api.call("PUT", SUBJECT, {})
    assert (again.status, again.slug) == (503, "unavailable")
    assert "erased in cell fast once the sweeper can reach it, or once it is given up" in again.json["detail"]
    assert api.call("PUT", "/v1/cells/fast", {"state": "offline"}).status == 200
    assert api.call("DELETE", GIVE_UP).status == 200
    assert api.call("PUT", SUBJECT, {}).status == 200


@pytest.mark.parametrize("broadcast", [False, True])
def test_the_deletion_of_a_group_says_it_too(api: Api, broadcast: bool) -> None:
    group = f"{SUBJECT}/groups/billing"
    assert api.call("PUT", group, {"broadcast": broadcast}).status == 200
    if broadcast:
        assert api.call("POST", f"{group}/pull", {"consumer": "host-1"}).status == 200
    assert api.call("PUT", "/v1/cells/fast", {"state": "offline"}).status == 200
    for _ in range(2):
        answer = api.call("DELETE", group)
        assert (answer.status, answer.json) == (200, {"cells_out": ["fast"]})
    assert api.call("GET", group).status == 404
    again = api.call("PUT", group, {})
    assert (again.status, again.slug) == (503, "unavailable")
    assert again.json["detail"].startswith(
        "group 'billing' of subject 'orders' was deleted, and is erased in cell fast"
    )
    api.bench.deployment.sweeper.sweep()
    assert api.call("DELETE", GIVE_UP).status == 200
    assert api.call("PUT", group, {}).status == 200
    assert api.call("DELETE", group).status == 204


def test_receipts_of_a_cell_out_of_reach_are_unavailable_and_stale_once_it_was_given_up(api: Api) -> None:
    fast = api.bench.cells["fast"].store
    assert isinstance(fast, Outage)
    fast.down = frozenset()
    api.bench.clock.pass_time(6)
    api.send("there")
    (pull,) = api.pull()
    fast.down = ALL
    answer = api.settle({"receipt": pull["receipt"]})
    assert (answer.status, answer.slug) == (503, "receipt-unavailable")
    assert answer.json["detail"].startswith("the storage of cell fast does not answer; send the request again")
    pulled = api.call("POST", f"{SUBJECT}/groups/billing/pull", {"consumer": "c", "settle": [pull_settlement(pull)]})
    assert (pulled.status, pulled.json) == (200, {"pulls": [], "settled": [{"status": "unavailable"}]})
    assert api.call("PUT", "/v1/cells/fast", {"state": "offline"}).status == 200
    assert api.call("DELETE", GIVE_UP).status == 200
    assert api.settle(pull_settlement(pull)).slug == "receipt-stale"


def pull_settlement(pull: Any) -> Any:
    return {"receipt": pull["receipt"]}
