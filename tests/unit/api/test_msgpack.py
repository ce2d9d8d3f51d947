"""Msgpack and JSON say the same: a message that one client sends in one form, another gets in the other."""

import base64
import gzip
import json
import struct
import tracemalloc
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hourwheel.api.requests import body_of
from hourwheel.api.wire import accepts_msgpack, is_msgpack
from hourwheel.aws.compression import compressed
from hourwheel.client.records.compact import UNDECODABLE, CompactProduceResult, CompactPulls
from hourwheel.client.records.messages import Message, Pulled, SendResult
from hourwheel.model.fields import BATCH_MESSAGES
from hourwheel.wire.answer_size import TEXT_BYTES
from tests.unit.api.conftest import GROUP, MESSAGES, Api
from tests.unit.api.test_arbitrary_bodies import documents

MSGPACK = {"content-type": "application/msgpack", "accept": "application/msgpack"}


class Packed(NamedTuple):
    status: int
    slug: str
    value: Any


def call(api: Api, target: str, body: Any = None, *, raw: bytes | None = None) -> Packed:
    """Sends ``body`` as msgpack, or ``raw`` bytes."""
    data = msgspec.msgpack.encode(body) if raw is None else raw
    response = api.respond("POST", target, raw=data, headers=MSGPACK)
    if response["statusCode"] != 200:
        problem = json.loads(response["body"])
        return Packed(response["statusCode"], problem["type"].removeprefix("urn:hourwheel:"), problem)
    assert response["headers"]["content-type"] == "application/msgpack"
    return Packed(200, "", msgspec.msgpack.decode(response["body"]))


def pulled(api: Api, group: str = GROUP, **how: Any) -> Pulled:
    """Pulls in msgpack, and reads the answer as the client does."""
    answer = call(api, f"{group}/pull", {"consumer": "c1", **how})
    return msgspec.msgpack.decode(msgspec.msgpack.encode(answer.value), type=CompactPulls).pulled()


def pulled_in_json(api: Api, group: str = GROUP, **how: Any) -> Pulled:
    answer = api.respond("POST", f"{group}/pull", {"consumer": "c1", **how})
    return msgspec.json.decode(answer["body"], type=Pulled)


MIXED = [
    {"body": "a", "key": "customer-42", "tags": ["eu"], "headers": {"trace": "abc"}},
    {"body_base64": b"\0\xff", "id": "own"},
    {"body": "päid\n\x01"},
    {"body": ""},
]


def placed(api: Api, messages: list[dict[str, Any]]) -> list[SendResult]:
    answer = call(api, MESSAGES, {"messages": messages})
    sent = [Message(each.get("body", b""), id=each.get("id")) for each in messages]
    return msgspec.convert(answer.value, CompactProduceResult).send_results(sent)


@pytest.mark.parametrize("queues", [1, 3])
def test_a_batch_gets_the_same_answer_and_the_same_messages_in_both_forms(api: Api, queues: int) -> None:
    api.call("PUT", "/v1/subjects/orders", {"queues": queues})
    places = placed(api, MIXED)
    in_json = pulled_in_json(api, lease_seconds=60)
    for pull in in_json.pulls:
        for message in pull.messages:
            assert SendResult(message.id, message.queue, message.offset) in places
    assert sum(len(pull.messages) for pull in in_json.pulls) == len(MIXED)
    failed = [{"receipt": pull.receipt, "retry": list(range(len(pull.messages)))} for pull in in_json.pulls]
    assert api.settle(*failed).status == 200
    api.bench.clock.pass_time(61)
    again = [message for _ in range(queues + 1) for pull in pulled(api).pulls for message in pull.messages]
    first = {message.id: message for pull in in_json.pulls for message in pull.messages}
    assert {message.id: msgspec.structs.replace(message, attempt=1) for message in again} == first
    assert {message.attempt for message in again} == {2}


