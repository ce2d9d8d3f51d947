"""Defines where the queues of a subject are: which logs hold which offsets, and what is stored of each cell.

A queue is a list of mappings, oldest first. The last one takes new messages; the ones before it are sealed, and end
where the next one starts. Offsets are sequences: the counter of a log begins at the start of its mapping, so nothing
translates them. A change of the route is requested in the subject's record, and the next process that finds it there
carries it out (``cells/moves.py``). Nothing here reads or writes.
"""

from collections.abc import Iterable
from collections.abc import Mapping as Dictionary
from typing import ClassVar, Literal, TypeAlias

import msgspec

from hourwheel.model.log_names import HOME
from hourwheel.model.route_records import CellKind, CellState

MappingState: TypeAlias = Literal["normal", "read_only", "expired", "lost"]
MAX_MAPPINGS = 16
"""A queue has at most this many mappings that are not expired: each costs every group a pull log."""


LOST_GAP = 2**46
"""The queue goes on this many offsets above the start of a part whose cell was given up: above all that the part gave
out. A queue takes 1,000 batches of 1,000 messages in a second at most, so it takes two years to give out as many."""

MOST_OFFSETS = 2**53
"""All offsets stay below this number, up to which readers of JSON are exact."""


def counted(offset: int) -> int:
    """Returns the number of messages of a queue below the offset, without those that a lost open part gave out. Each
    such part takes up ``LOST_GAP`` offsets, and all other parts together take up fewer."""
    return offset % LOST_GAP


KINDS: tuple[CellKind, ...] = ("real-time", "delay")


