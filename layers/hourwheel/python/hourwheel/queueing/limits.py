"""Limits: say what keeps messages from a group, whether or not any waits."""

from typing import NamedTuple

from hourwheel.context import Settings
from hourwheel.model import Group, LimitedBy, Subject

_SHORTEST_SECONDS = 0.1
"""A pull that waits at a limit does not look more often, even where settings are not cached."""


class Limit(NamedTuple):
    """What keeps messages from a group. A waiting pull looks again after ``again_seconds`` at the latest, because no
    announcement of its process tells that another process has lifted the limit."""

    name: LimitedBy
    again_seconds: float


def pause_of(subject: Subject, group: Group, settings: Settings) -> Limit | None:
    """Returns the pause of the subject or of the group; None if neither is paused."""
    if not (subject.paused or group.paused):
        return None
    name: LimitedBy = "subject_paused" if subject.paused else "paused"
    return Limit(name, max(settings.registry_seconds, _SHORTEST_SECONDS))