def test_a_part_of_a_row_and_messages_between_others_have_their_own_positions(api: Api) -> None:
    api.call("PUT", GROUP, {"filter": {"tags_any": ["eu"]}})
    tags = [["eu"], ["us"], ["eu"], ["eu"], ["us"], ["eu"]]
    places = placed(api, [{"body": str(index), "tags": tags[index]} for index in range(6)])
    wanted = [(places[index].id, index, str(index)) for index in (0, 2, 3, 5)]
    found = [pulled(api, max_messages=3), pulled(api)]
    messages = [message for pull in found for each in pull.pulls for message in each.messages]
    assert [(message.id, message.offset, message.body) for message in messages] == wanted


@pytest.mark.parametrize("queues", [1, 4])
def test_plain_messages_keep_their_keys_and_ids(api: Api, queues: int) -> None:
    api.call("PUT", "/v1/subjects/orders", {"queues": queues})
    batch = [{"body": str(index), "key": f"k-{index}", "id": f"id-{index}"} for index in range(6)]
    places = placed(api, batch)
    found = [message for _ in range(queues) for pull in pulled(api).pulls for message in pull.messages]
    assert {(each.body, each.key, each.id) for each in found} == {tuple(each.values()) for each in batch}
    assert {SendResult(str(each.id), each.queue, each.offset) for each in found} == set(places)
    assert len({each.queue for each in found}) == queues


def test_one_message_with_a_delay_behind_plain_ones_waits(api: Api) -> None:
    now, later = placed(api, [{"body": "now"}, {"body": "later", "delay": 60}])
    assert (now.offset, later.scheduled_id is None) == (0, False)
    assert [message.body for pull in pulled(api).pulls for message in pull.messages] == ["now"]


def test_a_plain_message_that_is_too_large_for_an_answer_as_text_comes_as_bytes(api: Api) -> None:
    body = '"' * TEXT_BYTES + "x"
    placed(api, [{"body": body}])
    (pull,) = pulled(api).pulls
    (message,) = pull.messages
    assert message.body in (body, body.encode())


def test_delayed_messages_are_answered_one_by_one(api: Api) -> None:
    (later, now) = placed(api, [{"body": "later", "delay": 3_600}, {"body": "now"}])
    assert (later.offset, later.scheduled_id is None, now.offset) == (None, False, 0)


def test_clients_of_both_forms_share_a_group(api: Api) -> None:
    api.send("from json")
    placed(api, [{"body": "from msgpack"}])
    first, second = pulled(api, max_messages=1).pulls[0], pulled_in_json(api).pulls[0]
    assert [first.messages[0].body, second.messages[0].body] == ["from json", "from msgpack"]
    assert api.settle({"receipt": first.receipt}).json == {"results": [{"status": "settled"}]}
    settled = call(api, f"{GROUP}/ack", {"settle": [{"receipt": second.receipt, "retry": [{"index": 0, "delay": 0}]}]})
    assert settled.value == {"results": [{"status": "settled"}]}
    assert pulled(api, settle=[{"receipt": first.receipt}]).settled[0].status == "settled"


def test_an_ordered_group_is_answered_in_msgpack(api: Api) -> None:
    api.call("PUT", GROUP, {"ordered": True})
    placed(api, [{"body": "1", "key": "k"}, {"body": "2", "key": "k"}])
    (pull,) = pulled(api).pulls
    assert (pull.ordered, [message.body for message in pull.messages]) == (True, ["1", "2"])


def test_an_ordered_group_gets_the_same_messages_in_both_forms_each_with_its_attempt(api: Api) -> None:
    # Three pulls: parked messages of two rows, one in its second attempt, and one whose text only base64 can hold.
    for group in ("json", "packed"):
        api.call("PUT", f"/v1/subjects/orders/groups/{group}", {"ordered": True, "start": "earliest"})
    placed(api, [{"body": f"{number}", "key": f"k{number % 3}", "headers": {"n": str(number)}} for number in range(7)])
    placed(api, [{"body": '"' * TEXT_BYTES, "key": "k1"}, {"body_base64": b"\0\xff", "id": "own"}, {"body": "end"}])
    found: dict[str, list[Any]] = {}
    for group, take in (("json", pulled_in_json), ("packed", pulled)):
        taken: list[Any] = found.setdefault(group, [])
        route = f"/v1/subjects/orders/groups/{group}"
        first = take(api, route, max_messages=4)
        failed = [{"receipt": pull.receipt, "retry": [{"index": 1, "delay": 0}]} for pull in first.pulls]
        pulls = [*first.pulls]
        while answer := take(api, route, max_messages=4, settle=failed).pulls:
            pulls += answer
            failed = [{"receipt": pull.receipt} for pull in answer]
        taken += [message for pull in pulls for message in pull.messages]
    assert [message.attempt for message in found["packed"]].count(2) == 1
    assert len(found["packed"]) == 11
    assert found["packed"] == found["json"]


