"""What waits to be sent, subject by subject, and when it is due. No threads, no clock: the producer calls
this under its lock and passes the time in.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from enum import Enum, auto
from typing import NamedTuple

from hourwheel.client.records import Message, Placed


class Pending(NamedTuple):
    message: Message
    size_bytes: int
    future: Future[Placed]
    sent_at: float


class _State(Enum):
    IDLE = auto()
    LINGERING = auto()  # has messages, not due yet
    READY = auto()
    FLYING = auto()  # one batch is under way: the next one waits for it, so that order holds


class SubjectBuffer:
    """One subject's messages in the order of ``send``. ``accepted`` and ``completed`` count them for ever."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.pending: deque[Pending] = deque()
        self.flying: list[Pending] = []
        self.pending_bytes = 0
        self.accepted = 0
        self.landed = 0
        self.hurried = 0  # messages up to this count do not linger
        self.state = _State.IDLE


class InFlightBatch(NamedTuple):
    buffer: SubjectBuffer
    batch: list[Pending]


class Accumulator:
    """All subject buffers of a producer. ``messages`` and ``size_bytes`` include what is under way."""

    def __init__(self, *, batch_messages: int, batch_bytes: int, linger_seconds: float) -> None:
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._linger_seconds = linger_seconds
        self._lanes: dict[str, SubjectBuffer] = {}
        self._ready: deque[SubjectBuffer] = deque()
        self._lingering: list[tuple[float, int, SubjectBuffer]] = []
        self._tickets = itertools.count()
        self.messages = 0
        self.size_bytes = 0

    def add(self, subject: str, pending: Pending) -> bool:
        """True when that changes what is due next, so somebody must look."""
        buffer = self._lanes.get(subject)
        if buffer is None:
            buffer = self._lanes[subject] = SubjectBuffer(subject)
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
        """The next batch that is due. Its subject buffer is not offered again before ``completed``."""
        while self._lingering and self._lingering[0][0] <= now:
            buffer = heapq.heappop(self._lingering)[2]
            if buffer.state is _State.LINGERING:
                self._make_ready(buffer)
        if not self._ready:
            return None
        buffer = self._ready.popleft()
        buffer.state = _State.FLYING
        buffer.flying = self._cut(buffer)
        return InFlightBatch(buffer, buffer.flying)

    def completed(self, flight: InFlightBatch) -> None:
        """The batch is done, well or badly."""
        buffer, batch = flight
        buffer.flying = []
        buffer.landed += len(batch)
        self.messages -= len(batch)
        self.size_bytes -= sum(pending.size_bytes for pending in batch)
        if buffer.pending:
            self._schedule(buffer)
        else:
            buffer.state = _State.IDLE
            self._lanes.pop(buffer.subject, None)

    def flush(self) -> dict[SubjectBuffer, int]:
        """What is there now lingers no more. Returns for each subject buffer the count it must have ``completed`` to
        be through."""
        for buffer in self._lanes.values():
            buffer.hurried = buffer.accepted
            if buffer.state is _State.LINGERING:
                self._make_ready(buffer)
        return {buffer: buffer.accepted for buffer in self._lanes.values()}

    @property
    def ready(self) -> bool:
        """``take`` has something, whatever the time."""
        return bool(self._ready)

    def next_due(self) -> float | None:
        """When ``take`` may next have something that it has not now."""
        return self._lingering[0][0] if self._lingering else None

    def outstanding(self) -> list[tuple[str, Pending]]:
        """Every message that is not done, with its subject, in the order of ``send``."""
        return [(buffer.subject, each) for buffer in self._lanes.values() for each in (*buffer.flying, *buffer.pending)]

    def abandon(self) -> Iterable[Pending]:
        """Takes out everything that is not under way."""
        for buffer in self._lanes.values():
            yield from buffer.pending
            buffer.pending.clear()

    def _schedule(self, buffer: SubjectBuffer) -> None:
        if self._full(buffer) or buffer.landed < buffer.hurried:
            self._make_ready(buffer)
            return
        buffer.state = _State.LINGERING
        due_at = buffer.pending[0].sent_at + self._linger_seconds
        heapq.heappush(self._lingering, (due_at, next(self._tickets), buffer))

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
            if batch and size > self._batch_bytes:
                break
            batch.append(buffer.pending.popleft())
        buffer.pending_bytes -= sum(pending.size_bytes for pending in batch)
        return batch
