"""The content of a request is bounded before it becomes objects: a body of 6 MB must not delay all other requests."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hourwheel.api.requests import check_values
from hourwheel.errors import TooLarge
from hourwheel.wire import misfits
from tests.memory import peak_bytes
from tests.unit.api.conftest import GROUP, MESSAGES, Api

MIB = 1 << 20
COUNT = 400_000

TOO_MANY = {
    "empty messages": b'{"messages":[' + b"{}," * COUNT + b"{}]}",
    "batches of empty messages": b"{" + b",".join([b'"messages":[' + b"{}," * 999 + b"{}]"] * 400) + b"}",
    "empty bodies": b'{"messages":[' + b'{"body":""},' * COUNT + b'{"body":""}]}',
    "tags": b'{"messages":[{"tags":[' + b'"ab",' * COUNT + b'"ab"]}]}',
    "headers": b'{"messages":[{"headers":{' + b",".join(b'"%d":""' % n for n in range(COUNT)) + b"}}]}",
    "empty messages behind an escaped quote": b'{"idempotency_key":"\\\\\\"","messages":[' + b"{}," * COUNT + b"{}]}",
}


@pytest.mark.parametrize("route", [MESSAGES, "/v1/messages"])
@pytest.mark.parametrize("shape", TOO_MANY)
def test_more_values_than_a_batch_can_have_are_refused_before_there_is_an_object_for_each(
    api: Api, route: str, shape: str
) -> None:
    body = TOO_MANY[shape]
    answers: list[Any] = []
    # The event and the objects made of it contain the body a few times.
    assert peak_bytes(lambda: answers.append(api.call("POST", route, raw=body))) < 8 * len(body) + 8 * MIB
    assert [(answer.status, answer.slug) for answer in answers] == [(413, "batch-too-large")]


def test_a_batch_of_texts_full_of_commas_is_none_of_these(api: Api) -> None:
    text = json.dumps([{"name": 'a "quoted" \\ word', "list": list(range(40))}] * 200)
    answer = api.call("POST", MESSAGES, {"messages": [{"body": text, "headers": {"a": text[:4_000]}}] * 50})
    assert answer.status == 200
    (pull,) = api.pull()
    assert [message["body"] for message in pull["messages"]] == [text] * 50


def test_the_largest_batch_there_can_be_is_accepted(api: Api) -> None:
    message = {
        "body": "b,",
        "key": "k,",
        "delay": "1ms",
        "tags": [f"t{n}" for n in range(10)],
        "headers": {f"h{n}": '","' for n in range(32)},
    }
    batch = [{**message, "id": f"m-{n}"} for n in range(1_000)]
    assert api.call("POST", MESSAGES, {"messages": batch, "idempotency_key": "k"}).status == 200


@pytest.mark.parametrize("position", ["{}", '{{"messages":[{}]}}', '{{"messages":[{{"headers":{}}}]}}'])
def test_a_name_of_megabytes_is_quoted_in_part_and_searched_in_part(
    api: Api, monkeypatch: pytest.MonkeyPatch, position: str
) -> None:
    searched: list[int] = []

    class Watched:
        def __init__(self, pattern: re.Pattern[str]) -> None:
            self.pattern = pattern

        def fullmatch(self, text: str) -> re.Match[str] | None:
            searched.append(len(text))
            return self.pattern.fullmatch(text)

    for name in ("_PLACE", "_MEMBER"):
        monkeypatch.setattr(misfits, name, Watched(getattr(misfits, name)))
    name = "a`b" * 1_900_000
    for path in (MESSAGES, "/v1/messages", f"{GROUP}/pull", f"{GROUP}/ack"):
        answer = api.call("POST", path, raw=position.format(json.dumps({name: 1})).encode())
        assert (answer.status, answer.slug) == (400, "field-invalid")
        assert len(json.dumps(answer.json)) < 2_000
    assert max(searched) <= 2_000


def test_an_unknown_field_of_a_long_name_is_placed_as_one_of_a_short_name(api: Api) -> None:
    answer = api.call("POST", MESSAGES, raw=b'{"messages":[{"body":"a"},{"' + b"n" * 9_000 + b'":1}]}')
    assert str(answer.json["field"]).startswith("messages[1].nnn")


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/subjects/orders"), ("PUT", GROUP), ("POST", f"{GROUP}/seek"), ("POST", f"{GROUP}/dead/redrive")],
)
def test_a_control_request_of_megabytes_is_refused_unread(api: Api, method: str, path: str) -> None:
    body = b'{"x":[' + b"{}," * COUNT + b"{}]}"
    answers: list[Any] = []
    assert peak_bytes(lambda: answers.append(api.call(method, path, raw=body))) < 8 * len(body)
    assert [(answer.status, answer.slug) for answer in answers] == [(413, "request-too-large")]


def test_a_control_request_of_a_thousand_ids_is_read(api: Api) -> None:
    api.bury("dead")
    ids = [f"{10**12 + n}-{n}" for n in range(999)] + ["0-0"]
    assert api.call("POST", f"{GROUP}/dead/redrive", {"ids": ids}).json == {"redriven": 1}


values = st.recursive(
    st.none() | st.text('a,"\\{[]}:', max_size=12),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text('a,"\\', max_size=4), inner, max_size=6),
    max_leaves=40,
)


def separators(value: Any) -> int:
    """Counts the commas outside the texts of a JSON value."""
    if isinstance(value, dict):
        return max(0, len(value) - 1) + sum(map(separators, value.values()))
    return max(0, len(value) - 1) + sum(map(separators, value)) if isinstance(value, list) else 0


@given(values, st.integers(0, 30))
def test_values_are_counted_as_they_are(value: Any, most: int) -> None:
    data = json.dumps(value).encode()
    data = data.ljust(5 * most + 1)
    refused = False
    try:
        check_values(data, most, TooLarge("batch-too-large", "too many"))
    except TooLarge:
        refused = True
    quotes = json.dumps(value).replace("\\\\", "").replace('\\"', "").count('"')
    assert refused == (separators(value) > most or (data.count(b",") > most and quotes > 4 * most))