@pytest.mark.parametrize("take", [pulled, pulled_in_json])
def test_a_redriven_message_of_an_ordered_group_that_fails_again_has_its_second_attempt(api: Api, take: Any) -> None:
    api.call("PUT", GROUP, {"ordered": True})
    placed(api, [{"body": "1", "key": "k"}])
    (dead,) = take(api).pulls
    assert take(api, settle=[{"receipt": dead.receipt, "dead": [0]}]).settled[0].status == "settled"
    api.call("POST", f"{GROUP}/dead/redrive", {"all": True})
    (again,) = take(api).pulls
    (failed,) = take(api, settle=[{"receipt": again.receipt, "retry": [{"index": 0, "delay": 0}]}]).pulls
    assert [again.messages[0].attempt, failed.messages[0].attempt] == [1, 2]
    assert (failed.messages[0].id, failed.messages[0].offset) == (dead.messages[0].id, dead.messages[0].offset)


def test_indexes_that_do_not_fit_the_messages_of_a_block_are_an_undecodable_answer() -> None:
    answer = {"pulls": [{"receipt": "r", "queue": 0, "lease_until": "2026-11-20T09:00:00Z", "blocks": [
        {"queue": 0, "offset": 7, "indexes": [1], "messages": [{"body": "1"}, {"body": "2"}]}
    ]}]}  # fmt: skip
    with pytest.raises(UNDECODABLE):
        msgspec.msgpack.decode(msgspec.msgpack.encode(answer), type=CompactPulls).pulled()


def test_a_batch_that_spans_subjects_is_sent_in_msgpack(api: Api) -> None:
    answer = call(
        api, "/v1/messages", {"messages": [{"body": "a", "subject": "orders"}, {"body": "b", "subject": "x"}]}
    )
    assert [(result["queue"], result["offset"]) for result in answer.value["results"]] == [(0, 0), (0, 0)]


def test_a_repeated_batch_gets_its_first_answer_also_after_the_subject_got_more_queues(api: Api) -> None:
    batch = {"messages": [{"body": "a", "key": "k-0"}, {"body": "b", "key": "a"}], "idempotency_key": "once"}
    first = call(api, MESSAGES, batch)
    api.call("PUT", "/v1/subjects/orders", {"queues": 4})
    assert call(api, MESSAGES, batch) == first
    ids = [message.id for pull in pulled(api).pulls for message in pull.messages]
    assert ids == [f"{first.value['prefix']}-0", f"{first.value['prefix']}-1"]


HEAD = b"\x81\xa8messages"


def message(fields: bytes) -> bytes:
    return HEAD + b"\x91" + fields