class CellRecord(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """A registered cell. ``real-time`` cells take queues. ``location`` is where its storage was when it was added. At
    ``lost_ms`` an operator began to give it up (0: nobody did): it stays off line until it is removed, and its name is
    not used again."""

    name: str
    kinds: tuple[CellKind, ...] = KINDS
    state: CellState = "normal"
    location: str = ""
    created_ms: int = 0
    lost_ms: int = 0

    @property
    def serves(self) -> bool:
        """Returns whether rows may be read from the cell and written to it."""
        return self.state != "offline" and not self.lost_ms

    @property
    def takes_queues(self) -> bool:
        return self.state == "normal" and "real-time" in self.kinds

    @property
    def removed(self) -> bool:
        return self.state == "removed"


class Mapping(msgspec.Struct, array_like=True, frozen=True):
    """The offsets from ``start`` up to ``end`` (None: open) of a queue, and the log that holds them: part ``part`` of
    the queue in ``cell``. ``part_generation`` counts the uses of the part, from 1. ``rows`` is the number of rows that
    a closed log has. ``epoch`` is that of the route that added the mapping. The number of queues was constant during an
    ``era``: the messages of a key in an earlier era, in whichever queue, come before those of a later one."""

    NAMED_BY: ClassVar[int] = 4  # its log; an empty one ends where the next starts

    start: int = 0
    cell: str = HOME
    part: int = 0
    part_generation: int = 1
    end: int | None = None
    state: MappingState = "normal"
    epoch: int = 0
    era: int = 0
    rows: int = 0

    @property
    def first(self) -> bool:
        """Returns whether this is the log that a queue has before its first move."""
        return self.part == 0 and self.part_generation == 1 and self.cell == HOME

    @property
    def known_end(self) -> int | None:
        """The end, if a seal made it exact: the part was open, or open when its cell was given up, if this is None."""
        return None if self.end is None or self.end - self.start >= LOST_GAP else self.end

    @property
    def loss(self) -> str:
        """The clause that says what became of the messages of a lost part."""
        return f"what was stored there was lost with cell {self.cell}"


FIRST = Mapping()


class Route(msgspec.Struct, array_like=True, frozen=True):
    """The mappings of one queue, and the number of its next part."""

    NAMED_BY: ClassVar[int] = 0  # its queue is its place

    mappings: tuple[Mapping, ...] = (FIRST,)
    parts: int = 1

    @property
    def last(self) -> Mapping:
        """The mapping that takes new messages."""
        return self.mappings[-1]

    @property
    def readable(self) -> tuple[Mapping, ...]:
        return tuple(mapping for mapping in self.mappings if mapping.state not in ("expired", "lost"))

    def part_of(self, offset: int) -> Mapping | None:
        """Returns the mapping to which the offset belongs; None for one of a part that was used again since."""
        return next(
            (
                mapping
                for mapping in self.mappings
                if mapping.start <= offset and (mapping.end is None or offset < mapping.end)
            ),
            None,
        )

    def messages(self, start: int, end: int) -> int:
        """Returns the number of messages from the offset ``start`` up to ``end``, without those of parts that are not
        readable."""
        parts = ((max(start, part.start), end if part.end is None else part.end) for part in self.readable)
        return sum(max(0, stop - first) for first, stop in parts)

    def target(self, queue: int, cell: str) -> "MoveTarget":
        """Returns the log that takes over from the last mapping: an expired part in the cell, or a new one."""
        for mapping in self.mappings:
            if mapping.state == "expired" and mapping.cell == cell:
                # Used again, so that the route, and with it the record of the subject, does not grow with each move.
                return MoveTarget(queue, cell, mapping.part, mapping.part_generation + 1)
        return MoveTarget(queue, cell, self.parts, 1)

    def continued(self, target: "MoveTarget", end: int, *, rows: int, epoch: int, era: int) -> "Route":
        """Returns the route after its last log was sealed at ``end``, with ``rows`` rows: the target takes over. A
        log without rows has expired at once. A lost one was not sealed: ``end`` is above all that it gave out."""
        state: MappingState = "lost" if target.lost else "read_only" if rows else "expired"
        closed = msgspec.structs.replace(self.last, end=end, state=state, rows=rows)
        kept = [mapping for mapping in (*self.mappings[:-1], closed) if not target.replaces(mapping)]
        added = Mapping(
            start=end, cell=target.cell, part=target.part, part_generation=target.part_generation, epoch=epoch, era=era
        )
        return Route((*kept, added), max(self.parts, target.part + 1))

    def spent(self, target: "MoveTarget") -> "Route":
        """Returns the route after the target was given up: its name is not used again, since its counter may have
        begun."""
        mappings = tuple(
            msgspec.structs.replace(mapping, part_generation=target.part_generation)
            if target.replaces(mapping)
            else mapping
            for mapping in self.mappings
        )
        return Route(mappings, max(self.parts, target.part + 1))

    def expired(self, ended: "Mapping") -> "Route":
        """Returns the route after every row of a closed mapping was removed."""
        return Route(
            tuple(
                msgspec.structs.replace(mapping, state="expired") if mapping == ended else mapping
                for mapping in self.mappings
            ),
            self.parts,
        )

    def without_cell(self, cell: str, *, closed: bool = False) -> "Route":
        """Returns the route after the cell was given up: what its parts hold is lost. With ``closed`` the last mapping
        stays as it is."""
        lost = [mapping for mapping in self.readable if mapping.cell == cell and not (closed and mapping is self.last)]
        return Route(
            tuple(
                msgspec.structs.replace(mapping, state="lost") if mapping in lost else mapping
                for mapping in self.mappings
            ),
            self.parts,
        )

    @property
    def lost_end(self) -> int:
        """The offset at which the queue goes on if the last part is lost."""
        return self.last.start + LOST_GAP


class MoveTarget(msgspec.Struct, array_like=True, frozen=True):
    """The log that takes over a queue. ``lost``: it follows a log that is lost with its cell."""

    NAMED_BY: ClassVar[int] = 4  # its log

    queue: int
    cell: str
    part: int
    part_generation: int
    lost: bool = False

    def replaces(self, mapping: Mapping) -> bool:
        """Returns whether the target uses the part of this expired mapping again."""
        return mapping.state == "expired" and (mapping.cell, mapping.part) == (self.cell, self.part)


class RouteChange(msgspec.Struct, array_like=True, frozen=True):
    """A requested change of a route, which is not complete: each target takes over its queue, and the subject has
    ``queues`` queues afterwards."""

    targets: tuple[MoveTarget, ...]
    queues: int


def change_of(targets: Iterable[MoveTarget], queues: int) -> RouteChange | None:
    """Returns the change with these targets; None without any."""
    change = RouteChange(tuple(targets), queues)
    return change if change.targets else None


def joined(change: RouteChange | None, more: RouteChange | None) -> RouteChange | None:
    """Returns the change with the further targets of ``more``, except for queues that it changes already."""
    if change is None or more is None:
        return change or more
    queues = {target.queue for target in change.targets}
    return RouteChange(
        (*change.targets, *(further for further in more.targets if further.queue not in queues)), change.queues
    )


def continued(
    routes: tuple[Route, ...], change: RouteChange, ends: Dictionary[int, tuple[int, int]], *, epoch: int
) -> tuple[Route, ...]:
    """Returns the routes after the change. ``ends`` holds the sequence and the rows at which the log of each changed
    queue was sealed."""
    has_more_queues = change.queues > len(routes)
    # With another number of queues keys change their queues: ordered groups finish the era before.
    era = max(route.last.era for route in routes) + has_more_queues
    after = list(routes)
    for target in change.targets:
        end, rows = ends[target.queue]
        after[target.queue] = routes[target.queue].continued(target, end, rows=rows, epoch=epoch, era=era)
    after += [Route((Mapping(epoch=epoch, era=era),)) for _ in range(len(routes), change.queues)]
    return tuple(after)
