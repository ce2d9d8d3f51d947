"""Quotas of a server, as clients meet them over HTTP."""

import pytest

from hourwheel.client import Api, Conflict, Message, NotFound, ServerUnavailable
from tests.integration.conftest import Start

ALL = {"max_subjects": 1, "max_groups": 1, "group_rate": 0.01}


def test_a_client_learns_which_limit_it_met(start: Start) -> None:
    server = start(**ALL)
    with Api(f"http://127.0.0.1:{server.port}", retry_seconds=0) as api:
        api.produce("orders", [Message("a")])
        with pytest.raises(Conflict) as subjects:
            api.produce("returns", [Message("a")])
        (pull,) = api.pull("orders", "billing", "c1").pulls
        with pytest.raises(Conflict) as groups:
            api.pull("orders", "audit", "c1")
        with pytest.raises(ServerUnavailable) as rate:
            api.pull("orders", "billing", "c1")
        assert [pull.messages[0].body] == ["a"]
    assert (subjects.value.slug, groups.value.slug) == ("too-many-subjects", "too-many-groups")
    assert (rate.value.status, rate.value.slug) == (429, "too-many-requests")
    assert 90 <= rate.value.retry_after_seconds <= 100
    assert not rate.value.sent, "nothing was done for it"


def test_a_pull_that_is_refused_settles_nothing_and_settling_is_free(start: Start) -> None:
    server = start(**ALL)
    path = "/v1/subjects/orders/groups/billing"
    with server.connect() as connection:
        connection.ok("POST", "/v1/subjects/orders/messages", {"messages": [{"body": "a"}]})
        receipt = connection.ok("POST", f"{path}/pull", {"consumer": "c1"})["pulls"][0]["receipt"]
        settle = {"settle": [{"receipt": receipt}]}
        refused = connection.call("POST", f"{path}/pull", {"consumer": "c1", **settle})
        assert (refused.status, refused.json["type"]) == (429, "urn:hourwheel:too-many-requests")
        assert connection.ok("GET", f"{path}/lag")["in_flight"] == 1
        assert connection.ok("POST", f"{path}/ack", settle)["results"] == [{"status": "settled"}]


def test_nothing_is_made_by_use_where_that_is_turned_off(start: Start) -> None:
    server = start(auto_create=False)
    with Api(f"http://127.0.0.1:{server.port}") as api:
        with pytest.raises(NotFound, match="PUT /v1/subjects/orders"):
            api.produce("orders", [Message("a")])
        api.put_subject("orders")
        api.produce("orders", [Message("a")])
        with pytest.raises(NotFound, match="PUT /v1/subjects/orders/groups/billing"):
            api.pull("orders", "billing", "c1")
