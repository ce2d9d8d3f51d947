"""Keeps the messages of a bucket that are not handed over: by the tick in which they fall due, then by destination.

A message waits in a timing wheel until it is due, and then in the queue of its destination until its turn comes. Only
positions are kept, no messages.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hourwheel.delay.due_messages import DueMessages
from hourwheel.delay.held_batches import HeldBatches
from hourwheel.delay.timing import TimingWheel, pack, row_of
from hourwheel.logs.entries import DueTimes


@dataclass
class WaitingMessages:
    """The positions of the messages of one bucket that are not handed over. For one thread."""

    tick_ms: int
    precise_starts: bool
    """Whether a message that may be a minute late needs no precise start of a wheel."""
    held: HeldBatches
    due: DueMessages = field(init=False)
    _discarded: set[int] = field(default_factory=set)
    """Positions that are left out when their turn comes."""
    _numbers: dict[tuple[str, int, str | None], int] = field(default_factory=dict)
    _destinations: "array[int]" = field(default_factory=lambda: array("I"))
    """The number of the destination of each row; four bytes for a row."""

    def __post_init__(self) -> None:
        self.due = DueMessages(self._discarded)
        self._wheel = TimingWheel(self.tick_ms, self._discarded)
        self._minute_wheel = TimingWheel(self.tick_ms, self._discarded)
        """The messages that may be a minute late, where that saves starts: they alone need no precise one."""

    @property
    def waiting(self) -> int:
        """The number of messages; cancelled ones count until their turn comes."""
        return self._wheel.waiting + self._minute_wheel.waiting + self.due.waiting

    @property
    def is_held_up(self) -> bool:
        """Whether due messages or open transfers wait for a log that is out of reach."""
        return bool(self.held.open or self.due.waiting)

    def retry_times(self) -> list[int]:
        """Returns when those that wait for a log that is out of reach are tried again."""
        return [*self.held.retry_times(), *self.due.rest_times()]

    def next_ms(self) -> int | None:
        """Returns when the next message that may not be late falls due; None if there is none."""
        return self._wheel.next_ms()

    def next_minute_ms(self) -> int | None:
        """Returns when the next message that may be a minute late falls due; None if there is none."""
        return self._minute_wheel.next_ms()

    def upcoming(self, most: int) -> list[int]:
        """Returns up to ``most`` of the messages that fall due next."""
        return self._wheel.upcoming(most)

    def add(self, row_no: int, count: int, due_times: DueTimes, done: "array[int]") -> None:
        """Adds the messages of a row, except those among the ascending positions ``done``, which are handed over."""
        wheel = self._minute_wheel if self.precise_starts and due_times.minute else self._wheel
        destination = self._note_destination(row_no, due_times)
        first = pack(row_no, 0)
        positions: Sequence[int] = range(first, first + count)
        i = bisect_left(done, first)
        if i < len(done) and done[i] < first + count:
            handed_over = set(done[i : bisect_left(done, first + count)])
            positions = [packed for packed in positions if packed not in handed_over]
        # Most batches are due at one time: one slot takes them without a look at each message.
        if not due_times.after_ms:
            wheel.add_all(positions, due_times.first_ms, destination)
            return
        for packed in positions:
            wheel.add(packed, due_times.due_ms(packed - first), destination)

    def discard(self, packed: int) -> None:
        """Leaves out a message that is cancelled, or handed over by another wheel."""
        self._discarded.add(packed)

    def fall_due(self, now_ms: int) -> None:
        """Moves the messages that are due to the queues of their destinations."""
        for positions, destination in self._wheel.take(now_ms) + self._minute_wheel.take(now_ms):
            if destination is not None:
                self.due.add(destination, positions)
                continue
            for name, some in self._by_destination(positions).items():
                self.due.add(name, some)

    def keep_held(self) -> None:
        """Puts the messages of a step whose log is out of reach back: they wait in front of those that were due after
        them."""
        for name, held in self.held.held().items():
            self.due.add(name, held.first, first=True)
            self.due.add(name, held.last)
            if held.rests_until_ms:
                self.due.rest(name, held.rests_until_ms)

    def _note_destination(self, row_no: int, due_times: DueTimes) -> int:
        address = (due_times.subject, due_times.generation, due_times.member)
        number = self._numbers.setdefault(address, len(self._numbers))
        # Rows without messages have no destination.
        self._destinations.extend([0] * (row_no - len(self._destinations)))
        self._destinations.append(number)
        return number

    def _by_destination(self, positions: Iterable[int]) -> dict[int, list[int]]:
        positions_of: dict[int, list[int]] = {}
        for packed in positions:
            positions_of.setdefault(self._destinations[row_of(packed)], []).append(packed)
        return positions_of
