"""A field of a wrong type is refused in the words of the server, by ``send`` as by ``send_batch``."""

from collections.abc import Iterator
from typing import Any

import pytest

from hourwheel.client import BadRequest, Message, Producer
from hourwheel.testing import Queue


@pytest.fixture
def producer() -> Iterator[Producer]:
    with Queue() as queue, queue.producer("orders") as made:
        yield made


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"key": 5}, "messages[0].key must be text, got a whole number"),
        ({"headers": {"a": 1}}, "messages[0].headers.a must be text, got a whole number"),
        ({"headers": ["a"]}, "messages[0].headers must be an object, got a list"),
        ({"tags": [1]}, "messages[0].tags[0] must be text, got a whole number"),
        ({"message_id": 5}, "messages[0].id must be text, got a whole number"),
        ({"queue": 2**65}, "a whole number of the request has more than 64 bits: send a smaller one"),
    ],
    ids=str,
)
def test_a_field_of_a_wrong_type_is_named_by_each_call(
    producer: Producer, fields: dict[str, Any], sentence: str
) -> None:
    future = producer.send("a", **fields)
    with pytest.raises(BadRequest) as of_send:
        future.result(60)
    with pytest.raises(BadRequest) as of_batch:
        producer.send_batch([Message("a", **{"id" if name == "message_id" else name: fields[name] for name in fields})])
    assert (str(of_send.value), str(of_batch.value)) == (sentence, sentence)
    assert producer.send("b").result(60).offset == 0


def test_a_field_that_json_has_no_form_for_fails_its_message_only(producer: Producer) -> None:
    future = producer.send("a", key=object())  # type: ignore[arg-type] - which is the mistake
    with pytest.raises(TypeError, match="objects of type object"):
        future.result(60)
    assert producer.send("b").result(60).offset == 0
