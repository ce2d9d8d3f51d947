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


class Lane:
    """One subject's messages in the order of ``send``. ``accepted`` and ``landed`` count them for ever."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.pending: deque[Pending] = deque()
        self.flying: list[Pending] = []
        self.pending_bytes = 0
        self.accepted = 0
        self.landed = 0
        self.hurried = 0  # messages up to this count do not linger
        self.state = _State.IDLE


class Flight(NamedTuple):
    lane: Lane
    batch: list[Pending]


class Lanes:
    """All lanes of a producer. ``messages`` and ``size_bytes`` include what is under way."""

    def __init__(self, *, batch_messages: int, batch_bytes: int, linger_seconds: float) -> None:
        self._batch_messages = batch_messages
        self._batch_bytes = batch_bytes
        self._linger_seconds = linger_seconds
        self._lanes: dict[str, Lane] = {}
        self._ready: deque[Lane] = deque()
        self._lingering: list[tuple[float, int, Lane]] = []
        self._tickets = itertools.count()
        self.messages = 0
        self.size_bytes = 0

    def add(self, subject: str, pending: Pending) -> bool:
        """True when that changes what is due next, so somebody must look."""
        lane = self._lanes.get(subject)
        if lane is None:
            lane = self._lanes[subject] = Lane(subject)
        lane.pending.append(pending)
        lane.pending_bytes += pending.size_bytes
        lane.accepted += 1
        self.messages += 1
        self.size_bytes += pending.size_bytes
        if lane.state is _State.IDLE or (lane.state is _State.LINGERING and self._full(lane)):
            self._schedule(lane)
            return True
        return False

    def take(self, now: float) -> Flight | None:
        """The next batch that is due. Its lane is not offered again before ``landed``."""
        while self._lingering and self._lingering[0][0] <= now:
            lane = heapq.heappop(self._lingering)[2]
            if lane.state is _State.LINGERING:
                self._make_ready(lane)
        if not self._ready:
            return None
        lane = self._ready.popleft()
        lane.state = _State.FLYING
        lane.flying = self._cut(lane)
        return Flight(lane, lane.flying)

    def landed(self, flight: Flight) -> None:
        """The batch is done, well or badly."""
        lane, batch = flight
        lane.flying = []
        lane.landed += len(batch)
        self.messages -= len(batch)
        self.size_bytes -= sum(pending.size_bytes for pending in batch)
        if lane.pending:
            self._schedule(lane)
        else:
            lane.state = _State.IDLE
            self._lanes.pop(lane.subject, None)

    def hurry(self) -> dict[Lane, int]:
        """What is there now lingers no more. Returns for each lane the count it must have ``landed`` to be through."""
        for lane in self._lanes.values():
            lane.hurried = lane.accepted
            if lane.state is _State.LINGERING:
                self._make_ready(lane)
        return {lane: lane.accepted for lane in self._lanes.values()}

    @property
    def ready(self) -> bool:
        """``take`` has something, whatever the time."""
        return bool(self._ready)

    def next_due(self) -> float | None:
        """When ``take`` may next have something that it has not now."""
        return self._lingering[0][0] if self._lingering else None

    def outstanding(self) -> list[tuple[str, Pending]]:
        """Every message that is not done, with its subject, in the order of ``send``."""
        return [(lane.subject, each) for lane in self._lanes.values() for each in (*lane.flying, *lane.pending)]

    def abandon(self) -> Iterable[Pending]:
        """Takes out everything that is not under way."""
        for lane in self._lanes.values():
            yield from lane.pending
            lane.pending.clear()

    def _schedule(self, lane: Lane) -> None:
        if self._full(lane) or lane.landed < lane.hurried:
            self._make_ready(lane)
            return
        lane.state = _State.LINGERING
        due_at = lane.pending[0].sent_at + self._linger_seconds
        heapq.heappush(self._lingering, (due_at, next(self._tickets), lane))

    def _make_ready(self, lane: Lane) -> None:
        lane.state = _State.READY
        self._ready.append(lane)

    def _full(self, lane: Lane) -> bool:
        return len(lane.pending) >= self._batch_messages or lane.pending_bytes >= self._batch_bytes

    def _cut(self, lane: Lane) -> list[Pending]:
        batch: list[Pending] = []
        size = 0
        while lane.pending and len(batch) < self._batch_messages:
            size += lane.pending[0].size_bytes
            if batch and size > self._batch_bytes:
                break
            batch.append(lane.pending.popleft())
        lane.pending_bytes -= sum(pending.size_bytes for pending in batch)
        return batch
