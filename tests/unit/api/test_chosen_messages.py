"""Delayed messages are cancelled and moved by the id that their sender gave, by key, tag and span, page by page."""

from typing import Any

import pytest

from hourwheel.times import rfc3339
from tests.support import NOON_MS
from tests.unit.api.conftest import Answer, Api

OF_ORDERS = "/v1/subjects/orders/delayed"


def send(api: Api, subject: str, *messages: dict[str, Any]) -> list[Any]:
    answer = api.call("POST", f"/v1/subjects/{subject}/messages", {"messages": list(messages)})
    assert answer.status == 200, answer
    return list(answer.json["results"])


def pages(api: Api, act: str, **body: Any) -> list[list[tuple[str, str]]]:
    """Returns the ids and states that all calls answer."""
    answers: list[list[tuple[str, str]]] = []
    after = None
    while not answers or after is not None:
        answer = api.call("POST", f"{OF_ORDERS}/{act}", {**body, "after": after})
        assert answer.status == 200, answer
        answers.append([(message["id"], message["state"]) for message in answer.json["messages"]])
        after = answer.json["next"]
        assert len(answers) < 200, "the pages do not end"
    return answers


def changed(api: Api, act: str, **body: Any) -> list[tuple[str, str]]:
    return [message for page in pages(api, act, **body) for message in page]


def waiting(api: Api, subject: str = "orders") -> list[str]:
    answer = api.call("GET", f"/v1/subjects/{subject}/delayed")
    return [message["id"] for message in answer.json["messages"] if message["state"] == "waiting"]


def test_a_message_is_cancelled_by_the_id_that_its_sender_gave(api: Api) -> None:
    send(api, "orders", *({"id": f"order-{n}", "body": "x", "delay": f"{n + 1}h"} for n in range(4)))
    send(api, "paid", {"id": "order-2", "body": "x", "delay": "3h"})
    assert changed(api, "cancel", id="order-2") == [("order-2", "cancelled")]
    assert changed(api, "cancel", id="order-2") == [], "a repeated call finds nothing to change"
    assert waiting(api) == ["order-0", "order-1", "order-3"]
    assert waiting(api, "paid") == ["order-2"]


def test_each_message_with_the_id_is_cancelled(api: Api) -> None:
    send(api, "orders", {"id": "twice", "body": "a", "delay": "1h"}, {"id": "twice", "body": "b", "delay": "2d"})
    assert changed(api, "cancel", id="twice") == [("twice", "cancelled")] * 2


def test_a_dry_run_names_the_messages_and_changes_nothing(api: Api) -> None:
    send(api, "orders", *({"id": f"m-{n}", "key": f"k-{n % 2}", "body": "x", "delay": "1h"} for n in range(150)))
    chosen = changed(api, "cancel", key="k-1", dry_run=True)
    assert sorted(chosen) == sorted((f"m-{n}", "waiting") for n in range(1, 150, 2))
    assert len(changed(api, "move", key="k-1", dry_run=True, deliver_at=rfc3339(NOON_MS + 7_200_000))) == 75
    assert api.call("GET", "/v1/subjects/orders/scheduled").json["total"] == 150


def test_many_messages_are_cancelled_in_calls_of_twenty_five(api: Api) -> None:
    send(api, "orders", *({"id": f"m-{n}", "tags": ["eu"], "body": "x", "delay": "1h"} for n in range(60)))
    send(api, "orders", {"id": "kept", "body": "x", "delay": "1h"})
    assert [len(page) for page in pages(api, "cancel", tag="eu")] == [25, 25, 10]
    assert waiting(api) == ["kept"]


def test_a_span_chooses_messages(api: Api) -> None:
    send(api, "orders", *({"id": f"m-{n}", "body": "x", "delay": f"{n}h"} for n in range(1, 6)))
    span = {"from": rfc3339(NOON_MS + 2 * 3_600_000), "to": rfc3339(NOON_MS + 4 * 3_600_000)}
    assert changed(api, "cancel", **span) == [("m-2", "cancelled"), ("m-3", "cancelled")]


@pytest.mark.parametrize("later_ms", [90_000, 7 * 86_400_000])
def test_each_message_is_moved_once_though_the_list_shows_it_again(api: Api, later_ms: int) -> None:
    send(api, "orders", *({"id": f"m-{n}", "key": "k", "body": "x", "delay": f"{n + 2}m"} for n in range(60)))
    at = rfc3339(NOON_MS + later_ms)
    moved = changed(api, "move", key="k", deliver_at=at)
    assert sorted(moved) == sorted((f"m-{n}", "moved") for n in range(60))
    assert changed(api, "move", key="k", deliver_at=at) == []
    listed = api.call("GET", f"{OF_ORDERS}?from={at}").json["messages"]
    assert {message["deliver_at"] for message in listed if message["state"] == "waiting"} == {at}


def test_messages_are_moved_to_the_present_once(api: Api) -> None:
    send(api, "orders", *({"id": f"m-{n}", "body": "x", "delay": "2h"} for n in range(30)))
    moved = changed(api, "move", all=True, deliver_at=rfc3339(NOON_MS))
    assert sorted(moved) == sorted((f"m-{n}", "moved") for n in range(30))
    api.bench.turn(2)
    assert len([message for pull in api.pull() for message in pull["messages"]]) == 30


@pytest.mark.parametrize(
    "body",
    [{}, {"all": True, "key": "k"}, {"all": False}, {"id": ""}, {"key": "k", "after": "x"}, {"key": "k", "limit": 5}],
)
def test_a_choice_that_says_nothing_or_two_things_is_refused(api: Api, body: dict[str, Any]) -> None:
    send(api, "orders", {"id": "m", "body": "x", "delay": "1h"})
    assert api.call("POST", f"{OF_ORDERS}/cancel", body).status == 400
    assert waiting(api) == ["m"]


def test_a_move_needs_a_time_and_an_unknown_subject_is_not_found(api: Api) -> None:
    send(api, "orders", {"id": "m", "body": "x", "delay": "1h"})
    assert api.call("POST", f"{OF_ORDERS}/move", {"all": True}).status == 400
    answer: Answer = api.call("POST", "/v1/subjects/gone/delayed/cancel", {"all": True})
    assert (answer.status, answer.slug) == (404, "subject-unknown")
