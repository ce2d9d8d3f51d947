"""Queues the due messages of a bucket by their destination. The destinations take turns: however many messages of one
subject fall due at an instant, a message for another one waits for a slice of them.

Destinations with few messages and herds have steps of their own, in turn. So the message of a quiet subject waits for
the step under way, and not for the slices that would be handed over together with it.

If one of several logs of a destination is out of reach, its messages wait in a queue of the log, which has turns of its
own. Until that queue is empty, further messages for the log join it."""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

from hourwheel.delay.timing import without

QueueName: TypeAlias = int | str
"""The number of a destination, or the name of a log."""


class _Queue:
    """The due messages for one destination, in the order in which they are handed over."""

    __slots__ = ("_pieces", "count")

    def __init__(self) -> None:
        # Views of arrays: a herd is neither copied nor made of objects before its turn comes.
        self._pieces: deque[memoryview[int]] = deque()
        self.count = 0

    def add(self, positions: Sequence[int], *, first: bool) -> None:
        piece = memoryview(positions if isinstance(positions, array) else array("q", positions))
        (self._pieces.appendleft if first else self._pieces.append)(piece)
        self.count += len(piece)

    def take(self, most: int) -> list[int]:
        taken: list[int] = []
        while self._pieces and len(taken) < most:
            piece = self._pieces.popleft()
            rest = piece[most - len(taken) :]
            taken += piece[: most - len(taken)].tolist()
            if rest:
                self._pieces.appendleft(rest)
        self.count -= len(taken)
        return taken


class DueMessages:
    """The positions of due messages that are not handed over. For one thread."""

    def __init__(self, discarded: set[int]) -> None:
        self._queues: dict[QueueName, _Queue] = {}
        """By destination or log: the one whose turn is next comes first."""
        self._discarded = discarded
        self._herds_next = False
        """Whether the last step was one of destinations with few messages, and herds waited meanwhile."""
        self._rests: dict[QueueName, int] = {}
        """Until when a destination has no turn."""

    def ready(self, now_ms: int) -> bool:
        """Returns whether a destination with due messages may have its turn."""
        return any(self._may_go(destination, now_ms) for destination in self._queues)

    def rest_times(self) -> list[int]:
        """Returns when the destinations that rest have their turns again."""
        return [until_ms for destination, until_ms in self._rests.items() if destination in self._queues]

    def logs(self) -> set[str]:
        """Returns the logs that have queues of their own."""
        return {name for name in self._queues if isinstance(name, str)}

    def rest(self, destination: QueueName, until_ms: int) -> None:
        """Lets a destination or log rest that is out of reach. Its messages are not read again meanwhile."""
        self._rests[destination] = until_ms

    @property
    def waiting(self) -> int:
        """The number of positions, discarded ones included."""
        return sum(queue.count for queue in self._queues.values())

    def add(self, destination: QueueName, positions: Sequence[int], *, first: bool = False) -> None:
        """Adds due messages behind those for the same destination; in front of them with ``first``."""
        if not positions:
            return
        queue = self._queues.get(destination)
        if queue is None:
            queue = self._queues[destination] = _Queue()
        queue.add(positions, first=first)

    def slices(self, most: int, now_ms: int) -> list[tuple[QueueName, list[int]]]:
        """Removes the next ``most`` messages and returns them, a slice for each destination in turn. A destination
        with more messages than its share gets the room that others leave. Leaves out discarded messages."""
        turns = self._next_turns(most, now_ms)
        room, taken = most, dict[QueueName, list[int]]()
        for number, destination in enumerate(sorted(turns, key=lambda destination: self._queues[destination].count)):
            taken[destination] = self._queues[destination].take(room // (len(turns) - number))
            room -= len(taken[destination])
        for destination in turns:
            self._rests.pop(destination, None)
            queue = self._queues.pop(destination)
            if queue.count:
                self._queues[destination] = queue
        kept = [(destination, without(taken[destination], self._discarded)) for destination in turns]
        return [(destination, positions) for destination, positions in kept if positions]

    def put_back(self, slices: Iterable[tuple[QueueName, Sequence[int]]], left: Iterable[Sequence[int]]) -> None:
        """Puts what had no room in a step back, by the slices of the step. A destination of which nothing was handed
        over has the next turn; any other one has had its turn."""
        following: dict[QueueName, _Queue] = {}
        for (destination, positions), rest in zip(slices, left, strict=True):
            self.add(destination, rest, first=True)
            if len(rest) == len(positions):
                following[destination] = self._queues.pop(destination)
        if following:
            self._queues = following | self._queues

    def _next_turns(self, most: int, now_ms: int) -> list[QueueName]:
        """Returns the destinations that have the next step: in turn those whose messages fit into their share of it,
        and the herds."""
        ready = list(islice((name for name in self._queues if self._may_go(name, now_ms)), most))
        few, herds = self._by_size(ready, most // max(1, len(ready)))
        if not (few and herds):
            self._herds_next = False
            return ready
        self._herds_next = not self._herds_next
        return few if self._herds_next else herds

    def _by_size(self, names: Iterable[QueueName], share: int) -> tuple[list[QueueName], list[QueueName]]:
        """Returns the destinations with at most this many messages, and the others."""
        sizes: tuple[list[QueueName], list[QueueName]] = [], []
        for name in names:
            sizes[self._queues[name].count > share].append(name)
        return sizes

    def _may_go(self, destination: QueueName, now_ms: int) -> bool:
        return not self._rests or self._rests.get(destination, 0) <= now_ms
