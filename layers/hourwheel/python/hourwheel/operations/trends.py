"""Computes how fast the backlog of a group grows, and how fast the group pulls, from two looks at its numbers."""

from typing import NamedTuple

from hourwheel.operations.thresholds import Thresholds


class LagPoint(NamedTuple):
    """The numbers of a group at one time: the messages that wait, and those that it ever pulled or passed over."""

    at_ms: int
    waiting: int
    settled: int


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
        """Returns the history after another look. Begins anew where the clock or the progress was set back."""
        if point.at_ms < self.later.at_ms or point.settled < self.later.settled:
            return LagHistory.beginning(point)
        if point.at_ms - self.later.at_ms < limits.trend_span_ms:
            return self
        return LagHistory(self.later, point)

    def trend(self, point: LagPoint, limits: Thresholds) -> Trend | None:
        """Returns the mean rates since the base; None if too little time has passed."""
        passed_ms = point.at_ms - self.base.at_ms
        if passed_ms < limits.trend_ms:
            return None
        rise, pulled = point.waiting - self.base.waiting, point.settled - self.base.settled
        return Trend(round(rise * 1_000 / passed_ms, 3), round(pulled * 1_000 / passed_ms, 3))