HOSTILE = {
    "empty": (b"", 400, "msgpack-invalid"),
    "no map": (b"\x93\x01\x02\x03", 400, "field-invalid"),
    "a list that lies about its length": (HEAD + b"\xdd\xff\xff\xff\xff\x81\xa4body\xa1x", 413, "batch-too-large"),
    "a short list that lies": (HEAD + b"\x92\x81\xa4body\xa1x", 400, "msgpack-invalid"),
    "a map that lies": (message(b"\x82\xa4body\xa1x\xa7headers\xdf\xff\xff\xff\xff"), 400, "field-invalid"),
    "a text that lies": (message(b"\x81\xa4body\xdb\xff\xff\xff\xff"), 400, "msgpack-invalid"),
    "bytes that lie": (message(b"\x81\xabbody_base64\xc6\xff\xff\xff\xff"), 400, "msgpack-invalid"),
    "tags that lie": (message(b"\x82\xa4body\xa1x\xa4tags\xdd\xff\xff\xff\xff"), 400, "field-invalid"),
    "deep in an unknown field": (b"\x81\xa1x" + b"\x91" * 1_000_000, 400, "field-invalid"),
    "deep in the messages": (HEAD + b"\x91" * 1_000_000 + b"\xc0", 400, "field-invalid"),
    "an extension": (message(b"\x81\xa4body\xd4\x05x"), 400, "field-invalid"),
    "a timestamp": (message(b"\x82\xa4body\xa1x\xaadeliver_at\xd6\xff\0\0\0\0"), 400, "field-invalid"),
    "something behind the map": (message(b"\x81\xa4body\xa1x") + b"x", 400, "msgpack-invalid"),
    "text that is not UTF-8": (message(b"\x81\xa4body\xa2\xff\xfe"), 400, "msgpack-invalid"),
    "half of a character": (message(b"\x81\xa4body\xa3\xed\xa0\x80"), 400, "msgpack-invalid"),
    "bytes as text": (message(b"\x81\xa4body\xc4\x01x"), 400, "field-invalid"),
    "text as bytes": (message(b"\x81\xabbody_base64\xa4AAEC"), 400, "field-invalid"),
    "a number as a name": (message(b"\x81\x05\x06"), 400, "field-invalid"),
    "a huge number": (message(b"\x82\xa4body\xa1x\xa5queue\xcf" + b"\xff" * 8), 400, "field-invalid"),
    "a huge delay": (message(b"\x82\xa4body\xa1x\xa5delay\xcf" + b"\xff" * 8), 400, "delay-too-long"),
    "a delay that is no number": (
        message(b"\x82\xa4body\xa1x\xa5delay\xcb" + struct.pack(">d", float("nan"))),
        400,
        "field-invalid",
    ),
    "an unknown field": (message(b"\x82\xa4body\xa1x\xa1x\x01"), 400, "field-invalid"),
    "too many messages": (
        HEAD + b"\xdc" + struct.pack(">H", BATCH_MESSAGES + 1) + b"\x80" * 1_001,
        413,
        "batch-too-large",
    ),
    "millions of messages": (
        HEAD + b"\xdd" + struct.pack(">I", 5_900_000) + b"\x80" * 5_900_000,
        413,
        "batch-too-large",
    ),
    "a byte that means nothing": (b"\xc1", 400, "msgpack-invalid"),
}


@pytest.mark.parametrize(("raw", "status", "slug"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_msgpack_is_refused_in_little_memory(api: Api, raw: bytes, status: int, slug: str) -> None:
    tracemalloc.start()
    try:
        answer = call(api, MESSAGES, raw=raw)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.status, answer.slug) == (status, slug)
    assert most < 1 << 20
    assert pulled(api).pulls == []


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_a_wait_that_is_no_time_is_refused(api: Api, seconds: float) -> None:
    answer = call(api, f"{GROUP}/pull", {"consumer": "c1", "wait_seconds": seconds})
    assert (answer.status, answer.value["field"]) == (400, "wait_seconds")


def test_a_field_that_is_repeated_thousands_of_times_is_refused_before_any_is_read(api: Api) -> None:
    messages = msgspec.msgpack.encode("messages") + b"\xdc\x03\xe8" + b"\x80" * 1_000  # 0.36 s for 5.9 MB of these
    for count, head in ((5_800, b"\xdf" + struct.pack(">I", 5_800)), (500, b"\xde" + struct.pack(">H", 500))):
        answer = call(api, MESSAGES, raw=head + messages * count)
        assert (answer.status, answer.slug) == (400, "field-invalid")
        assert (
            answer.value["detail"] == "the body has each of its fields once, and this one has many more: send each once"
        )


def test_an_unknown_field_is_named_though_the_map_is_written_in_a_long_form(api: Api) -> None:
    body = msgspec.msgpack.encode({"messages": [{"body": "a"}], "colour": 1})
    answer = call(api, MESSAGES, raw=b"\xde\x00\x02" + body[1:])
    assert (answer.status, answer.value["field"]) == (400, "colour")


def test_millions_of_settlements_are_refused_before_any_is_read(api: Api) -> None:
    raw = b"\x81\xa6settle\xdd" + struct.pack(">I", 5_000_000) + b"\x80" * 5_000_000
    assert call(api, f"{GROUP}/ack", raw=raw).slug == "field-invalid"


@settings(deadline=None, max_examples=200, derandomize=True)
@given(document=documents, route=st.sampled_from([MESSAGES, "/v1/messages", f"{GROUP}/pull", f"{GROUP}/ack"]))
def test_no_msgpack_is_a_fault_of_ours(document: Any, route: str) -> None:
    api = Api()
    api.call("PUT", GROUP)
    try:
        raw = msgspec.msgpack.encode(document)
    except OverflowError:
        return
    for data in (raw, raw[:-1], raw + b"\xc0"):
        assert api.respond("POST", route, raw=data, headers=MSGPACK)["statusCode"] < 500, api.log.getvalue()


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("application/msgpack", True),
        ("application/json, application/msgpack;q=0.9", True),
        ("APPLICATION/MSGPACK", True),
        ("application/msgpack;q=0", False),
        ("application/msgpackx", False),
        ("*/*", False),
        ("application/json", False),
    ],
)
def test_msgpack_is_answered_to_clients_that_name_it(text: str, accepted: bool) -> None:
    assert accepts_msgpack({"headers": {"accept": text}}) is accepted


