"""Problems of cells, routes, and groups that exclude settings: each has its status, its type and its field."""

from typing import Any

import pytest

from hourwheel.adapters.memory import MemoryBlobs, MemoryStore
from hourwheel.cells import moves
from hourwheel.cells.cell_storage import GuardedCells
from hourwheel.context import Settings
from hourwheel.embedded.directories.directory import DirectoryCells
from hourwheel.errors import CellUnavailable, Throttled
from hourwheel.model import routes
from hourwheel.ports.storage import CellStorage
from hourwheel.registry import broadcast
from tests.support import AT_ONCE, Bench
from tests.unit.api.conftest import GROUP, Answer, Api

SUBJECT = "/v1/subjects/orders"


@pytest.fixture
def api() -> Api:
    """Returns an API with the cells ``fast`` and ``old``, and a subject whose second queue is in ``fast``."""
    cells = {name: CellStorage(MemoryStore(), MemoryBlobs()) for name in ("fast", "old")}
    api = Api(Bench(settings=Settings(retry=AT_ONCE, registry_seconds=0), cells=cells))
    for cell in cells:
        assert api.call("PUT", f"/v1/cells/{cell}", {"kinds": ["real-time"]}).status == 200
    assert api.call("PUT", SUBJECT, {"queues": 2}).status == 200
    assert move(api, 1, "fast").status == 200
    return api


def move(api: Api, queue: int, cell: str, **how: Any) -> Answer:
    return api.call("POST", f"{SUBJECT}/queues/{queue}/move", {"cell": cell, **how})


