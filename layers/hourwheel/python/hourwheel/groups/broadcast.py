"""Returns the lag and the dead letters of a broadcast group: those of all its consumers."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from hourwheel.dead_letters.dead import ANY_LETTER, DeadFilter, DeadLetters, NamedLetters, parse_dead_id
from hourwheel.errors import NotFound
from hourwheel.model.groups import Group
from hourwheel.model.messages import Message
from hourwheel.model.pages import DeadPage
from hourwheel.pull_log.records import Position

_SEPARATOR = ":"  # no name of a consumer contains this character


class ConsumerPosition(Position, array_like=True, frozen=True, order=True):
    """The position of a dead letter of one consumer of a broadcast group."""

    consumer: str = ""


def parse_any_dead_id(text: str, field: str) -> Position:
    """Returns the position that a dead_id names: ``12-0``, or ``host-1:12-0`` in a broadcast group. Raises
    ``Rejected``."""
    consumer, separator, rest = text.rpartition(_SEPARATOR)
    position = parse_dead_id(rest, field)
    return ConsumerPosition(position.row_no, position.index, consumer) if separator else position


@dataclass(frozen=True)
class BroadcastDeadLetters:
    """The dead letters of all consumers of a broadcast group, by the names of the consumers. A ``dead_id`` begins with
    the consumer's name."""

    letters: Sequence[tuple[Group, DeadLetters]]

    def page(self, *, after: str | None, limit: int, which: DeadFilter = ANY_LETTER, newest: bool = False) -> DeadPage:
        """Returns a page as ``DeadLetters.page`` does, consumer by consumer: with ``newest``, each consumer's newest
        dead letter comes first."""
        first, _, rest = (after or "").rpartition(_SEPARATOR)
        page: list[Message] = []
        for group, letters in self.letters:
            if group.consumer < first:
                continue
            behind = (rest or None) if group.consumer == first else None
            own = letters.page(after=behind, limit=limit - len(page), which=which, newest=newest)
            page += [_named(group, message) for message in own.messages]
            if own.next is not None:
                return DeadPage(page, _dead_id(group, own.next))
            if len(page) == limit:
                # Whether the consumers that follow have dead letters is left to the next page, which may be empty.
                return DeadPage(page, page[-1].dead_id)
        return DeadPage(page, None)

    def positions(self, which: DeadFilter) -> frozenset[Position]:
        return frozenset(
            ConsumerPosition(position.row_no, position.index, group.consumer)
            for group, letters in self.letters
            for position in letters.positions(which)
        )

    def alive(self) -> Iterator[Message]:
        return (_named(group, message) for group, letters in self.letters for message in letters.alive())

    def get(self, dead_id: str) -> Message:
        consumer, _, rest = dead_id.rpartition(_SEPARATOR)
        for group, letters in self.letters:
            if group.consumer == consumer:
                return _named(group, letters.get(rest))
        raise NotFound("dead-letter-unknown", f"there is no dead letter {dead_id!r}: its consumer is unknown")

    def redrive(self, choose: Callable[[Position, int], bool]) -> int:
        return sum(letters.redrive(_of_consumer(choose, group)) for group, letters in self.letters)

    def drop(self, choose: Callable[[Position, int], bool]) -> int:
        return sum(letters.drop(_of_consumer(choose, group)) for group, letters in self.letters)


def _of_consumer(choose: Callable[[Position, int], bool], group: Group) -> Callable[[Position, int], bool]:
    """Returns the choice among the dead letters of one consumer, whose positions do not name the consumer."""
    if not isinstance(choose, NamedLetters):
        return partial(_chosen, choose, group)
    named = [
        position
        for position in choose.positions
        if isinstance(position, ConsumerPosition) and position.consumer == group.consumer
    ]
    return NamedLetters(frozenset(Position(letter.row_no, letter.index) for letter in named))


def _chosen(choose: Callable[[Position, int], bool], group: Group, position: Position, died_ms: int) -> bool:
    return choose(ConsumerPosition(position.row_no, position.index, group.consumer), died_ms)


def _named(group: Group, message: Message) -> Message:
    message.dead_id = _dead_id(group, message.dead_id or "")
    return message


def _dead_id(group: Group, dead_id: str) -> str:
    return f"{group.consumer}{_SEPARATOR}{dead_id}"
