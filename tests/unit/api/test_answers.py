"""The API answers right requests."""

import dataclasses
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hourwheel.api import problems
from tests.unit.api.conftest import GROUP, MESSAGES, Answer, Api


def test_produce_says_where_each_message_is(api: Api) -> None:
    answer = api.call("POST", MESSAGES, {"messages": [{"body": "a", "id": "order-7"}, {"body_base64": "AAEC"}]})
    first, second = answer.json["results"]
    assert first == {"id": "order-7", "queue": 0, "offset": 0}
    assert (second["queue"], second["offset"]) == (0, 1)
    assert answer.headers["content-type"] == "application/json"


def test_a_batch_for_many_subjects_keeps_the_order_of_its_results(api: Api) -> None:
    batch = [{"subject": "a", "body": "1"}, {"subject": "b", "body": "2"}, {"subject": "a", "body": "3"}]
    results = api.call("POST", "/v1/messages", {"messages": batch}).json["results"]
    assert [result["offset"] for result in results] == [0, 0, 1]


def test_the_same_idempotency_key_gets_the_first_answer(api: Api) -> None:
    batch = {"messages": [{"body": "a"}], "idempotency_key": "k"}
    first = api.call("POST", MESSAGES, batch)
    assert api.call("POST", MESSAGES, batch) == first
    other = api.call("POST", MESSAGES, {"messages": [{"body": "b"}], "idempotency_key": "k"})
    assert (other.status, other.slug, other.json["field"]) == (409, "idempotency-key-reused", "idempotency_key")
    assert [message["body"] for pull in api.pull() for message in pull["messages"]] == ["a"]


def test_the_batches_of_a_sender_are_told_by_their_numbers(api: Api) -> None:
    def send(body: str, sequence: object) -> Answer:
        batch = {"messages": [{"body": body}], "idempotency_key": "sender", "sequence": sequence}
        return api.call("POST", MESSAGES, batch)

    first = send("a", 1)
    assert (first.status, send("a", 1), send("b", 2).status) == (200, first, 200)
    late = send("a", 1)
    assert (late.status, late.slug, late.json["field"]) == (409, "sequence-passed", "sequence")
    assert [send("c", sequence).slug for sequence in (0, -1, 1 << 53, "3", 3.5)] == ["field-invalid"] * 5
    assert [message["body"] for pull in api.pull() for message in pull["messages"]] == ["a", "b"]


def test_a_sequence_needs_the_key_whose_batches_it_numbers(api: Api) -> None:
    for route, message in ((MESSAGES, {"body": "a"}), ("/v1/messages", {"body": "a", "subject": "orders"})):
        answer = api.call("POST", route, {"messages": [message], "sequence": 1})
        assert (answer.status, answer.slug, answer.json["field"]) == (400, "field-invalid", "sequence")


def test_pull_leaves_out_what_is_absent(api: Api) -> None:
    api.call("POST", MESSAGES, {"messages": [{"body": "a", "id": "1"}, {"body_base64": "AAEC", "id": "2", "key": "k"}]})
    answer = api.call("POST", f"{GROUP}/pull", {"consumer": "c1"})
    assert "settled" not in answer.json
    (pull,) = answer.json["pulls"]
    assert set(pull) == {"receipt", "queue", "lease_until", "messages"}
    text, data = pull["messages"]
    assert set(text) == {"id", "queue", "offset", "attempt", "produced_at", "body"}
    assert set(data) == {"id", "queue", "offset", "attempt", "produced_at", "body_base64", "key"}
    assert b64decode(data["body_base64"]) == b"\x00\x01\x02"


def test_a_pull_settles_the_one_before(api: Api) -> None:
    api.send("a")
    (pull,) = api.pull()
    answer = api.call("POST", f"{GROUP}/pull", {"consumer": "c1", "settle": [{"receipt": pull["receipt"]}]})
    assert answer.json == {"pulls": [], "settled": [{"status": "settled"}]}


