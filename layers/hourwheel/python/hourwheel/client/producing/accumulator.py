"""Collects the messages of a producer by subject until a batch is full or its linger ends.

This module has no threads and no clock: the producer calls it under a lock and passes the time in.
"""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from enum import Enum, auto
from typing import NamedTuple

from hourwheel.client.records.messages import Message, SendResult


class Pending:
    """A message of ``send``, with its future. An ``OutgoingRequest`` treats it as the batch of one caller."""

    __slots__ = ("future", "give_up_at", "message", "sent_at", "size_bytes")

    def __init__(
        self,
        message: Message,
        size_bytes: int,
        future: Future[SendResult],
        sent_at: float,
        give_up_at: float = math.inf,
    ) -> None:
        self.message = message
        self.size_bytes = size_bytes
        self.future = future
        self.sent_at = sent_at
        self.give_up_at = give_up_at

    @property
    def messages(self) -> tuple[Message]:
        return (self.message,)

    @property
    def done(self) -> bool:
        return self.future.done()

    def accept(self, results: Sequence[SendResult]) -> None:
        try:  # noqa: SIM105 - ``suppress`` would cost more than setting the result
            self.future.set_result(results[0])
        except InvalidStateError:
            pass  # the producer was closed and has failed the future before, which stays so

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class _State(Enum):
    IDLE = auto()
    LINGERING = auto()  # has messages that are not due yet
    READY = auto()
    IN_FLIGHT = auto()  # one batch is under way; the next one waits for it, so that the order holds


class SubjectBuffer:
    """Holds the messages of one subject in the order of ``send``. ``accepted`` counts the messages that were added,
    ``completed`` those that the server accepted or that failed; both only grow."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.pending: deque[Pending] = deque()
        self.in_flight: list[Pending] = []
        self.pending_bytes = 0
        self.accepted = 0
        self.completed = 0
        self.flush_until = 0  # the messages up to this count of ``accepted`` do not linger
        self.state = _State.IDLE
        self.ticket = -1  # of the current linger; a linger that ended early stays in the heap, with another ticket


class InFlightBatch(NamedTuple):
    buffer: SubjectBuffer
    batch: list[Pending]


class Accumulator:
    """Holds the subject buffers of a producer. ``messages`` and ``size_bytes`` include the batches under way."""

    def __init__(self, *, batch_messages: int, batch_bytes: int, linger_seconds: float) -> None:
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._linger_seconds = linger_seconds
        self._buffers: dict[str, SubjectBuffer] = {}
        self._ready: deque[SubjectBuffer] = deque()
        self._lingering: list[tuple[float, int, SubjectBuffer]] = []
        self._tickets = itertools.count()
        self.messages = 0
        self.size_bytes = 0

    def add(self, subject: str, pending: Pending) -> bool:
        """Adds a message to the buffer of its subject. Returns True if a sender has to look at what is due."""
        buffer = self._buffers.get(subject)
        if buffer is None:
            buffer = self._buffers[subject] = SubjectBuffer(subject)
        buffer.pending.append(pending)
        buffer.pending_bytes += pending.size_bytes
        buffer.accepted += 1
        self.messages += 1
        self.size_bytes += pending.size_bytes
        if buffer.state is _State.IDLE or (buffer.state is _State.LINGERING and self._full(buffer)):
            self._schedule(buffer)
            return True
        return False

    def take(self, now: float) -> InFlightBatch | None:
        """Returns the next batch that is due, or None. No other batch of its subject is due before ``completed``."""
        while (due_at := self.next_due()) is not None and due_at <= now:
            self._make_ready(heapq.heappop(self._lingering)[2])
        if not self._ready:
            return None
        buffer = self._ready.popleft()
        buffer.state = _State.IN_FLIGHT
        buffer.in_flight = self._cut(buffer)
        return InFlightBatch(buffer, buffer.in_flight)

    def completed(self, in_flight: InFlightBatch) -> None:
        """Frees the room of a batch that was accepted or has failed, and schedules the next batch of its subject."""
        buffer, batch = in_flight
        buffer.in_flight = []
        buffer.completed += len(batch)
        self.messages -= len(batch)
        self.size_bytes -= sum(pending.size_bytes for pending in batch)
        if buffer.pending:
            self._schedule(buffer)
        else:
            buffer.state = _State.IDLE
            self._buffers.pop(buffer.subject, None)  # a program may send to any number of subjects, one after the other

    def flush(self) -> dict[SubjectBuffer, int]:
        """Makes all messages due at once.

        Returns for each subject buffer the count that ``completed`` reaches once all of these messages are done.
        """
        for buffer in self._buffers.values():
            self._end_linger(buffer)
        return {buffer: buffer.accepted for buffer in self._buffers.values()}

    def hurry(self, subject: str) -> bool:
        """Makes the messages of a subject due at once. Returns True if a sender has to look again at what is due."""
        buffer = self._buffers.get(subject)
        return buffer is not None and self._end_linger(buffer)

    def _end_linger(self, buffer: SubjectBuffer) -> bool:
        buffer.flush_until = buffer.accepted
        if buffer.state is not _State.LINGERING:
            return False
        self._make_ready(buffer)
        return True

    @property
    def ready(self) -> bool:
        """Whether ``take`` would return a batch now, whatever the time."""
        return bool(self._ready)

    def next_due(self) -> float | None:
        """Returns the time at which the next linger ends, or None."""
        while self._lingering:
            due_at, ticket, buffer = self._lingering[0]
            if buffer.state is _State.LINGERING and buffer.ticket == ticket:
                return due_at
            heapq.heappop(self._lingering)  # this linger was ended early
        return None

    def outstanding(self) -> list[tuple[str, Pending]]:
        """Returns every message that is not done, with its subject, in the order of ``send``."""
        return [
            (buffer.subject, batch)
            for buffer in self._buffers.values()
            for batch in (*buffer.in_flight, *buffer.pending)
        ]

    def abandon(self) -> Iterable[Pending]:
        """Removes and yields the messages that are not under way."""
        for buffer in self._buffers.values():
            yield from buffer.pending
            buffer.pending.clear()

    def _schedule(self, buffer: SubjectBuffer) -> None:
        if self._full(buffer) or buffer.completed < buffer.flush_until:
            self._make_ready(buffer)
            return
        buffer.state = _State.LINGERING
        due_at = buffer.pending[0].sent_at + self._linger_seconds
        buffer.ticket = next(self._tickets)
        heapq.heappush(self._lingering, (due_at, buffer.ticket, buffer))

    def _make_ready(self, buffer: SubjectBuffer) -> None:
        buffer.state = _State.READY
        self._ready.append(buffer)

    def _full(self, buffer: SubjectBuffer) -> bool:
        return len(buffer.pending) >= self._batch_messages or buffer.pending_bytes >= self._batch_bytes

    def _cut(self, buffer: SubjectBuffer) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while buffer.pending and len(batch) < self._batch_messages:
            size += buffer.pending[0].size_bytes
            if batch and size > self._batch_bytes:  # a message above the limit is sent alone: the server decides
                break
            batch.append(buffer.pending.popleft())
        buffer.pending_bytes -= sum(pending.size_bytes for pending in batch)
        return batch