def test_a_move_to_a_cell_that_does_not_answer_says_where_the_queue_is(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Throttled("the disk does not answer")

    for name in ("counter", "transact"):
        monkeypatch.setattr(api.bench.cells["fast"].store, name, fail)
    answer = move(api, 0, "fast")
    assert (answer.status, answer.json["type"]) == (503, "urn:hourwheel:unavailable")
    assert answer.json["detail"] == (
        "the storage of cell fast does not answer; queue 0 stays where it is; send the request again. The log of the"
        " server has the reason"
    )


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_repetition_is_advised_only_where_it_may_help(api: Api, dry_run: bool) -> None:
    context = api.bench.deployment.context
    cells = GuardedCells(DirectoryCells({}, {}, "start the server with"), context.store, context.clock, context.ids)
    object.__setattr__(context, "cells", cells)
    answer = move(api, 0, "fast", dry_run=dry_run)
    assert (answer.status, answer.json["detail"]) == (
        503,
        "cell fast is not opened here: start the server with --cell fast=DIRECTORY; queue 0 stays where it is",
    )


def test_only_a_producer_is_told_of_idempotency_keys_while_a_cell_does_not_answer(
    api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Throttled("the disk does not answer")

    for name in ("counters", "transact"):
        monkeypatch.setattr(api.bench.cells["fast"].store, name, fail)
    api.bench.deployment = api.bench.another_process()
    api = Api(api.bench)
    read = api.call("GET", f"{SUBJECT}/queues/1/messages")
    sent = api.call("POST", f"{SUBJECT}/messages", {"messages": [{"body": "a", "queue": 1}]})
    reason = "the storage of cell fast does not answer; send the request again{}. The log of the server has the reason"
    assert (read.status, read.json["detail"]) == (503, reason.format(""))
    keyed = ", with the same idempotency key if it had one"
    assert (sent.status, sent.json["detail"]) == (503, reason.format(keyed))
    assert "the storage of cell fast does not answer: the disk does not answer" in caplog.messages


def test_a_cell_that_is_not_opened_is_logged_in_one_sentence(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    context = api.bench.deployment.context
    cells = GuardedCells(DirectoryCells({}, {}, "start the server with"), context.store, context.clock, context.ids)
    with pytest.raises(CellUnavailable):
        cells.storage("fast")
    assert caplog.messages == ["cell fast is not opened here: start the server with --cell fast=DIRECTORY"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "slug"),
    [
        ("GET", "/v1/cells/nowhere", None, 404, "cell-unknown"),
        ("PUT", "/v1/cells/nowhere", {"kinds": ["real-time"]}, 404, "cell-unknown"),
        ("PUT", "/v1/cells/home", {"state": "draining"}, 409, "cell-home"),
        ("POST", "/v1/cells/home/drain", {}, 409, "cell-home"),
        ("DELETE", "/v1/cells/home", None, 409, "cell-home"),
        ("PUT", "/v1/cells/fast", {"state": "offline"}, 409, "cell-in-use"),
        ("DELETE", "/v1/cells/fast", None, 409, "cell-in-use"),
        ("PUT", "/v1/cells/fast", {"kinds": []}, 400, "field-invalid"),
        ("PUT", "/v1/cells/fast", {"kinds": ["slow"]}, 400, "field-invalid"),
        ("PUT", "/v1/cells/fast", {"state": "broken"}, 400, "field-invalid"),
        ("POST", f"{SUBJECT}/queues/1/move", {"cell": "fast"}, 409, "queue-there"),
        ("POST", f"{SUBJECT}/queues/0/move", {"cell": "nowhere"}, 404, "cell-unknown"),
        ("POST", f"{SUBJECT}/queues/9/move", {"cell": "fast"}, 404, "queue-unknown"),
        ("POST", f"{SUBJECT}/queues/x/move", {"cell": "fast"}, 400, "field-invalid"),
        ("POST", f"{SUBJECT}/queues", {"queues": 1}, 409, "setting-fixed"),
        ("POST", f"{SUBJECT}/queues", {"queues": 65}, 400, "field-invalid"),
        ("POST", f"{SUBJECT}/spread", {"cells": ["nowhere"]}, 404, "cell-unknown"),
        ("GET", "/v1/routes/parcels", None, 404, "subject-unknown"),
        ("GET", f"{SUBJECT}/queues/2/messages", None, 404, "queue-unknown"),
        ("GET", f"{SUBJECT}/messages/0:0", None, 404, "offset-unknown"),
        ("POST", f"{GROUP}/consumers/host-1/leave", {}, 404, "group-unknown"),
        ("POST", f"{GROUP}/held", {"then": "retry", "all": True}, 404, "group-unknown"),
    ],
)
def test_a_problem_has_its_status_and_type(api: Api, method: str, path: str, body: Any, status: int, slug: str) -> None:
    answer = api.call(method, path, body)
    assert (answer.status, answer.slug) == (status, slug)
    assert answer.json["title"] != answer.json["detail"]


def test_a_cell_that_is_draining_takes_no_queue(api: Api) -> None:
    assert api.call("POST", "/v1/cells/old/drain", {}).status == 200
    answer = move(api, 0, "old")
    assert (answer.status, answer.slug) == (409, "cell-state")
    assert "is draining" in answer.json["detail"]


def test_a_cell_that_holds_messages_is_not_removed(api: Api) -> None:
    assert api.call("POST", f"{SUBJECT}/messages", {"messages": [{"body": "a", "queue": 1}]}).status == 200
    drained = api.call("POST", "/v1/cells/fast/drain", {})
    assert [(left["queue"], left["messages"]) for left in drained.json["left"]] == [(1, 1)]
    answer = api.call("DELETE", "/v1/cells/fast")
    assert (answer.status, answer.slug) == (409, "cell-in-use")
    assert "still holds" in answer.json["detail"]


def test_a_dry_run_answers_what_would_be_and_changes_nothing(api: Api) -> None:
    before = api.call("GET", "/v1/routes/orders").json
    for path, body in (("queues/0/move", {"cell": "old"}), ("queues", {"queues": 5}), ("spread", {"cells": ["old"]})):
        answer = api.call("POST", f"{SUBJECT}/{path}", {**body, "dry_run": True})
        assert (answer.status, answer.json["dry_run"]) == (200, True)
        assert answer.json["before"] == before
        assert answer.json["after"] != before
    assert api.call("POST", "/v1/cells/fast/drain", {"dry_run": True}).json["moved"]
    assert api.call("GET", "/v1/routes/orders").json == before
    assert [cell["state"] for cell in api.call("GET", "/v1/cells").json["cells"]] == ["normal"] * 3


def test_a_queue_with_too_many_parts_is_not_moved(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "MAX_MAPPINGS", 2)
    assert routes.MAX_MAPPINGS == 16
    for cell in ("old", "fast"):
        assert api.call("POST", f"{SUBJECT}/messages", {"messages": [{"body": "a", "queue": 1}]}).status == 200
        answer = move(api, 1, cell)
    assert (answer.status, answer.slug) == (409, "route-full")


def test_a_broadcast_group_has_no_more_consumers_than_its_limit(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "MAX_BROADCAST_CONSUMERS", 1)
    assert api.call("PUT", GROUP, {"broadcast": True}).status == 200
    assert api.call("POST", f"{GROUP}/pull", {"consumer": "hall"}).status == 200
    answer = api.call("POST", f"{GROUP}/pull", {"consumer": "door"})
    assert (answer.status, answer.slug) == (409, "too-many-consumers")
    assert "names that stay the same" in answer.json["detail"]


@pytest.mark.parametrize(
    ("first", "then", "status", "field"),
    [
        ({}, {"ordered": True}, 409, "ordered"),
        ({"ordered": True}, {"ordered": False}, 409, "ordered"),
        ({}, {"broadcast": True}, 409, "broadcast"),
        ({"broadcast": True}, {"broadcast": False}, 409, "broadcast"),
        ({"start": "latest"}, {"start": "earliest"}, 409, "start"),
        ({}, {"when_dead": "stop"}, 400, "when_dead"),
        ({}, {"max_held": 5}, 400, "max_held"),
        ({}, {"consumer_expires_seconds": 60}, 400, "consumer_expires_seconds"),
        ({"ordered": True}, {"filter": {"tags_any": ["eu"]}}, 400, "filter"),
        ({"ordered": True}, {"max_held": 0}, 400, "max_held"),
        ({"broadcast": True}, {"push": {"kind": "lambda", "arn": "x"}}, 400, None),
    ],
)
def test_a_setting_that_does_not_fit_the_group_names_its_field(
    api: Api, first: dict[str, Any], then: dict[str, Any], status: int, field: str | None
) -> None:
    assert api.call("PUT", GROUP, first).status == 200
    answer = api.call("PUT", GROUP, then)
    assert answer.status == status
    assert field is None or answer.json["field"] == field


def test_a_decision_names_keys_or_all_of_them(api: Api) -> None:
    assert api.call("PUT", GROUP, {"ordered": True, "when_dead": "stop"}).status == 200
    assert api.call("POST", f"{GROUP}/held", {"then": "dead", "all": True}).json == {"decided": 0}
    for body in ({"then": "dead"}, {"then": "dead", "all": True, "keys": ["a"]}, {"all": True}, {"then": "later"}):
        assert api.call("POST", f"{GROUP}/held", body).status == 400
    assert api.call("PUT", f"{SUBJECT}/groups/plain", {}).status == 200
    plain = api.call("POST", f"{SUBJECT}/groups/plain/held", {"then": "dead", "all": True})
    assert (plain.status, plain.slug) == (400, "group-unordered")