def test_ack_answers_entry_by_entry(api: Api) -> None:
    api.send("a", "b", "c")
    (pull,) = api.pull()
    receipt = pull["receipt"]
    answer = api.settle(
        {"receipt": receipt, "ack": [0]}, {"receipt": receipt, "extend_seconds": 60}, {"receipt": receipt}
    )
    statuses = [result["status"] for result in answer.json["results"]]
    assert statuses == ["open", "extended", "settled"]
    assert "lease_until" in answer.json["results"][1]


def test_when_every_receipt_is_stale_the_answer_is_a_conflict(api: Api) -> None:
    api.send("a")
    (pull,) = api.pull(lease_seconds=1)
    api.bench.clock.pass_time(2)
    api.pull()
    answer = api.settle({"receipt": pull["receipt"]})
    assert (answer.status, answer.slug) == (409, "receipt-stale")
    assert answer.json["results"] == [{"status": "stale"}]


class Lambda:
    """An invocation with this much time left."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def get_remaining_time_in_millis(self) -> int:
        return round(self._seconds * 1_000)


def test_a_pull_waits_no_longer_than_its_invocation_lasts(api: Api, monkeypatch: Any) -> None:
    waited: list[float] = []
    monkeypatch.setattr(
        type(api.bench.deployment), "pull", lambda cell, s, g, request: waited.append(request.wait_seconds)
    )
    for seconds in (3.0, 0.5, 100.0):
        api.call("POST", f"{GROUP}/pull", {"consumer": "c1", "wait_seconds": 20}, context=Lambda(seconds))
    assert waited == [2.0, 0.0, 20.0]


def test_a_pull_waits_no_longer_than_the_cell_lets_it(api: Api, monkeypatch: Any) -> None:
    waited: list[float] = []
    monkeypatch.setattr(
        type(api.bench.deployment), "pull", lambda cell, s, g, request: waited.append(request.wait_seconds)
    )
    context = api.bench.deployment.context
    capped = msgspec.structs.replace(context.settings, max_wait_seconds=1.5)
    monkeypatch.setattr(api.bench.deployment, "context", dataclasses.replace(context, settings=capped))
    for wait_seconds in (20, 1):
        api.call("POST", f"{GROUP}/pull", {"consumer": "c1", "wait_seconds": wait_seconds})
    assert waited == [1.5, 1.0]


def test_a_subject_is_made_changed_listed_and_deleted(api: Api) -> None:
    made = api.call("PUT", "/v1/subjects/orders", {"queues": 2}).json
    assert made == {
        "subject": "orders",
        "queues": 2,
        "retention_seconds": 259_200,
        "clamp_delays": False,
        "paused": False,
        "read_only": False,
        "created_at": made["created_at"],
        "groups": [],
        "more_groups": False,
    }
    assert api.call("PUT", "/v1/subjects/orders", {"retention_seconds": 60}).json["queues"] == 2
    api.call("PUT", GROUP)
    assert api.call("GET", "/v1/subjects/orders").json["groups"] == ["billing"]
    api.call("PUT", "/v1/subjects/refunds")
    first = api.call("GET", "/v1/subjects?limit=1").json
    assert ([one["subject"] for one in first["subjects"]], first["next"]) == (["orders"], "orders")
    rest = api.call("GET", "/v1/subjects?after=orders").json
    assert ([one["subject"] for one in rest["subjects"]], rest["next"]) == (["refunds"], None)
    assert api.call("DELETE", "/v1/subjects/orders").status == 204
    assert api.call("GET", "/v1/subjects/orders").slug == "subject-unknown"


def test_settings_that_are_fixed_are_a_conflict(api: Api) -> None:
    api.call("PUT", "/v1/subjects/orders", {"queues": 2})
    api.call("PUT", GROUP, {"start": "latest"})
    fewer = api.call("PUT", "/v1/subjects/orders", {"queues": 1})
    other = api.call("PUT", GROUP, {"start": "earliest"})
    assert [(one.status, one.slug, one.json["field"]) for one in (fewer, other)] == [
        (409, "setting-fixed", "queues"),
        (409, "setting-fixed", "start"),
    ]


def test_keys_of_an_unordered_group_cannot_be_decided(api: Api) -> None:
    api.call("PUT", GROUP, {})
    answer = api.call("POST", f"{GROUP}/held", {"then": "retry", "keys": ["a"]})
    assert (answer.status, answer.slug, answer.json["field"]) == (400, "group-unordered", "group")


def test_every_refusal_has_a_title() -> None:
    library = Path(problems.__file__).parents[1]
    refusal = re.compile(r'\b(?:Rejected|Conflict|NotFound|TooLarge)\(\s*"([a-z-]+)"')
    answered_elsewhere = {"adapters", "archive", "cli", "retention"}  # by commands and jobs, not by requests
    sources = [path for path in library.rglob("*.py") if path.relative_to(library).parts[0] not in answered_elsewhere]
    slugs = {slug for path in sources for slug in refusal.findall(path.read_text())}
    assert len(slugs) > 20
    assert slugs - set(problems.TITLES) == set()


def test_a_group_is_made_listed_and_deleted(api: Api) -> None:
    made = api.call("PUT", GROUP, {"start": "latest", "max_attempts": 3}).json
    assert (made["subject"], made["group"], made["start"], made["max_attempts"]) == ("orders", "billing", "latest", 3)
    assert api.call("GET", GROUP).json == made
    assert api.call("GET", "/v1/subjects/orders/groups").json == {"groups": [made], "next": None}
    assert api.call("DELETE", GROUP).status == 204
    assert api.call("GET", GROUP).slug == "group-unknown"


def test_groups_come_in_pages_and_a_subject_names_its_first(api: Api) -> None:
    for number in range(101):
        api.bench.deployment.groups.put("orders", f"g{number:03}")
    first = api.call("GET", "/v1/subjects/orders/groups").json
    assert (len(first["groups"]), first["next"]) == (100, "g099")
    rest = api.call("GET", "/v1/subjects/orders/groups?after=g099&limit=1").json
    assert ([group["group"] for group in rest["groups"]], rest["next"]) == (["g100"], None)
    subject = api.call("GET", "/v1/subjects/orders").json
    assert (len(subject["groups"]), subject["groups"][-1], subject["more_groups"]) == (100, "g099", True)
    assert api.call("GET", "/v1/subjects/orders/groups?limit=101").slug == "field-invalid"


def test_limits_are_set_and_named(api: Api) -> None:
    api.send(*"abcde")
    made = api.call("PUT", GROUP, {"max_in_flight": 3, "messages_per_second": 4.5}).json
    assert (made["max_in_flight"], made["messages_per_second"]) == (3, 4.5)
    first = api.call("POST", f"{GROUP}/pull", {"consumer": "c1"}).json
    assert ([len(pull["messages"]) for pull in first["pulls"]], first["limited_by"]) == ([3], "max_in_flight")
    assert api.call("POST", f"{GROUP}/pull", {"consumer": "c1"}).json == {"pulls": [], "limited_by": "max_in_flight"}
    assert api.call("GET", f"{GROUP}/lag").json["limited_by"] == "max_in_flight"
    assert api.call("PUT", GROUP, {"max_in_flight": 0, "messages_per_second": 0}).json["max_in_flight"] == 0
    assert len(api.pull()[0]["messages"]) == 2
    for wrong in ({"max_in_flight": -1}, {"max_in_flight": 1.5}, {"messages_per_second": "fast"}):
        assert api.call("PUT", GROUP, wrong).slug == "field-invalid"


def test_a_group_and_a_subject_are_paused_and_resumed(api: Api) -> None:
    api.send("a")
    api.call("PUT", GROUP)
    for target, name in ((GROUP, "paused"), ("/v1/subjects/orders", "subject_paused")):
        paused = api.call("POST", f"{target}/pause")
        assert (paused.status, paused.json["paused"]) == (200, True)
        assert api.call("GET", target).json == paused.json
        assert api.call("POST", f"{GROUP}/pull", {"consumer": "c1"}).json == {"pulls": [], "limited_by": name}
        assert api.call("GET", f"{GROUP}/lag").json["limited_by"] == name
        assert api.call("POST", f"{target}/resume").json["paused"] is False
    assert api.call("POST", f"{GROUP}/pull", {"consumer": "c1"}).json.keys() == {"pulls"}
    assert api.call("POST", "/v1/subjects/orders/groups/other/pause").slug == "group-unknown"
    assert api.call("POST", "/v1/subjects/other/resume").slug == "subject-unknown"


def test_a_queue_is_looked_at(api: Api) -> None:
    api.send("a", "b", "c")
    queue = "/v1/subjects/orders/queues/0/messages"
    page = api.call("GET", f"{queue}?limit=2").json
    assert [(each["body"], each["offset"]) for each in page["messages"]] == [("a", 0), ("b", 1)]
    assert "attempt" not in page["messages"][0]
    assert (page["next"], page["end"], page["damaged"]) == (2, 3, [])
    assert [each["body"] for each in api.call("GET", f"{queue}?newest=true&offset=1").json["messages"]] == ["b", "a"]
    later = "2099-01-01T00:00:00Z"
    assert api.call("GET", f"{queue}?time={later}").json["messages"] == []
    assert len(api.call("GET", f"{queue}?time={later}&newest=true").json["messages"]) == 3
    assert api.call("GET", "/v1/subjects/orders/groups").json["groups"] == []


def test_a_message_is_traced(api: Api) -> None:
    api.send("a", "b")
    (pull,) = api.pull()
    api.settle({"receipt": pull["receipt"], "dead": [1]})
    (found,) = api.call("GET", "/v1/subjects/orders/messages/0:1").json["messages"]
    assert (found["state"], found["message"]["body"], found["queue"], found["offset"]) == ("accepted", "b", 0, 1)
    (group,) = found["groups"]
    assert (group["group"], group["state"], group["complete"]) == ("billing", "dead", True)
    assert [event["event"] for event in group["events"]] == ["pulled", "dead"]
    by_id = api.call("GET", f"/v1/subjects/orders/messages/{found['id']}?group=billing").json
    assert by_id == {"messages": [found], "next": None}
    scheduled_id = api.send_later("c", delay="2h")
    (waits,) = api.call("GET", f"/v1/subjects/orders/messages/{scheduled_id}").json["messages"]
    assert (waits["state"], waits["scheduled_id"]) == ("scheduled", scheduled_id)


def test_seek_moves_a_group(api: Api) -> None:
    api.send("a", "b")
    api.pull()
    assert api.call("POST", f"{GROUP}/seek", {"to": "start"}).json == {"positions": [{"queue": 0, "offset": 0}]}
    assert api.call("POST", f"{GROUP}/seek", {"to": "end"}).json == {"positions": [{"queue": 0, "offset": 2}]}
    assert api.call("POST", f"{GROUP}/seek", {"queue": 0, "offset": 1}).json == {
        "positions": [{"queue": 0, "offset": 1}]
    }
    assert api.call("POST", f"{GROUP}/seek", {"time": "2020-01-01T00:00:00Z"}).json["positions"][0]["offset"] == 0
    (pull,) = api.pull()
    assert [message["body"] for message in pull["messages"]] == ["a", "b"]


def test_lag_counts(api: Api) -> None:
    api.send("a", "b")
    api.pull(max_messages=1)
    lag = api.call("GET", f"{GROUP}/lag").json
    assert (lag["waiting"], lag["in_flight"], lag["retrying"], lag["dead"]) == (1, 1, 0, 0)
    assert lag["queues"] == [{"queue": 0, "waiting": 1, "in_flight": 1, "offset": 1, "end": 2}]


def test_dead_letters_are_listed_read_redriven_and_dropped(api: Api) -> None:
    api.bury("a", "b", "c")
    page = api.call("GET", f"{GROUP}/dead?limit=2").json
    assert [(one["body"], one["reason"]) for one in page["messages"]] == [("a", "rejected"), ("b", "rejected")]
    rest = api.call("GET", f"{GROUP}/dead?after={page['next']}").json
    assert ([one["body"] for one in rest["messages"]], rest["next"]) == (["c"], None)
    one, two = (message["dead_id"] for message in page["messages"])
    assert api.call("GET", f"{GROUP}/dead/{one}").json["body"] == "a"
    assert api.call("POST", f"{GROUP}/dead/redrive", {"ids": [one]}).json == {"redriven": 1}
    assert api.call("GET", f"{GROUP}/dead/{one}").slug == "dead-letter-unknown"
    assert api.call("DELETE", f"{GROUP}/dead", {"ids": [two]}).json == {"dropped": 1}
    assert api.call("POST", f"{GROUP}/dead/redrive", {"all": True}).json == {"redriven": 1}
    assert sorted(message["body"] for pull in api.pull() for message in pull["messages"]) == ["a", "c"]


def test_dead_letters_are_chosen_by_the_time_of_death(api: Api) -> None:
    api.bury("early")
    api.bench.clock.pass_time(10)
    api.bury("late")
    died_at = api.call("GET", f"{GROUP}/dead").json["messages"][1]["died_at"]
    assert api.call("DELETE", f"{GROUP}/dead", {"from": died_at, "to": died_at}).json == {"dropped": 0}
    assert api.call("DELETE", f"{GROUP}/dead", {"to": died_at}).json == {"dropped": 1}
    assert api.call("DELETE", f"{GROUP}/dead", {"from": died_at}).json == {"dropped": 1}


def test_a_page_of_dead_letters_is_cut_where_it_grows_too_large(api: Api) -> None:
    for _ in range(7):
        api.bury("x" * (1 << 20))
    page = api.call("GET", f"{GROUP}/dead").json
    assert len(page["messages"]) == 5
    rest = api.call("GET", f"{GROUP}/dead?after={page['next']}").json
    assert (len(rest["messages"]), rest["next"]) == (2, None)


def test_health_names_the_version(api: Api) -> None:
    assert api.call("GET", "/v1/health").json["status"] == "ok"


def test_the_detail_of_a_retry_is_shown_by_pulls_and_by_the_dead_letter(api: Api) -> None:
    api.call("PUT", GROUP, {"max_attempts": 2, "retry": {"first_seconds": 0}})
    api.send("a")
    for attempt, shown in ((1, None), (2, "no price")):
        (pull,) = api.pull()
        assert [(each["attempt"], each.get("detail")) for each in pull["messages"]] == [(attempt, shown)]
        retry = [{"index": 0, "detail": "no price" if attempt == 1 else "no disk"}]
        assert api.settle({"receipt": pull["receipt"], "retry": retry}).json["results"] == [{"status": "settled"}]
    (letter,) = api.call("GET", f"{GROUP}/dead").json["messages"]
    assert (letter["reason"], letter["detail"]) == ("attempts", "no disk")
    (reason,) = api.call("GET", f"{GROUP}/dead/reasons").json["reasons"]
    assert (reason["reason"], reason["detail"], reason["messages"]) == ("attempts", "no disk", 1)
    chosen = {"reason": "attempts", "detail": "no disk"}
    assert api.call("POST", f"{GROUP}/dead/redrive", chosen).json == {"redriven": 1}
    assert "detail" not in api.pull()[0]["messages"][0]


@pytest.mark.parametrize(
    "entry",
    [
        {"index": 0, "detail": "x" * 1_001},
        {"index": 0, "detail": 5},
        {"index": 0, "detail": ["no price"]},
        {"index": 0, "why": "no price"},
        {"detail": "no price"},
    ],
    ids=["too long", "a number", "a list", "an unknown field", "no index"],
)
def test_a_wrong_detail_of_a_retry_is_refused_and_settles_nothing(api: Api, entry: dict[str, Any]) -> None:
    api.send("a")
    (pull,) = api.pull()
    refused = api.settle({"receipt": pull["receipt"], "retry": [entry]})
    assert (refused.status, refused.slug) == (400, "field-invalid")
    assert refused.json["field"].startswith("settle[0].retry[0]")
    assert api.settle({"receipt": pull["receipt"], "retry": [{"index": 0, "detail": None}]}).status == 200
