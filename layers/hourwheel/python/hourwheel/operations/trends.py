"""Computes how fast the backlog of a group grows, and how fast the group pulls, from two looks at its numbers."""

from collections.abc import Mapping
from typing import NamedTuple

from hourwheel.groups.numbers import SubjectNumbers
from hourwheel.model.overview import GroupOverview
from hourwheel.operations.thresholds import Thresholds


class LagPoint(NamedTuple):
    """The numbers of a group at one time: the messages that wait, and those that it ever pulled or passed over.
    ``seeks`` changes with each move of the group that is no progress."""

    at_ms: int
    waiting: int
    settled: int
    seeks: int = 0

    def follows(self, earlier: "LagPoint") -> bool:
        """Returns whether only producers and consumers have changed the numbers since the earlier point."""
        return self.at_ms >= earlier.at_ms and self.settled >= earlier.settled and self.seeks == earlier.seeks


class Trend(NamedTuple):
    """The messages by which a backlog grows each second, and those that the group pulls each second."""

    rise_per_second: float
    pulled_per_second: float


class LagHistory(NamedTuple):
    """Two earlier looks at a group: ``base``, against which the next one is compared, and a later one."""

    base: LagPoint
    later: LagPoint

    @classmethod
    def beginning(cls, point: LagPoint) -> "LagHistory":
        return cls(point, point)

    def with_point(self, point: LagPoint, limits: Thresholds) -> "LagHistory":
        """Returns the history after another look. Begins anew where the clock or the progress was set."""
        if not point.follows(self.later):
            return LagHistory.beginning(point)
        if point.at_ms - self.later.at_ms < limits.trend_span_ms:
            return self
        return LagHistory(self.later, point)

    def trend(self, point: LagPoint, limits: Thresholds) -> Trend | None:
        """Returns the mean rates since the base; None if too little time has passed, or the progress was set."""
        passed_ms = point.at_ms - self.base.at_ms
        if passed_ms < limits.trend_ms or not point.follows(self.base):
            return None
        rise, pulled = point.waiting - self.base.waiting, point.settled - self.base.settled
        return Trend(round(rise * 1_000 / passed_ms, 3), round(pulled * 1_000 / passed_ms, 3))


def look_at(read: SubjectNumbers, group: GroupOverview, now_ms: int) -> LagPoint | None:
    """Returns the numbers of the group from which rates are computed. None where some are missing: once a cell out of
    reach is back, its messages would look like growth."""
    if not {"waiting", "settled"}.isdisjoint(group.inexact):
        return None
    return LagPoint(now_ms, group.waiting, group.settled, read.seeks[group.group])


def histories_after(
    histories: Mapping[str, LagHistory], points: Mapping[str, LagPoint | None], limits: Thresholds
) -> dict[str, LagHistory]:
    """Returns the histories of groups, by name, after another look at each. Without a point a group keeps its own."""
    later: dict[str, LagHistory] = {}
    for group, point in points.items():
        history = histories.get(group)
        if point is not None:
            later[group] = LagHistory.beginning(point) if history is None else history.with_point(point, limits)
        elif history is not None:
            later[group] = history
    return later
