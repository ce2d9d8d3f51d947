"""Determines the limits that keep messages from a group, whether or not messages wait."""

from typing import NamedTuple

from hourwheel.context import Settings
from hourwheel.model.groups import Group
from hourwheel.model.pulls import LimitedBy
from hourwheel.model.subjects import Subject

_SHORTEST_SECONDS = 0.1
"""The shortest time between two looks of a pull that waits at a limit, even when settings are not cached."""


class Limit(NamedTuple):
    """A limit that keeps messages from a group. A waiting pull looks again after ``again_seconds`` at the latest: if
    another process lifts the limit, no announcement reaches this one."""

    name: LimitedBy
    again_seconds: float


def pause_of(subject: Subject, group: Group, settings: Settings) -> Limit | None:
    """Returns the pause of the subject or of the group; None if neither is paused."""
    if not (subject.paused or group.paused):
        return None
    name: LimitedBy = "subject_paused" if subject.paused else "paused"
    return Limit(name, max(settings.registry_seconds, _SHORTEST_SECONDS))
