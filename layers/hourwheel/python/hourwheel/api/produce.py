"""Function ``produce``: stores a batch of messages."""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec

from hourwheel.api.events import Event, Invocation, Response, ok
from hourwheel.api.requests import body_of, check_values, path_name
from hourwheel.cell import Cell
from hourwheel.errors import Rejected, TooLarge
from hourwheel.misfits import decode
from hourwheel.model.fields import BATCH_BYTES, BATCH_MESSAGES, MESSAGE_BYTES, check_name
from hourwheel.model.messages import NewMessage, ProduceManyRequest, ProduceRequest, ProduceResult, message_bytes
from hourwheel.queueing.idempotency import IdempotencyKey

_one_subject = msgspec.json.Decoder(ProduceRequest)
_many_subjects = msgspec.json.Decoder(ProduceManyRequest)

_MOST_VALUES = 60 * BATCH_MESSAGES
"""JSON values in a batch. A message has up to 51: its fields, 10 tags and 32 headers."""


def produce(cell: Cell, event: Event, context: Invocation | None) -> Response:
    if event["routeKey"] == "POST /v1/messages":
        return _produce_many(cell, event)
    subject = path_name(event, "subject")
    data = body_of(event)
    request = decode(_one_subject, _counted(data))
    _check(request.messages, len(data))
    return ok(ProduceResult(cell.produce(subject, request.messages, _idempotency(request.idempotency_key, data))))


def _produce_many(cell: Cell, event: Event) -> Response:
    data = body_of(event)
    request = decode(_many_subjects, _counted(data))
    _check(request.messages, len(data))
    seen: set[str] = set()
    for index, message in enumerate(request.messages):
        if message.subject not in seen:
            seen.add(check_name(message.subject, f"messages[{index}].subject"))
    return ok(ProduceResult(cell.produce_many(request.messages, _idempotency(request.idempotency_key, data))))


def _counted(data: bytes) -> bytes:
    """Returns the body, or raises ``TooLarge`` where its values outnumber those of a full batch."""
    what = f"a batch holds at most {BATCH_MESSAGES} messages, this request holds more values than those can have"
    check_values(data, _MOST_VALUES, TooLarge("batch-too-large", what, field="messages"))
    return data


def _idempotency(key: str | None, data: bytes) -> IdempotencyKey | None:
    return None if key is None else IdempotencyKey(key, blake2b(data, digest_size=16).digest())


def _check(messages: Sequence[NewMessage], request_bytes: int) -> None:
    """Raises ``Rejected`` for faults that the types do not catch: too many messages, two bodies, equal tags, size."""
    if len(messages) > BATCH_MESSAGES:
        raise TooLarge(
            "batch-too-large", f"a batch holds at most {BATCH_MESSAGES} messages, got {len(messages)}", field="messages"
        )
    for index, message in enumerate(messages):
        if (message.body is None) is (message.body_base64 is None):
            raise Rejected(
                "field-invalid", "a message has exactly one of body and body_base64", field=f"messages[{index}]"
            )
        if message.tags is not None and len(set(message.tags)) != len(message.tags):
            raise Rejected("field-invalid", "no two tags may be alike", field=f"messages[{index}].tags")
    # JSON is never shorter than the text and bytes it carries: a small request is within both limits.
    if request_bytes > MESSAGE_BYTES:
        _check_sizes(messages)


def _check_sizes(messages: Sequence[NewMessage]) -> None:
    total = 0
    for index, message in enumerate(messages):
        size = message_bytes(message)
        if size > MESSAGE_BYTES:
            raise TooLarge(
                "message-too-large",
                f"a message holds at most {MESSAGE_BYTES} bytes, this one has {size}: send a reference to the content",
                field=f"messages[{index}]",
            )
        total += size
    if total > BATCH_BYTES:
        raise TooLarge(
            "batch-too-large", f"a batch holds at most {BATCH_BYTES} bytes, got {total}: split it", field="messages"
        )
