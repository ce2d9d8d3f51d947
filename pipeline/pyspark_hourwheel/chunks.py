"""The rows of a task in chunks, each sent as one batch under a name of its own.

    idempotency key    blake2b of {run}/{batch}/{partition}/{number of the chunk}
    message id         {idempotency key}-{place in the chunk}, where the row has none

``run`` is the write, or the checkpoint of the stream; ``batch`` the number of the micro-batch, 0 elsewhere. So a task
that Spark repeats sends the same chunks under the same names, if it is given the same rows in the same order.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from hourwheel.answersize import nested_bytes
from hourwheel.client import Message
from hourwheel.client.records import on_the_wire
from hourwheel.due import delay_ms
from hourwheel.model import BATCH_BYTES, BATCH_MESSAGES
from hourwheel.times import parse_rfc3339

_HOUR_MS = 3_600_000
_HOURS = 50
"""In so many hours the messages of a chunk may fall due: in a hundred at most the cloud takes them, and an hour of
delay may be part of two."""

_encoder = msgspec.json.Encoder()


class Task(NamedTuple):
    """What is the same whenever Spark repeats it."""

    run: str
    batch: int
    partition: int


class Chunk(NamedTuple):
    number: int
    key: str
    messages: list[Message]


def chunks_of(task: Task, messages: Iterable[Message]) -> Iterator[Chunk]:
    """As large as one request may be, in their order."""
    for number, batch in enumerate(_batches(messages)):
        name = f"{task.run}/{task.batch}/{task.partition}/{number}"
        key = blake2b(name.encode(), digest_size=20).hexdigest()
        named = [
            one if one.id is not None else msgspec.structs.replace(one, id=f"{key}-{place}")
            for place, one in enumerate(batch)
        ]
        yield Chunk(number, key, named)


def _batches(messages: Iterable[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    hours: set[int | None] = set()
    size = 0
    for message in messages:
        # As the text of an event of Lambda, which is never shorter than what it carries: so it is within all limits.
        length = nested_bytes(_encoder.encode(on_the_wire(message)))
        hour = _hour(message)
        full = len(batch) == BATCH_MESSAGES or size + length > BATCH_BYTES or len(hours | {hour}) > _HOURS
        if batch and full:
            yield batch
            batch, hours, size = [], set(), 0
        batch.append(message)
        hours.add(hour)
        size += length
    if batch:
        yield batch


def _hour(message: Message) -> int | None:
    """The hour in which it falls due, or how many hours from now; None: now."""
    if isinstance(message.deliver_at, str):
        return parse_rfc3339(message.deliver_at, "deliver_at") // _HOUR_MS
    if isinstance(message.delay, int | float | str):
        return delay_ms(message.delay, "delay") // _HOUR_MS
    return None
