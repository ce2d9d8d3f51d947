"""Divides the rows of a task into chunks. Each chunk is sent as one batch under a name of its own.

    idempotency key    blake2b of {run}/{batch}/{partition}/{number of the chunk}
    message id         {idempotency key}-{index in the chunk}, where the row has none

``run`` is the write, or the checkpoint of the stream; ``batch`` the number of the micro-batch, 0 elsewhere. So a task
that Spark repeats sends the same chunks under the same names if it gets the same rows in the same order.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from hourwheel.client import Message
from hourwheel.client.records.messages import on_the_wire
from hourwheel.model.due import delay_ms
from hourwheel.model.fields import BATCH_BYTES, BATCH_MESSAGES
from hourwheel.times import HOUR_MS, parse_rfc3339
from hourwheel.wire.answer_size import nested_bytes

_HOURS = 50
"""The messages of a chunk may fall due in this many hours. The cloud accepts at most a hundred hours in a batch, and an
hour of relative delay may overlap two hours of the clock."""

_encoder = msgspec.json.Encoder()


class Task(NamedTuple):
    """A task by the numbers that stay the same when Spark repeats it."""

    run: str
    batch: int
    partition: int


class WriteChunk(NamedTuple):
    number: int
    key: str
    messages: list[Message]


def chunks_of(task: Task, messages: Iterable[Message]) -> Iterator[WriteChunk]:
    """Yields the messages in order, in chunks as large as a request may be."""
    for number, batch in enumerate(_batches(messages)):
        name = f"{task.run}/{task.batch}/{task.partition}/{number}"
        key = blake2b(name.encode(), digest_size=20).hexdigest()
        named = [
            message if message.id is not None else msgspec.structs.replace(message, id=f"{key}-{index}")
            for index, message in enumerate(batch)
        ]
        yield WriteChunk(number, key, named)


def _batches(messages: Iterable[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    hours: set[int | None] = set()
    size = 0
    for message in messages:
        # Measured as text in an event of Lambda, the longest form of the request: so it is within all limits.
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
    """Returns the hour in which the message falls due, or the hours of its delay; None if it is not delayed."""
    if isinstance(message.deliver_at, str):
        return parse_rfc3339(message.deliver_at, "deliver_at") // HOUR_MS
    if isinstance(message.delay, int | float | str):
        return delay_ms(message.delay, "delay") // HOUR_MS
    return None
