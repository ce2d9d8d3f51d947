"""Keeps what was read of a subject, and tells what needs an operator now."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hourwheel.groups.consumers import SeenPulls
from hourwheel.model.overview import SubjectOverview
from hourwheel.operations.concerns import Concern, WatchedGroup, concerns_of_group
from hourwheel.operations.history import GroupReading
from hourwheel.operations.thresholds import THRESHOLDS
from hourwheel.operations.trends import LagHistory

_EARLIER_MS = 60_000
"""Subjects that need an operator are read again as if their numbers were older by this time."""


class SubjectEntry(NamedTuple):
    """The numbers of one generation of a subject, and when their reading began and ended; what is known of its groups,
    and earlier looks at them."""

    generation: int
    began_ms: int
    read_ms: int
    numbers: SubjectOverview
    groups: tuple[WatchedGroup, ...]
    troubled: bool
    """Whether a group needed an operator when the numbers were read."""

    histories: Mapping[str, LagHistory]
    readings: Mapping[str, GroupReading]
    """The numbers of groups with which the next ones are compared for a point of their history."""

    def order_ms(self) -> int:
        """Returns the time by which entries are read again: those in trouble come earlier."""
        return self.read_ms - (_EARLIER_MS if self.troubled else 0)

    def concerns(self, seen: SeenPulls, now_ms: int) -> Iterator[Concern]:
        """Yields what needs an operator by now. Of groups that were pulled since the numbers were read, or may have
        been, tells what needed one then."""
        for group in self.groups:
            pulled = seen.latest_ms(group.subject, group.numbers.group) >= self.began_ms
            at_ms = self.began_ms if pulled or group.watched_ms is None else now_ms
            yield from concerns_of_group(group, THRESHOLDS, at_ms)


class GroupConcerns(NamedTuple):
    """What needs an operator in the subjects, whether all of them were read, and when the oldest numbers were read
    (None: there are none)."""

    concerns: list[Concern]
    complete: bool
    oldest_ms: int | None
