"""No answer is larger than Lambda takes, whatever the messages hold, and all of them arrive."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from hourwheel.adapters.memory import MemoryStore
from hourwheel.api import events
from hourwheel.logs.rows import from_record, row_key
from hourwheel.model.messages import NewMessage
from hourwheel.model.pulls import PullRequest
from hourwheel.model.targets import PushDelivery
from hourwheel.ports.storage import Record
from tests.lambdajson import MOST_ANSWER_BYTES, MOST_EVENT_BYTES, as_lambda_encodes
from tests.unit.api.conftest import GROUP, Api

MIB = 1 << 20


def nested(size: int) -> str:
    """Returns JSON in JSON in JSON."""
    document: Any = {"order": 7, "lines": [{"sku": "a-1", "text": "so"}] * 30}
    for _ in range(2):
        document = {"payload": json.dumps(document)}
    return (json.dumps(document) * size)[:size]


BATCHES = {
    "JSON in JSON": [nested(40_000)] * 100,
    "lists of words": [json.dumps(["ab"] * 6_000, separators=(",", ":"))[:30_000]] * 100,
    "quotes": ['"' * MIB] * 2,
    "backslashes": ["\\" * MIB] * 3,
    "control characters": ["\x01" * 500_000] * 8,
    "new lines": ["\n" * MIB] * 4,
    "a text that is all control characters": ["\x01" * MIB] * 2,
    "characters of two and three bytes": ["é€" * 200_000] * 4,
    "bytes": [bytes(range(256)) * 4_000] * 4,
    "a thousand lines of quotes": ['"' * 4_000] * 1_000,
    "a thousand small ones": ["\x01" * 700] * 1_000,
}


@pytest.fixture(params=BATCHES)
def bodies(request: pytest.FixtureRequest) -> list[str | bytes]:
    batch = BATCHES[request.param]
    return [*batch]


def store(api: Api, bodies: list[str | bytes], *, at_once: int) -> None:
    messages = [
        NewMessage(body_base64=body) if isinstance(body, bytes) else NewMessage(body=body, headers={"quote": '"' * 100})
        for body in bodies
    ]
    for at in range(0, len(messages), at_once):
        api.bench.deployment.produce("orders", messages[at : at + at_once])


def fitting(response: Any) -> Any:
    """Returns the answer, and checks that Lambda accepts its size."""
    assert response["statusCode"] == 200, response["body"][:200]
    assert len(as_lambda_encodes(response)) <= MOST_ANSWER_BYTES
    return json.loads(response["body"])


def pulled(api: Api, settle: str = "ack", limit: int = 1_000) -> Iterator[dict[str, Any]]:
    """Pulls and settles all messages, and returns them by pull."""
    while True:
        answer = fitting(api.respond("POST", f"{GROUP}/pull", {"consumer": "c1", "max_messages": limit}))
        if not answer["pulls"]:
            return
        for pull in answer["pulls"]:
            yield from pull["messages"]
            everything = {} if settle == "ack" else {settle: list(range(len(pull["messages"])))}
            assert api.settle({"receipt": pull["receipt"], **everything}).status == 200


def body_of(message: dict[str, Any]) -> str | bytes:
    if "body" in message:
        return str(message["body"])
    return msgspec.convert(message["body_base64"], bytes)


def same(found: list[dict[str, Any]], bodies: list[str | bytes]) -> bool:
    """Checks that these messages came, each once; a text may come as bytes."""
    texts = [body_of(message) for message in found]
    return [one.encode() if isinstance(one, str) else one for one in texts] == [
        one.encode() if isinstance(one, str) else one for one in bodies
    ]


@pytest.mark.parametrize("at_once", [1, 1_000])
def test_every_message_is_handed_out_once_in_answers_that_lambda_takes(
    api: Api, bodies: list[str | bytes], at_once: int
) -> None:
    store(api, bodies, at_once=at_once)
    found = list(pulled(api))
    assert same(found, bodies)
    assert {message["attempt"] for message in found} == {1}
    assert [message["offset"] for message in found] == list(range(len(bodies)))


def test_retried_messages_fit_too(api: Api, bodies: list[str | bytes]) -> None:
    store(api, bodies, at_once=1_000)
    found = fitting(api.respond("POST", f"{GROUP}/pull", {"consumer": "c1", "max_messages": 1_000}))["pulls"]
    for pull in found:
        api.settle({"receipt": pull["receipt"], "retry": list(range(len(pull["messages"])))})
    again = [message for message in pulled(api) if message["attempt"] == 2]
    assert same(again, bodies[: len(again)])
    assert len(again) == sum(len(pull["messages"]) for pull in found)


def test_dead_letters_are_listed_page_by_page(api: Api, bodies: list[str | bytes]) -> None:
    store(api, bodies, at_once=1_000)
    assert len(list(pulled(api, settle="dead"))) == len(bodies)
    listed: list[Any] = []
    after = ""
    while True:
        page = fitting(api.respond("GET", f"{GROUP}/dead?limit=100{after}"))
        listed += page["messages"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert same(listed, bodies)
    for letter in (listed[0], listed[-1]):
        one = fitting(api.respond("GET", f"{GROUP}/dead/{letter['dead_id']}"))
        assert body_of(one) == body_of(letter)


def test_messages_with_one_id_are_traced_page_by_page(api: Api, bodies: list[str | bytes]) -> None:
    messages = [
        NewMessage(id="copy", body_base64=body) if isinstance(body, bytes) else NewMessage(id="copy", body=body)
        for body in bodies[:20]
    ]
    api.bench.deployment.produce("orders", messages)
    traced: list[Any] = []
    after = ""
    while True:
        page = fitting(api.respond("GET", f"/v1/subjects/orders/messages/copy?from=1970-01-01T00:00:00Z{after}"))
        traced += page["messages"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert same([trace["message"] for trace in traced], bodies[:20])


@pytest.mark.parametrize("target", ["queues/0/messages?limit=100", "messages/copy?from=1970-01-01T00:00:00Z"])
def test_no_call_of_the_encoder_holds_several_messages(api: Api, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    """Threads wait for each call, and one of 4 MB takes up to 70 ms."""
    api.bench.deployment.produce("orders", [NewMessage(id="copy", body="\n" * 100_000) for _ in range(5)])
    calls: list[bytes] = []
    encoder = events._encoder

    class Recorder:
        def encode(self, value: object) -> bytes:
            calls.append(encoder.encode(value))
            return calls[-1]

    monkeypatch.setattr(events, "_encoder", Recorder())
    fitting(api.respond("GET", f"/v1/subjects/orders/{target}"))
    *slices, whole = calls
    assert len(slices) >= 5
    assert max(map(len, slices)) < 250_000 < len(whole)


def test_a_pull_of_a_few_messages_ends_in_the_middle_of_a_batch(api: Api) -> None:
    bodies: list[str | bytes] = [str(number) + '"' * 100_000 for number in range(40)]
    store(api, bodies, at_once=40)
    assert same(list(pulled(api, limit=7)), bodies)


def test_a_text_that_fits_is_never_turned_into_bytes(api: Api) -> None:
    store(api, ["\x01" * 800_000, '"' * MIB], at_once=1)
    assert all("body" in message for message in pulled(api))


def test_delayed_messages_fit_when_they_are_due(api: Api) -> None:
    for _ in range(20):
        api.bench.deployment.produce("orders", [NewMessage(body='"' * 200_000, delay="2h") for _ in range(10)])
    api.bench.turn(3 * 3_600)
    assert len(list(pulled(api))) == 200


def test_what_an_answer_cannot_hold_is_given_back_without_an_attempt_more(api: Api) -> None:
    bodies: list[str | bytes] = [str(number) + '"' * 30_000 for number in range(100)]
    store(api, bodies, at_once=100)
    key = row_key("orders~1/0", 0)
    assert isinstance(api.bench.store, MemoryStore)
    record = api.bench.store.get(key)
    assert record is not None
    silent = msgspec.structs.replace(from_record(record), answer_bytes=0, cuts=())
    api.bench.store.put(key, Record(msgspec.msgpack.encode(silent), b"s" * 16), expect=record.token)
    found = list(pulled(api))
    assert {message["attempt"] for message in found} == {1}
    assert sorted(message["offset"] for message in found) == list(range(100))


def test_a_pull_of_several_queues_and_the_retries_fits(api: Api) -> None:
    api.bench.deployment.subjects.put("orders", queues=4)
    for number in range(60):
        text = str(number) + '"' * 100_000
        api.bench.deployment.produce("orders", [NewMessage(body=text, key=str(number)) for _ in range(2)])
    first = fitting(api.respond("POST", f"{GROUP}/pull", {"consumer": "c1", "max_messages": 1_000}))["pulls"]
    retried = [{"receipt": pull["receipt"], "retry": list(range(0, len(pull["messages"]), 2))} for pull in first]
    assert api.settle(*retried).status == 200
    rest = list(pulled(api))
    again = [message for message in rest if message["attempt"] == 2]
    assert len(again) == sum(len(entry["retry"]) for entry in retried)
    assert len(rest) - len(again) + sum(len(pull["messages"]) for pull in first) == 120


def test_messages_that_outlived_their_subject_are_listed_page_by_page(api: Api) -> None:
    api.bench.deployment.produce(
        "orders", [NewMessage(body=str(number) + '"' * 300_000, delay="2h") for number in range(10)]
    )
    api.bench.deployment.subjects.delete("orders")
    api.bench.turn(3 * 3_600)
    listed: list[Any] = []
    after = ""
    while True:
        page = fitting(api.respond("GET", f"/v1/subjects/orders/dead?limit=100{after}"))
        listed += page["messages"]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert sorted(int(message["body"].rstrip('"')) for message in listed) == list(range(10))


def test_a_delivery_to_a_function_is_never_larger_than_it_takes(api: Api, bodies: list[str | bytes]) -> None:
    store(api, bodies, at_once=1_000)
    api.bench.deployment.groups.put("orders", "billing")
    request = PullRequest(consumer="pusher", max_messages=1_000, lease_seconds=60)
    found = 0
    while pulls := api.bench.deployment.pull("orders", "billing", request, pushing=True).pulls:
        for pull in pulls:
            assert len(PushDelivery("orders", "billing", pull.queue, pull.messages).encoded()) <= MOST_EVENT_BYTES
            found += len(pull.messages)
    assert found == len(bodies)