@pytest.mark.parametrize(
    ("text", "read"), [("application/msgpack", True), ("Application/Msgpack; x=y", True), ("text/plain", False)]
)
def test_the_type_of_a_body_decides_how_it_is_read(text: str, read: bool) -> None:
    assert is_msgpack({"headers": {"content-type": text}}) is read


def test_lambda_takes_and_gives_bytes_as_base64(api: Api) -> None:
    data = msgspec.msgpack.encode({"messages": [{"body_base64": b"\0\xff"}]})
    event = {"body": base64.b64encode(data).decode(), "isBase64Encoded": True, "headers": MSGPACK}
    assert body_of(event) == data
    response = compressed(event, {"statusCode": 200, "headers": {}, "body": data})
    assert (response["isBase64Encoded"], base64.b64decode(response["body"])) == (True, data)
    long = {"statusCode": 200, "headers": {}, "body": b"a" * 9_000}
    answer = compressed({"headers": {"accept-encoding": "gzip"}}, long)
    assert gzip.decompress(base64.b64decode(answer["body"])) == b"a" * 9_000


class OnLambda:
    def get_remaining_time_in_millis(self) -> int:
        return 25_000


def test_an_answer_that_lambda_could_not_take_as_base64_is_json(api: Api) -> None:
    texts = ["a" * (1 << 20)] * 5
    for text in texts:
        api.send(text)
    response = api.respond(
        "POST", f"{GROUP}/pull", {"consumer": "c"}, headers=MSGPACK | {"content-type": "x"}, context=OnLambda()
    )
    assert response["headers"]["content-type"] == "application/json"
    answer = msgspec.json.decode(response["body"], type=Pulled)
    assert [message.body for pull in answer.pulls for message in pull.messages] == texts
    assert len(response["body"]) < 6_291_556 < len(base64.b64encode("".join(texts).encode()))


@pytest.mark.parametrize("count", [BATCH_MESSAGES + 1, 70_000])
def test_a_batch_with_too_many_messages_says_how_many_it_has(api: Api, count: int) -> None:
    told = f"a batch holds at most 1,000 messages, and this one holds {count:,}: split it"
    refused = call(api, MESSAGES, {"messages": [{"body": "x"}] * count, "idempotency_key": "k"})
    assert (refused.status, refused.slug, refused.value["detail"]) == (413, "batch-too-large", told)


@pytest.mark.parametrize("rest", [b"\xc1", b"", b"\xa8messages\x90"], ids=["broken", "cut off", "a second list"])
def test_a_batch_with_too_many_messages_that_is_not_whole_is_refused(api: Api, rest: bytes) -> None:
    packed = msgspec.msgpack.encode({"messages": [{}] * (BATCH_MESSAGES + 1)})
    refused = call(api, MESSAGES, raw=b"\x82" + packed[1:] + rest)
    assert (refused.status, refused.slug) == (413, "batch-too-large")
    assert refused.value["detail"] == "a batch holds at most 1,000 messages, and this one holds more: split it"
