"""The client speaks msgpack, and JSON behind a proxy that refuses msgpack."""

from typing import Any

import msgspec
import pytest

from hourwheel.client import Api, BadRequest, Message, ServerFault, Settlement
from hourwheel.client.records.compact import CompactProduceResult, QueueSlice
from hourwheel.client.records.messages import SendResult
from tests.unit.client.conftest import StillIds
from tests.unit.client.fake import FakeServer

MSGPACK = "application/msgpack"


def kinds(server: FakeServer) -> list[str]:
    return [{name.lower(): text for name, text in each.headers.items()}["content-type"] for each in server.requests]


def test_messages_are_sent_and_settled_in_msgpack(server: FakeServer) -> None:
    with Api(server.url, ids=StillIds()) as api:
        api.produce("orders", [Message(b"\0\xff"), Message("text")])
        (pull,) = api.pull("orders", "billing", "c").pulls
        assert [message.body for message in pull.messages] == [b"\0\xff", "text"]
        assert api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])[0].status == "settled"
    assert kinds(server) == [MSGPACK] * 3


def test_behind_a_proxy_that_refuses_the_type_all_is_said_in_json_after_one_refusal(server: FakeServer) -> None:
    server.takes_msgpack = False
    with Api(server.url, ids=StillIds()) as api:
        assert [placed.offset for placed in api.produce("orders", [Message("a"), Message(b"\xff")])] == [0, 1]
        (pull,) = api.pull("orders", "billing", "c").pulls
        assert api.settle("orders", "billing", [Settlement(receipt=pull.receipt)])[0].status == "settled"
    assert (server.refused, kinds(server)) == (1, ["application/json"] * 3)
    assert [message.body for message in pull.messages] == ["a", b"\xff"]


def test_a_refusal_of_what_was_said_is_no_reason_to_say_it_in_json(server: FakeServer) -> None:
    problem = {"type": "urn:hourwheel:field-invalid", "status": 400, "detail": "no"}
    server.fail("produce", status=400, raw=msgspec.json.encode(problem))
    with Api(server.url, ids=StillIds()) as api, pytest.raises(BadRequest):
        api.produce("orders", [Message("a")])
    assert kinds(server) == [MSGPACK]


def answered(server: FakeServer, call: str, answer: Any) -> None:
    server.fail(call, raw=msgspec.msgpack.encode(answer), kind=MSGPACK)


def test_places_are_read_from_parts_of_the_batch(server: FakeServer) -> None:
    answered(server, "produce", {"prefix": "p", "parts": [[1, 7, [0, 2]], [3, 5, [1]]]})
    with Api(server.url, ids=StillIds()) as api:
        places = api.produce("orders", [Message("a"), Message("b", id="own"), Message("c")])
    assert places == [SendResult("p-0", 1, 7), SendResult("own", 3, 5), SendResult("p-2", 1, 8)]


def test_a_message_of_a_block_says_what_differs_from_the_block(server: FakeServer) -> None:
    block = {
        "messages": [{"body": "a"}, {"body_base64": b"\xff", "id": "own", "attempt": 4}],
        "queue": 1,
        "offset": 7,
        "attempt": 1,
        "produced_at": "2026-11-20T09:00:00.000Z",
        "prefix": "p",
        "index": 3,
    }
    pulled = {"pulls": [{"receipt": "r", "queue": 1, "lease_until": "2026-11-20T09:00:30.000Z", "blocks": [block]}]}
    answered(server, "pull", pulled)
    with Api(server.url, ids=StillIds()) as api:
        first, second = api.pull("orders", "billing", "c").pulls[0].messages
    assert (first.id, first.offset, first.attempt, first.body, first.produced_at.minute) == ("p-3", 7, 1, "a", 0)
    assert (second.id, second.offset, second.attempt, second.body, second.queue) == ("own", 8, 4, b"\xff", 1)


@pytest.mark.parametrize(
    "answer",
    [
        {"prefix": "p", "parts": [[0, 0, [0, 9]]]},
        {"prefix": "p", "parts": [[0, 0, [1]]]},
        {"prefix": "p", "parts": [[0]]},
        [],
        "text",
    ],
)
def test_an_answer_about_another_batch_is_a_fault_of_the_server(server: FakeServer, answer: Any) -> None:
    answered(server, "produce", answer)
    with Api(server.url, ids=StillIds()) as api, pytest.raises(ServerFault, match="not what this client understands"):
        api.produce("orders", [Message("a"), Message("b")])


def test_places_of_one_part_need_no_indexes() -> None:
    places = CompactProduceResult(prefix="p", parts=[QueueSlice(2, 40, None)])
    assert places.send_results([Message("a"), Message("b")]) == [SendResult("p-0", 2, 40), SendResult("p-1", 2, 41)]
