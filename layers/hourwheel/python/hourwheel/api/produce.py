"""Function ``produce``: stores a batch of messages."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, TypeVar, cast

import msgspec

from hourwheel.api.events import Event, Invocation, Response
from hourwheel.api.grants import check_subject
from hourwheel.api.requests import body_of, check_values, path_name
from hourwheel.api.wire import RequestReader, accepts_msgpack, answer, is_msgpack
from hourwheel.deployment.deployment import Deployment
from hourwheel.errors import UNDECODABLE, Rejected, TooLarge
from hourwheel.model.fields import BATCH_BYTES, BATCH_MESSAGES, MESSAGE_BYTES, Text, check_name
from hourwheel.model.fields import Sequence as Numbered
from hourwheel.model.messages import (
    AddressedMessage,
    NewMessage,
    PlainMessage,
    ProduceManyRequest,
    ProduceRequest,
    ProduceResult,
    are_plain,
    message_bytes,
)
from hourwheel.producing.idempotency import IdempotencyKey
from hourwheel.producing.stored_batches import StoredBatch
from hourwheel.wire.answer_size import TEXT_BYTES

T = TypeVar("T", bound=ProduceRequest | ProduceManyRequest)


class _PackedRequest(ProduceRequest):
    # A list of msgpack says how long it is: a decoder refuses one that is too long before it makes a message.
    messages: Annotated[list[NewMessage], msgspec.Meta(min_length=1, max_length=BATCH_MESSAGES)]


class _PackedManyRequest(ProduceManyRequest):
    messages: Annotated[list[AddressedMessage], msgspec.Meta(min_length=1, max_length=BATCH_MESSAGES)]


# Most batches are plain, and need none of six loops over fields that they lack. With SHA-256 and tables with rowids, a
# decoder of plain messages alone took a quarter of the CPU of a batch of 1,000 away.
class _PlainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[PlainMessage], msgspec.Meta(min_length=1, max_length=BATCH_MESSAGES)]
    idempotency_key: Text | None = None
    sequence: Numbered | None = None
    create: bool = True


_plain = RequestReader(_PlainRequest)
_one_subject = RequestReader(ProduceRequest, _PackedRequest)
_many_subjects = RequestReader(ProduceManyRequest, _PackedManyRequest)


class _PackedList(msgspec.Struct):
    messages: msgspec.Raw


_packed_list = msgspec.msgpack.Decoder(_PackedList)
_LIST_16 = 0xDC
"""Begins a list of up to 65,535 entries in msgpack; a longer one begins with 0xDD, and four bytes of its length."""

REPEAT_HEADER = "x-hourwheel-repeat"
"""Says that the sender has sent the request before."""

_DIGEST_BYTES = 20
"""Bytes that are kept of the SHA-256 of a request. BLAKE2b takes twice as long where the processor has instructions for
SHA-256."""

_MOST_VALUES = 60 * BATCH_MESSAGES
"""The most JSON values in a batch: a message has up to 51, namely its fields, 10 tags and 32 headers."""


def produce(deployment: Deployment, event: Event, context: Invocation | None) -> Response:
    if event["routeKey"] == "POST /v1/messages":
        return _produce_many(deployment, event)
    subject = path_name(event, "subject")
    data = body_of(event)
    request = _plain_request(event, data) or _decoded(_one_subject, event, data)
    _check(request.messages, len(data))
    stored = deployment.store_batch(
        subject, request.messages, _idempotency(request, data, event), create=request.create
    )
    return _answer(deployment, event, stored)


def _produce_many(deployment: Deployment, event: Event) -> Response:
    data = body_of(event)
    request = _decoded(_many_subjects, event, data)
    _check(request.messages, len(data))
    seen: set[str] = set()
    for index, message in enumerate(request.messages):
        if message.subject not in seen:
            seen.add(check_name(message.subject, f"messages[{index}].subject"))
            check_subject(event.get("grant"), message.subject, f"messages[{index}].subject")
    stored = deployment.store_many(request.messages, _idempotency(request, data, event), create=request.create)
    return answer(event, ProduceResult(deployment.send_results(stored)))


def _answer(deployment: Deployment, event: Event, stored: StoredBatch) -> Response:
    compact = stored.compact() if accepts_msgpack(event) else None
    return answer(event, ProduceResult(deployment.send_results(stored)) if compact is None else compact)


def _plain_request(event: Event, data: bytes) -> ProduceRequest | None:
    """Returns the request if all of its messages are plain, or None as soon as one message is not."""
    # A pull may have to answer a longer text as base64, and a plain message has no field for that.
    if len(data) > TEXT_BYTES or not is_msgpack(event):
        return None
    return cast("ProduceRequest | None", _plain.decode_if_fits(data))


def _decoded(decoder: RequestReader[T], event: Event, data: bytes) -> T:
    if not is_msgpack(event):
        return decoder.decode(_counted(data), msgpack=False)
    try:
        return decoder.decode(data, msgpack=True)
    except Rejected as error:
        if error.field == "messages" and "at most" in str(error):
            raise _too_many(_packed_length(data)) from None
        raise


def _packed_length(data: bytes) -> int:
    """Returns the length of the list ``messages`` in a msgpack body, without making a value for each entry; 0 where the
    body is not whole."""
    try:
        packed = bytes(memoryview(_packed_list.decode(data).messages)[:5])
    except UNDECODABLE:
        return 0
    # The list begins with its type, and its length in two bytes or in four.
    return int.from_bytes(packed[1:3] if packed[0] == _LIST_16 else packed[1:5], "big")


def _too_many(messages: int) -> TooLarge:
    this_one = f"{messages:,}" if messages > BATCH_MESSAGES else "more"
    detail = f"a batch holds at most {BATCH_MESSAGES:,} messages, and this one holds {this_one}: split it"
    return TooLarge("batch-too-large", detail, field="messages")


def _counted(data: bytes) -> bytes:
    """Returns the body. Raises ``TooLarge`` if it has more values than a full batch can have."""
    detail = f"a batch holds at most {BATCH_MESSAGES:,} messages, and this one has too many values for that: split it"
    check_values(data, _MOST_VALUES, TooLarge("batch-too-large", detail, field="messages"))
    return data


def _idempotency(request: ProduceRequest | ProduceManyRequest, data: bytes, event: Event) -> IdempotencyKey | None:
    if request.idempotency_key is None:
        if request.sequence is not None:
            detail = "a sequence numbers the batches of one idempotency key: send idempotency_key too"
            raise Rejected("field-invalid", detail, field="sequence")
        return None
    digest = sha256(data).digest()[:_DIGEST_BYTES]
    repeated = REPEAT_HEADER in (event.get("headers") or {})
    return IdempotencyKey(request.idempotency_key, digest, request.sequence, repeated)


def _check(messages: Sequence[NewMessage], request_bytes: int) -> None:
    """Raises ``Rejected`` for faults that the types do not catch: too many messages, none or two bodies in a message,
    repeated tags, too many bytes."""
    if len(messages) > BATCH_MESSAGES:
        raise _too_many(len(messages))
    for index, message in () if are_plain(messages) else enumerate(messages):
        if (message.body is None) is (message.body_base64 is None):
            raise Rejected(
                "field-invalid", "a message needs exactly one of body and body_base64", field=f"messages[{index}]"
            )
        if message.tags is not None and len(set(message.tags)) != len(message.tags):
            raise Rejected(
                "field-invalid", "a message has the same tag twice: leave one out", field=f"messages[{index}].tags"
            )
    # A request is never shorter than the texts and bytes in it: one below the limit of a message is within both limits.
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
