"""Keeps an hour of the numbers of each group that moved, in a bounded piece of memory: a point a minute.

Points are in the memory of one process. They end with it, and each process has its own.

    point      24 bytes: Unix second, messages accepted and pulled each second, messages that wait, age of the oldest
               in seconds, dead letters. A rate that is not known is no number.
"""

import math
import struct
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from hourwheel.groups.numbers import SubjectNumbers
from hourwheel.model.overview import GroupHistory, HistoryPage
from hourwheel.registry.removed_names import RemovedNames, drop_keys
from hourwheel.times import HOUR_MS, parse_rfc3339, rfc3339

if TYPE_CHECKING:
    from hourwheel.operations.overview import Overview

_POINT = struct.Struct("<IffIII")
_POINTS = 60
_STEP_MS = 55_000  # the server looks once a minute; a look that comes a little early counts
_MOST_GROUPS = 10_000  # at about 1.9 KB each: 19 MB
_STILL_MS = 600_000
_MOST = 0xFFFFFFFF


class HistoryRequest(NamedTuple):
    """Asks for the history of one ``group`` of the subject, or of up to ``limit`` groups behind the name ``after``."""

    subject: str
    group: str | None = None
    after: str = ""
    limit: int = 100


class GroupReading(NamedTuple):
    """The numbers of a group at one time: the messages that its subject ever took, and those that the group has pulled
    or passed over. ``seeks`` changes with each move of the group that is no progress."""

    at_ms: int
    accepted: int
    settled: int
    waiting: int
    oldest_seconds: int
    dead: int
    seeks: int

    def has_moved(self, earlier: "GroupReading") -> bool:
        return (self.settled, self.waiting, self.dead) != (earlier.settled, earlier.waiting, earlier.dead)

    def point_after(self, earlier: "GroupReading") -> bytes:
        """Returns the point of these numbers, with the mean rates since the earlier ones."""
        seconds = (self.at_ms - earlier.at_ms) / 1_000
        pulled = self.settled if self.seeks == earlier.seeks else -1
        rates = _rate(self.accepted - earlier.accepted, seconds), _rate(pulled - earlier.settled, seconds)
        counts = (min(number, _MOST) for number in (self.waiting, self.oldest_seconds, self.dead))
        return _POINT.pack(self.at_ms // 1_000, *rates, *counts)


class _Points:
    """The points of one group, the oldest first, and the time at which its numbers changed last."""

    __slots__ = ("moved_ms", "points")

    def __init__(self) -> None:
        self.moved_ms = 0
        self.points = b""


@dataclass
class LastHour:
    """The history of the groups of a deployment. Thread-safe."""

    _rings: OrderedDict[tuple[str, str], _Points] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(
        self, subject: str, earlier: Mapping[str, GroupReading], now: Mapping[str, GroupReading]
    ) -> dict[str, GroupReading]:
        """Adds a point for each group of the subject whose earlier reading is a minute old. Returns the readings, by
        group, with which the next ones are to be compared."""
        kept: dict[str, GroupReading] = {}
        with self._lock:
            for group, reading in now.items():
                before = earlier.get(group)
                if before is None or reading.at_ms < before.at_ms:  # the clock may have been set back
                    kept[group] = reading
                elif reading.at_ms - before.at_ms < _STEP_MS:
                    kept[group] = before
                else:
                    kept[group] = reading
                    self._add((subject, group), before, reading)
        return kept

    def _add(self, name: tuple[str, str], before: GroupReading, reading: GroupReading) -> None:
        ring = self._rings.get(name)
        if reading.has_moved(before):
            ring = ring or self._added(name, reading.at_ms)
            if ring is not None:
                ring.moved_ms = reading.at_ms
                self._rings.move_to_end(name)
        elif ring is not None and reading.at_ms - ring.moved_ms > HOUR_MS:
            del self._rings[name]
            return
        if ring is not None:
            # Copied once a minute: bytes take no room for growth.
            ring.points = ring.points[-(_POINTS - 1) * _POINT.size :] + reading.point_after(before)

    def _added(self, name: tuple[str, str], now_ms: int) -> "_Points | None":
        """Returns new points, for which those of the group that has been still for the longest time give way; None
        where all move: each would drive out one that moves again within a minute."""
        if len(self._rings) >= _MOST_GROUPS:
            first, stillest = next(iter(self._rings.items()))
            if now_ms - stillest.moved_ms < _STILL_MS:
                return None
            del self._rings[first]
        return self._rings.setdefault(name, _Points())

    def of(self, subject: str, groups: list[str], now_ms: int) -> list[GroupHistory]:
        """Returns the points of the last hour of those of the groups that have any."""
        with self._lock:
            rings = [(group, self._rings.get((subject, group))) for group in groups]
        shown = [_shown(group, ring.points, now_ms - HOUR_MS) for group, ring in rings if ring is not None]
        return [group for group in shown if group.at]

    def drop(self, deleted: RemovedNames) -> None:
        with self._lock:
            drop_keys(self._rings, [name for name in self._rings if deleted.has_group(*name)])


def history_page(overview: "Overview", request: HistoryRequest) -> HistoryPage:
    """Returns the last hour of one group of a subject, or of those of a page of groups that moved. Raises
    ``NotFound``."""
    registry, context = overview.registry, overview.context
    subject, following = registry.current_subject(request.subject), None
    if request.group is None:
        groups, following = registry.group_page(subject, request.after, request.limit)
    else:
        groups = [registry.group(subject, request.group)]
    now_ms, since_ms = context.clock.now_ms(), overview.since_ms()
    return HistoryPage(
        subject=subject.name,
        since=None if since_ms is None else rfc3339(since_ms),
        groups=overview.history.of(subject.name, [member.shared_name for member in groups], now_ms),
        next=following,
        at=rfc3339(now_ms),
    )


def readings_of(read: SubjectNumbers, accepted: int, at_ms: int) -> dict[str, GroupReading]:
    """Returns the readings of the groups whose numbers are exact. Those that lack a cell would look like a move."""
    return {
        group.group: GroupReading(
            at_ms=at_ms,
            accepted=accepted,
            settled=group.settled,
            waiting=group.waiting,
            oldest_seconds=_age_seconds(group.oldest_at, at_ms),
            dead=group.dead,
            seeks=read.seeks[group.group],
        )
        for group in read.groups
        if {"waiting", "settled"}.isdisjoint(group.inexact)
    }


def _age_seconds(oldest_at: str | None, at_ms: int) -> int:
    return 0 if oldest_at is None else max(0, at_ms - parse_rfc3339(oldest_at, "oldest_at")) // 1_000


def _rate(messages: int, seconds: float) -> float:
    return messages / seconds if messages >= 0 else math.nan


def _shown(group: str, points: bytes, since_ms: int) -> GroupHistory:
    shown = GroupHistory(group=group)
    for at_seconds, accepted, pulled, waiting, oldest_seconds, dead in _POINT.iter_unpack(points):
        if at_seconds * 1_000 >= since_ms:
            shown.at.append(rfc3339(at_seconds * 1_000))
            shown.accepted_per_second.append(_known(accepted))
            shown.pulled_per_second.append(_known(pulled))
            shown.waiting.append(waiting)
            shown.oldest_seconds.append(oldest_seconds)
            shown.dead.append(dead)
    return shown


def _known(rate: float) -> float | None:
    return None if math.isnan(rate) else round(rate, 3)
