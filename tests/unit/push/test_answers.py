"""Each answer of a target leads to the right outcome."""

import json
from typing import Any

import pytest

from hourwheel.model.messages import Message
from hourwheel.model.targets import DONE, PushDelivery, answered

DELIVERY = PushDelivery(
    "orders",
    "billing",
    "retry",
    tuple(
        Message(id=each, queue=0, offset=offset, attempt=2, body="x")
        for offset, each in enumerate(["a", "b", "b", "ü"])
    ),
    ("whsec_AAAA",),
)


def naming(*ids: Any) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": each} for each in ids]}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"  \r\n",
        b"null",
        b"{}",
        b'{"ok": true}',
        b'{"batchItemFailures": null}',
        b'{"batchItemFailures": []}',
        b'{"statusCode": 200, "batchItemFailures": []}',
        b"OK",
        b'"ok"',
        b"true",
        b"7",
        b"[]",
        b'["a"]',
        b'[{"batchItemFailures": [{"itemIdentifier": "a"}]}]',
        b"<html>thanks</html>",
        b"\xff\xfe\x00",
        b"\x1f\x8b\x08",
        b"ok" * 100_000,
    ],
)
def test_what_names_nothing_is_done(data: bytes) -> None:
    assert answered(DELIVERY, data) == DONE


@pytest.mark.parametrize(
    ("ids", "failed"),
    [(["a"], {0}), (["ü"], {3}), (["b"], {1, 2}), (["a", "a"], {0}), (["a", "b", "ü"], {0, 1, 2, 3})],
)
def test_what_is_named_failed(ids: list[str], failed: set[int]) -> None:
    for more in ({}, {"statusCode": 200}):
        outcome = answered(DELIVERY, json.dumps(naming(*ids) | more).encode())
        assert (outcome.failed, outcome.dead, outcome.unreached) == (failed, frozenset(), False)
        assert outcome.error


@pytest.mark.parametrize(
    "answer",
    [
        naming("c"),
        naming("a", "c"),
        naming(""),
        naming("A"),
        naming(None),
        naming(0),
        naming(["a"]),
        {"batchItemFailures": ["a"]},
        {"batchItemFailures": [{}]},
        {"batchItemFailures": [{"id": "a"}]},
        {"batchItemFailures": [None]},
        {"batchItemFailures": {"itemIdentifier": "a"}},
        {"batchItemFailures": "a"},
        {"batchItemFailures": True},
        {"batchItemFailures": 1},
    ],
)
def test_what_cannot_be_understood_fails_all(answer: Any) -> None:
    """As with Lambda's own event sources: a message that is handled twice is better than one that is lost."""
    outcome = answered(DELIVERY, json.dumps(answer).encode())
    assert outcome.failed == {0, 1, 2, 3}
    assert outcome.error
    assert not outcome.unreached


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b' {"batchItemFailures": [{"itemIdent',
        b'{"batchItemFailures": [{"itemIdentifier": "a"}]',
        b'{"batchItemFailures": [{"itemIdentifier": "\xff"}]}',
        b'{"batchItemFailures": []} and more',
        b"{'batchItemFailures': []}",
        b'{"a":' * 100_000,
    ],
)
def test_what_begins_like_an_answer_and_is_none_fails_all(data: bytes) -> None:
    outcome = answered(DELIVERY, data)
    assert (outcome.failed, outcome.unreached) == ({0, 1, 2, 3}, False)


def test_a_delivery_says_what_a_receiver_needs() -> None:
    body = json.loads(DELIVERY.encoded())
    assert list(body) == ["delivery", "subject", "group", "queue", "messages"]
    assert (body["subject"], body["group"], body["queue"]) == ("orders", "billing", "retry")
    assert body["delivery"] == DELIVERY.id
    assert body["messages"][3] == {"id": "ü", "queue": 0, "offset": 3, "attempt": 2, "body": "x"}
    assert "whsec" not in DELIVERY.encoded().decode()


def test_the_id_of_a_delivery_is_that_of_its_messages() -> None:
    ids = {
        DELIVERY.id,
        DELIVERY.part(DELIVERY.messages[:1]).id,
        DELIVERY.part(DELIVERY.messages[1:]).id,
        DELIVERY.part(DELIVERY.messages[::-1]).id,
        PushDelivery("order", "billing", 0, DELIVERY.messages).id,
        PushDelivery("orders", "billin", 0, DELIVERY.messages).id,
    }
    assert len(ids) == 6
    again = PushDelivery("orders", "billing", 3, [*DELIVERY.messages])
    assert again.id == DELIVERY.id, "in which queue they come again makes no difference"
    assert len(DELIVERY.id) == 32


def test_a_byte_order_mark_hides_no_failure() -> None:
    answer = answered(DELIVERY, b"\xef\xbb\xbf " + json.dumps(naming("a")).encode())
    assert answer.failed == {0}
